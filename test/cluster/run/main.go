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
	kubernetes := flag.String("kubernetes", "test/kubernetes", "the `directory` of the module that the control plane is built from")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *dir, *kubernetes, *more); err != nil {
		fmt.Fprintln(os.Stderr, "run-cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin, dir, kubernetes, more string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if os.Geteuid() != 0 {
		return errors.New("deckhand has to be root")
	}
	if dir == "" {
		return errors.New("--dir is missing")
	}
	// Each cluster is a new one; what deckhand's root directory has of the last one it takes down itself.
	data, manifests := filepath.Join(dir, "control-plane"), filepath.Join(dir, "manifests")
	if err := errors.Join(os.RemoveAll(data), os.MkdirAll(data, 0o700), os.MkdirAll(manifests, 0o755)); err != nil {
		return err
	}
	fmt.Println("Starting etcd, kube-apiserver, kube-scheduler and kube-controller-manager ...")
	o := plane.NewProgram(ctx, data)
	defer o.End()
	p, err := o.Start(filepath.Join(bin, "controlplane"))
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	name = strings.ToLower(name)
	config := filepath.Join(dir, "kubelet.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, settings+"%s\n", p.CA(), more), 0o600); err != nil {
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
		"--kubeconfig", p.Node(name), "--hostname-override", name, "--cert-dir", filepath.Join(data, "pki"))
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
		if err == nil {
			err = startMetricsServer(ctx, o, p, name, kubernetes)
		}
		ready <- err
	}()
	select {
	case err := <-ended:
		text, _ := os.ReadFile(log.Name()) // what can't be read can be looked at
		return fmt.Errorf("deckhand has ended (%v): %s", err, text)
	case err := <-ready:
		if err != nil {
			o.Logf("The node isn't ready, or metrics-server doesn't run: %v", err)
		}
	}
	fmt.Printf(`The cluster is up. In another terminal, as root:

  export KUBECONFIG=%s
  alias kubectl=%s
  kubectl get nodes

"kubectl top" has figures once metrics-server has looked at the node twice, after some 10 seconds.
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

// startMetricsServer starts it once the node's server has the certificate that it asks for.
func startMetricsServer(ctx context.Context, o *plane.Program, p *plane.Plane, node, kubernetes string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := p.ApproveServing()
		if err == nil {
			_, err = p.Kubectl("", "get", "--raw", "/api/v1/nodes/"+node+"/proxy/healthz")
		}
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node's server has no certificate: %w", err)
		case <-time.After(time.Second / 4):
		}
	}
	_, err := plane.Try(o, func() bool { p.StartMetricsServer(kubernetes); return true })
	return err
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
serverTLSBootstrap: true
authentication: {x509: {clientCAFile: %q}}
`
