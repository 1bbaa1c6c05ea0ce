// Command run makes this machine a Kubernetes cluster of one node, for people to try: a control plane on loopback, and
// deckhand as its node. Ctrl-C ends both; the pods run on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
)

func main() {
	bin := flag.String("bin", "bin", "the `directory` with deckhand, its tools and the control plane")
	dir := flag.String("dir", "", "the `directory` for everything that is made")
	more := flag.String("settings", "", "`lines` of a KubeletConfiguration, such as \"podCIDR: 10.98.0.0/16\"")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *dir, *more); err != nil {
		fmt.Fprintln(os.Stderr, "run-cluster:", err)
		os.Exit(1)
	}
}

// owner has the control plane end with this program.
type owner struct {
	ctx      context.Context
	dir      string
	err      error
	cleanups []func()
}

func (o *owner) Helper()                           {}
func (o *owner) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (o *owner) Failed() bool                      { return o.err != nil }
func (o *owner) Cleanup(f func())                  { o.cleanups = append(o.cleanups, f) }
func (o *owner) Context() context.Context          { return o.ctx }
func (o *owner) TempDir() string                   { return o.dir }
func (o *owner) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }

func (o *owner) Fatal(args ...any) {
	o.err = errors.New(strings.TrimSpace(fmt.Sprintln(args...)))
	panic(o)
}

// start starts the control plane; end ends it.
func (o *owner) start(program string) (p *plane.Plane, err error) {
	defer func() {
		if o.err != nil {
			_ = recover() // Fatal's
			err = o.err
		}
	}()
	return plane.StartPatient(o, program, 50*time.Second), nil // as long as a kube-controller-manager waits by itself
}

func (o *owner) end() {
	for i := len(o.cleanups) - 1; i >= 0; i-- {
		o.cleanups[i]()
	}
}

func run(ctx context.Context, bin, dir, more string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if os.Geteuid() != 0 {
		return errors.New("deckhand has to be root")
	}
	if dir == "" {
		return errors.New("--dir is missing")
	}
	// Each cluster is a new one; what deckhand's root directory has of the last one it takes down itself.
	o := &owner{ctx: ctx, dir: filepath.Join(dir, "control-plane")}
	manifests := filepath.Join(dir, "manifests")
	if err := errors.Join(os.RemoveAll(o.dir), os.MkdirAll(o.dir, 0o700), os.MkdirAll(manifests, 0o755)); err != nil {
		return err
	}
	fmt.Println("Starting etcd, kube-apiserver, kube-scheduler and kube-controller-manager ...")
	defer o.end()
	p, err := o.start(filepath.Join(bin, "controlplane"))
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	name = strings.ToLower(name)
	config := filepath.Join(dir, "kubelet.yaml")
	if err := os.WriteFile(config, []byte(settings+more+"\n"), 0o600); err != nil {
		return err
	}
	defer keepSysctls()()
	log, err := os.Create(filepath.Join(dir, "deckhand.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// Not of ctx: it ends by the same signal, or is asked to.
	agent := exec.Command(filepath.Join(bin, "deckhand"), "agent", "--root-dir", filepath.Join(dir, "deckhand"), "--config", config, "--pod-manifest-path", manifests,
		"--kubeconfig", p.Node(name), "--hostname-override", name)
	agent.Stdout, agent.Stderr = log, log
	if err := agent.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	ready := make(chan error, 1)
	go func() {
		_, err := p.Kubectl("", "wait", "--for=create", "node/"+name, "--timeout=60s")
		if err == nil {
			_, err = p.Kubectl("", "wait", "--for=condition=Ready", "node/"+name, "--timeout=60s")
		}
		ready <- err
	}()
	select {
	case err := <-ended:
		text, _ := os.ReadFile(log.Name()) // what can't be read can be looked at
		return fmt.Errorf("deckhand has ended (%v): %s", err, text)
	case err := <-ready:
		if err != nil {
			o.Logf("The node isn't ready: %v", err)
		}
	}
	fmt.Printf(`The cluster is up. In another terminal, as root:

  export KUBECONFIG=%s
  alias kubectl=%s
  kubectl get nodes

Static pods are those of %s. The agent's log is %s.
Ctrl-C ends the control plane and the agent; "make clean" removes everything.
`, p.Admin(), p.KubectlProgram(), manifests, log.Name())
	select {
	case err := <-ended:
		return fmt.Errorf("deckhand has ended (%v): see %s", err, log.Name())
	case <-ctx.Done():
	}
	// On a terminal it has had the signal, too: one more does no harm.
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return <-ended
}

// keepSysctls returns what sets the kernel's settings back that an agent of a cluster changes.
func keepSysctls() (restore func()) {
	had := map[string][]byte{}
	for _, f := range kernel.Wanted() {
		path := "/proc/sys/" + strings.ReplaceAll(f.Name, ".", "/")
		if text, err := os.ReadFile(path); err == nil {
			had[path] = text
		}
	}
	return func() {
		for path, text := range had {
			if err := os.WriteFile(path, text, 0); err != nil {
				fmt.Fprintln(os.Stderr, "run-cluster: restore a kernel setting:", err)
			}
		}
	}
}

// settings let the node be like the machines that people try things on.
const settings = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
failCgroupV1: false
`
