// Command csidriver is a CSI driver for tests: real calls, real mounts of tmpfs and of directories below its state
// directory, and a control socket with which a test holds, fails, cuts or kills any call, reads all calls with their
// arguments, and reads violations of the law of calls (law.go).
//
//	csidriver --drivername csi.deckhand.test --nodeid node1 --statedir DIR --endpoint unix:///DIR/csi.sock \
//	    --registration ROOT/plugins_registry/csi.deckhand.test-reg.sock --control DIR/control.sock \
//	    --capabilities STAGE_UNSTAGE_VOLUME,VOLUME_MOUNT_GROUP
//
// Tests use package test/csidriver/driver: driver.Start builds and starts the program, Process.Add adds a Rule,
// Process.Await waits for calls, Process.Release lets held ones go on, Process.CheckLaw fails the test for violations.
// The control socket is HTTP with JSON: GET /state?after=VERSION (waits for a newer version), POST /rules with a Rule,
// DELETE /rules?id=ID (releases the held calls; 0 for all), POST /clear.
//
// Volumes: a handle "csi-" and 64 hexadecimal digits, or the attribute csi.storage.k8s.io/ephemeral=true, is an inline
// volume: a tmpfs with the file volume_context (a JSON object), which is rewritten by each Publish. Any other handle is
// a directory of --statedir that outlives its mounts; a handle that nobody created gets one when it is first used.
//
// Called as registrar, or with registrar as the first argument, the program registers a driver of another process as
// node-driver-registrar does; as livenessprobe it answers HTTP requests with the driver's health, as livenessprobe does.
// With --proxy-endpoint it serves nothing itself (see proxy). With --log-calls, and the flags of csi-driver-host-path,
// Kubernetes' own CSI specs run against it (test/conformance).
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
)

// config is the command line.
type config struct {
	name, version, nodeID, endpoint, stateDir string
	registration, versions                    string
	registeredPath, registeredName            string
	control, proxy                            string
	capabilities                              string
	attach, attended, logCalls                bool
	maxVolumes                                int64
	topology, below                           list
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	command, args := run, os.Args[1:]
	switch {
	case strings.HasSuffix(os.Args[0], "registrar"):
		command = runRegistrar
	case strings.HasSuffix(os.Args[0], "livenessprobe"):
		command = runLivenessProbe
	case len(args) > 0 && args[0] == "registrar":
		command, args = runRegistrar, args[1:]
	}
	err := command(ctx, args)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "csidriver:", err)
		os.Exit(1)
	}
}

// nodeTopology is the topology key of csi-driver-host-path.
const nodeTopology = "topology.hostpath.csi/node"

func parse(args []string) (c config, err error) {
	f := flag.NewFlagSet("csidriver", flag.ContinueOnError)
	f.StringVar(&c.name, "drivername", "csi.deckhand.test", "name of the driver")
	f.StringVar(&c.version, "driverversion", "1.0.0", "version of the driver")
	f.StringVar(&c.nodeID, "nodeid", "", "ID of the node")
	f.StringVar(&c.endpoint, "endpoint", "", "unix socket of the CSI services, unix:///PATH")
	f.StringVar(&c.stateDir, "statedir", "", "directory of volumes, calls and the law's state")
	f.StringVar(&c.registration, "registration", "", "socket for the node's registration")
	f.StringVar(&c.registeredPath, "kubelet-registration-path", "",
		"path of the CSI socket for the node, default as in --endpoint")
	f.StringVar(&c.registeredName, "registration-name", "", "name to register, default as in --drivername")
	f.StringVar(&c.versions, "registration-versions", "1.0.0", "comma-separated versions of CSI to register")
	f.StringVar(&c.control, "control", "", "socket for tests")
	f.StringVar(&c.proxy, "proxy-endpoint", "", "tcp://ADDRESS to which a driver elsewhere connects; this one only copies")
	_ = f.String("v", "", "ignored")
	f.StringVar(&c.capabilities, "capabilities", "",
		"comma-separated capabilities of the node service, such as STAGE_UNSTAGE_VOLUME")
	f.BoolVar(&c.attach, "enable-attach", false, "offer ControllerPublishVolume")
	f.BoolVar(&c.logCalls, "log-calls", false, "print each call with its arguments, as csi-driver-host-path does")
	f.BoolVar(&c.attended, "attended", false, "print ready, and end when the standard input ends")
	f.Int64Var(&c.maxVolumes, "maxvolumespernode", 0, "limit of volumes, 0 for none")
	f.Int64Var(&c.maxVolumes, "attach-limit", 0, "the same as --maxvolumespernode")
	onNode := f.Bool("enable-topology", false, "offer the topology of one node: the segment "+nodeTopology+" with --nodeid")
	expand := f.Bool("node-expand-required", false, "add EXPAND_VOLUME to --capabilities")
	_ = f.Bool("check-volume-lifecycle", false, "ignored: the law of calls is always checked")
	_ = f.Bool("enable-controller-modify-volume", false, "ignored: volumes can't be modified")
	_ = f.String("accepted-mutable-parameter-names", "", "ignored, too")
	f.Var(&c.topology, "topology", "segment KEY=VALUE; may be repeated")
	f.Var(&c.below, "below", "directory below which targets have to be, default anywhere; may be repeated")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if c.endpoint == "" || c.proxy == "" && (c.nodeID == "" || c.stateDir == "") || f.NArg() > 0 {
		return c, errors.New("--endpoint, --nodeid and --statedir are needed, and no arguments")
	}
	if *onNode {
		c.topology = append(c.topology, nodeTopology+"="+c.nodeID)
	}
	if *expand {
		c.capabilities += "," + csi.NodeServiceCapability_RPC_EXPAND_VOLUME.String()
	}
	c.endpoint = strings.TrimPrefix(c.endpoint, "unix://")
	c.registeredPath = cmp.Or(c.registeredPath, c.endpoint)
	c.registeredName = cmp.Or(c.registeredName, c.name)
	for _, s := range c.topology {
		if !strings.Contains(s, "=") {
			return c, fmt.Errorf("--topology %s: KEY=VALUE is needed", s)
		}
	}
	for _, s := range strings.FieldsFunc(c.capabilities, func(r rune) bool { return r == ',' }) {
		if csi.NodeServiceCapability_RPC_Type_value[s] == 0 {
			return c, fmt.Errorf("--capabilities: no capability %q of the node service", s)
		}
	}
	for i, dir := range c.below {
		if c.below[i], err = filepath.EvalSymlinks(dir); err != nil {
			return c, fmt.Errorf("--below: %w", err)
		}
	}
	return c, nil
}

