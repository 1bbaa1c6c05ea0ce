// Command run makes this machine a Kubernetes cluster of one node, for people to try: a control plane that only this
// machine and its pods reach, with Services and DNS, and deckhand as its node. Ctrl-C ends all of it but the pods.
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

	"github.com/vishvananda/netlink"

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
	if _, err := exec.LookPath("nft"); err != nil {
		return fmt.Errorf("kube-proxy needs the program nft, Debian's package nftables: %w", err)
	}
	if dir == "" {
		return errors.New("--dir is missing")
	}
	// Each cluster is a new one; what deckhand's root directory has of the last one it takes down itself.
	data, manifests := filepath.Join(dir, "control-plane"), filepath.Join(dir, "manifests")
	if err := errors.Join(os.RemoveAll(data), os.MkdirAll(data, 0o700), os.MkdirAll(manifests, 0o755)); err != nil {
		return err
	}
	remove, err := addAddress()
	if err != nil {
		return fmt.Errorf("give the loopback interface the address %s, at which pods reach the API server: %w", address, err)
	}
	defer remove()
	fmt.Println("Starting etcd, kube-apiserver, kube-scheduler and kube-controller-manager ...")
	o := plane.NewProgram(ctx, data)
	defer o.End()
	p, err := o.StartAt(filepath.Join(bin, "controlplane"), address)
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	name = strings.ToLower(name)
	config := filepath.Join(dir, "kubelet.yaml")
	if !strings.Contains(more, "evictionHard") { // this machine's disk may be fuller than that of a node
		more += "\nevictionHard: {memory.available: 100Mi, nodefs.available: 2%, imagefs.available: 2%}"
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, settings+"%s\n", p.CA(), plane.ServiceDNS, plane.ClusterDomain, more), 0o600); err != nil {
		return err
	}
	defer keepSysctls()()
	log, err := os.Create(filepath.Join(dir, "deckhand.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	// Not of ctx: it ends by the same signal, or is asked to.
	program, root := filepath.Join(bin, "deckhand"), filepath.Join(dir, "deckhand")
	agent := exec.Command(program, "agent", "--root-dir", root, "--config", config, "--pod-manifest-path", manifests,
		"--kubeconfig", p.Node(name), "--hostname-override", name, "--node-ip", address,
		"--cert-dir", filepath.Join(data, "pki"))
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
			_, err = plane.Try(o, func() bool { p.StartServices(name); return true })
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
			o.Logf("The node isn't ready, or DNS, Services or metrics-server don't work: %v", err)
		}
	}
	fmt.Printf(guide, p.Admin(), p.KubectlProgram(), program, root, filepath.Join(bin, "images", "web.tar"), address,
		plane.ServiceDNS, manifests, log.Name())
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

// guide is what a person is told. Lines that begin with two spaces are commands.
const guide = `The cluster is up. In another terminal, as root:

  export KUBECONFIG=%[1]s
  alias kubectl=%[2]s
  alias deckhand="%[3]s --root-dir %[4]s"
  kubectl get nodes

Get an image into the node from an archive ("docker save"), and run a pod of it with a Service:

  deckhand images import %[5]s
  kubectl run web --image=deckhand.local/web:1
  kubectl expose pod web --name=hello --port=80 --target-port=8080
  kubectl wait --for=condition=Ready pod/web --timeout=60s
  kubectl exec web -- /web get http://hello/

Other images are pulled; "deckhand images pull NAME" does that ahead of time. With the tag "latest" they are always
pulled, unless the pod says imagePullPolicy: IfNotPresent.
Pods reach each other, Services (kube-proxy) by address and by name (CoreDNS, %[7]s), and the API server
(kubernetes.default). This machine reaches pods, and Services by address if it has a default route; other machines
reach hostPorts only. The node's address, %[6]s, is on the loopback interface. There are no network policies,
Ingress, load balancers or storage classes.
"kubectl top" has figures once metrics-server has looked at the node twice, after some 10 seconds.
Static pods are those of %[8]s. The agent's log is %[9]s.
Ctrl-C ends the control plane and the agent; "make clean" removes everything.
`

// address is the node's and the API server's, whatever networks the machine has. No network uses it (RFC 5737: TEST-NET-3;
// virtual machines have been seen whose gateway is in TEST-NET-1), and it is on the loopback interface: the control plane
// isn't open to the machine's networks.
const address = "203.0.113.1"

// addAddress adds address to the loopback interface; remove removes it.
func addAddress() (remove func(), err error) {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	own, err := netlink.ParseAddr(address + "/32")
	if err != nil {
		return nil, err
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if r.Gw.Equal(own.IP) || r.Dst != nil && r.Dst.Contains(own.IP) && !r.Dst.IP.IsUnspecified() {
			return nil, fmt.Errorf("this machine has a route there: %s", r)
		}
	}
	return func() {
		if err := netlink.AddrDel(loopback, own); err != nil {
			fmt.Fprintf(os.Stderr, "run-cluster: remove the address %s from the loopback interface: %v\n", address, err)
		}
	}, netlink.AddrReplace(loopback, own) // it may be left of a cluster that was killed
}

// settings let the node be like the machines that people try things on.
const settings = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
failCgroupV1: false
serverTLSBootstrap: true
authentication: {x509: {clientCAFile: %q}}
clusterDNS: [%s]
clusterDomain: %s
`
