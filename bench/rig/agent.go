// Package rig has what measurements share: a containerd of their own, set up as deckhand's
// embedded runtime is, deckhand's agent as a measured process, pods made by calling a CRI
// directly (the floor: how fast the runtime itself is), and a watcher of the runtime's events
// that sees when pods have come up or gone.
package rig

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long the agent may take to be healthy, and to end.
const patience = 30 * time.Second

// AgentOptions say which agent runs and where. All fields are needed.
type AgentOptions struct {
	// Binary is bin/deckhand, or bin/kubelet to measure that in its place.
	Binary string
	// Dir is an empty directory for everything the agent writes.
	Dir string
	// Endpoint is the CRI's, as unix:///path.
	Endpoint string
	// CgroupRoot is the cgroup above the agent's kubepods.
	CgroupRoot string
	// Kubeconfig has the agent be a node of a cluster, by this name; both are empty for one that is alone.
	Kubeconfig, Node string
	// Serve has it serve the kubelet's API over HTTPS to anybody, at Agent.Address.
	Serve bool
}

// Agent is one run of the agent.
type Agent struct {
	// PID is the process's.
	PID int
	// Address is that of the HTTPS server, if there is one.
	Address string

	options  AgentOptions
	readOnly int // port
	http     *http.Client
	cmd      *exec.Cmd
	exited   chan struct{}
}

// StartAgent starts the agent with an empty manifest directory and waits until it says
// it is healthy. Stop ends it.
func StartAgent(ctx context.Context, o AgentOptions) (*Agent, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	a := &Agent{options: o, readOnly: ports[1], http: &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}, exited: make(chan struct{})}
	for _, dir := range []string{a.manifests(), a.path("staged"), a.path("logs/pods"), a.path("logs/containers")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	config := AgentConfig(o, ports[0], ports[1])
	if o.Serve {
		a.Address = fmt.Sprintf("127.0.0.1:%d", ports[2])
		config = fmt.Appendf(config, "address: 127.0.0.1\nport: %d\nauthentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n", ports[2])
	}
	if err := os.WriteFile(a.path("config.yaml"), config, 0o600); err != nil {
		return nil, err
	}
	if err := a.launch(); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	if err := a.awaitHealthy(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[0])); err != nil {
		return nil, errors.Join(fmt.Errorf("the agent isn't healthy: %w; its log ends with:\n%s", err, a.LogTail()), a.Stop())
	}
	return a, nil
}

// kubelet reports whether it is the kubelet.
func (o AgentOptions) kubelet() bool { return filepath.Base(o.Binary) == "kubelet" }

// forKubelet is what a kubelet has to be told beside, so that it runs alone. It makes no cgroups for pods then, which spares it
// work that deckhand does.
const forKubelet = `failSwapOn: false
failCgroupV1: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
enableServer: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
authentication: {webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`

// AgentConfig is the KubeletConfiguration the agent is given.
func AgentConfig(o AgentOptions, healthzPort, readOnlyPort int) []byte {
	own := "cgroupRoot: " + o.CgroupRoot + "\n"
	if o.kubelet() {
		own = forKubelet
	} else if o.Kubeconfig != "" {
		own += "failSwapOn: false\nfailCgroupV1: false\nenableServer: false\n"
	}
	return fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
healthzPort: %d
readOnlyPort: %d
cgroupDriver: cgroupfs
podLogsDir: %s
maxPods: 10000
%s`, healthzPort, readOnlyPort, filepath.Join(o.Dir, "logs/pods"), own)
}

// AgentArgs are the agent's arguments.
func AgentArgs(o AgentOptions) []string {
	args := []string{
		"--root-dir", o.rootDir(),
		"--config", filepath.Join(o.Dir, "config.yaml"),
		"--pod-manifest-path", filepath.Join(o.Dir, "manifests"),
		"--hostname-override", cmp.Or(o.Node, "bench"),
		"--container-runtime-endpoint", o.Endpoint,
	}
	if o.Kubeconfig != "" {
		args = append(args, "--kubeconfig", o.Kubeconfig, "--node-ip", "0.0.0.0", "--cert-dir", filepath.Join(o.Dir, "pki"))
	}
	if o.kubelet() { // it measures what it finds there, not what it starts
		return append(args, "--containerd", strings.TrimPrefix(o.Endpoint, "unix://"))
	}
	return append([]string{"agent", "--container-log-links-dir", filepath.Join(o.Dir, "logs/containers")}, args...)
}

func (a *Agent) launch() error {
	log, err := os.OpenFile(a.path("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd = exec.Command(a.options.Binary, AgentArgs(a.options)...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	// In a group of its own, so that Ctrl-C reaches it through Stop alone.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		return err
	}
	a.PID = a.cmd.Process.Pid
	go func() {
		defer close(a.exited)
		_ = a.cmd.Wait() // how it ended shows in its log
	}()
	return nil
}

func (a *Agent) awaitHealthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := a.get(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-a.exited:
			return errors.New("it has ended")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Stop ends the agent: with SIGTERM, and SIGKILL if that isn't heeded.
func (a *Agent) Stop() error {
	defer a.http.CloseIdleConnections()
	if a.options.kubelet() { // it mounts its root directory onto itself
		defer func() { _ = unix.Unmount(a.path("root"), unix.MNT_DETACH) }()
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-a.exited:
		return nil
	case <-time.After(patience):
	}
	if err := a.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-a.exited
	return fmt.Errorf("the agent didn't end within %s of SIGTERM", patience)
}

// RootDir is the agent's root directory.
func (a *Agent) RootDir() string { return a.options.rootDir() }

// Socket is that of the agent's commands.
func (a *Agent) Socket() string { return filepath.Join(a.RootDir(), "deckhand.sock") }

func (o AgentOptions) rootDir() string { return filepath.Join(o.Dir, "root") }

func (a *Agent) path(name string) string { return filepath.Join(a.options.Dir, name) }

func (a *Agent) manifests() string { return a.path("manifests") }

// LogTail is the end of the agent's log.
func (a *Agent) LogTail() string {
	text, err := os.ReadFile(a.path("agent.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// freePorts finds ports nobody listens on, which somebody else might take before
// they are used.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