// can reports whether the node service has a capability.
func (c config) can(capability csi.NodeServiceCapability_RPC_Type) bool {
	for s := range strings.SplitSeq(c.capabilities, ",") {
		if s == capability.String() {
			return true
		}
	}
	return false
}

// run serves until ctx ends.
func run(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := func() {}
	if c.attended {
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		ready = func() { fmt.Println("ready") }
	}
	if c.proxy != "" {
		return proxy(ctx, c.endpoint, c.proxy, ready)
	}
	if err := os.MkdirAll(c.stateDir, 0o755); err != nil {
		return err
	}
	journal, err := openJournal(c)
	if err != nil {
		return err
	}
	defer journal.close()
	volumes := &volumes{dir: filepath.Join(c.stateDir, "volumes")}
	conns := &connections{journal: journal, open: map[string]net.Conn{}}
	interceptor := &interceptor{journal: journal, rules: newRules(), conns: conns,
		busy: map[string]bool{}, active: map[string]active{}}
	if c.logCalls {
		interceptor.log = os.Stdout
	}

	driver := grpc.NewServer(grpc.UnaryInterceptor(interceptor.intercept))
	csi.RegisterIdentityServer(driver, &identity{config: c})
	csi.RegisterNodeServer(driver, &node{config: c, volumes: volumes})
	csi.RegisterControllerServer(driver, &controller{config: c, volumes: volumes})
	servers := []server{{c.endpoint,
		func(l net.Listener) error { conns.Listener = l; return driver.Serve(conns) }, driver.Stop}}
	if c.registration != "" {
		s := grpc.NewServer()
		registration.RegisterRegistrationServer(s, &registrar{config: c, journal: journal})
		servers = append(servers, server{c.registration, s.Serve, s.Stop})
	}
	if c.control != "" {
		control := newControl(journal, interceptor.rules)
		servers = append(servers, server{c.control, control.Serve, func() { _ = control.Close() }})
	}
	return serve(ctx, servers, ready)
}

// server serves a socket until it is stopped.
type server struct {
	path  string
	serve func(net.Listener) error
	stop  func()
}

// serve serves all sockets until ctx ends or one fails. It calls ready once all sockets are there.
func serve(ctx context.Context, servers []server, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, s := range servers {
		l, err := listen(s.path)
		if err != nil {
			cancel(err)
			break
		}
		defer func() { _ = os.Remove(s.path) }()
		running.Go(func() { cancel(s.serve(l)) })
	}
	if ctx.Err() == nil {
		ready()
	}
	<-ctx.Done()
	for _, s := range servers {
		s.stop()
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// listen opens a socket under its final name, as CSI drivers do, and replaces that of a dead driver.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	address, release, err := socket.Address(path)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// kill ends this process as a crash does.
func kill() { _ = unix.Kill(unix.Getpid(), unix.SIGKILL); select {} }
