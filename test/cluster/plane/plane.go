// Package plane starts a real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-scheduler and
// kube-controller-manager, with certificates of its own, the Node authorizer, NodeRestriction, and an audit log of what
// nodes do, which is held against what a node may do.
package plane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Owner is who a control plane is for: a test, or a program. What goes wrong is fatal to it; its end is that of the control plane.
type Owner interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Logf(string, ...any)
	Failed() bool
	Cleanup(func())
	Context() context.Context
	// TempDir is an empty directory.
	TempDir() string
}

// Plane is a control plane that runs.
type Plane struct {
	t   Owner
	dir string
	ca  *authority
	// address is where the API server and DNS listen.
	address string
	// server is the URL of the API server.
	server string
	admin  string // its kubeconfig
	// ended gets the names of programs that end.
	ended chan string
	// running are those that were started, by name.
	running map[string]*running
}

// running is a program that was started with these arguments.
type running struct {
	args []string
	cmd  *exec.Cmd
	gone chan struct{}
	// stopped says that it is to end.
	stopped atomic.Bool
}

// stop ends the program, which has nothing to lose.
func (r *running) stop() {
	r.stopped.Store(true)
	_ = r.cmd.Process.Kill() // unless it has ended
	<-r.gone
}

// programs are the names that the one program goes by.
var programs = [...]string{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kube-proxy",
	"kubectl", "kubeadm", "coredns", "metrics-server", "promql"}

// Start starts a control plane from the program at a path (`make controlplane`), and returns when it is ready. The end of its
// owner ends it.
func Start(t Owner, program string) *Plane {
	t.Helper()
	return StartPatient(t, program, 8*time.Second)
}

// StartPatient is Start, but a node counts as lost only after that time without a sign of life.
func StartPatient(t Owner, program string, patience time.Duration) *Plane {
	t.Helper()
	return start(t, program, loopback, patience)
}

const loopback = "127.0.0.1"

// start starts a control plane whose API server listens on an address of this machine. Pods reach it if that isn't of loopback.
func start(t Owner, program, address string, patience time.Duration) *Plane {
	t.Helper()
	p := &Plane{t: t, dir: t.TempDir(), address: address, ended: make(chan string, len(programs)), running: map[string]*running{}}
	if err := p.prepare(program); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	etcd, peers := url("http", ports[0]), url("http", ports[1])
	p.server = fmt.Sprintf("https://%s:%d", address, ports[2])
	p.run("etcd", "--name=test", "--data-dir="+p.path("data"), "--unsafe-no-fsync", "--logger=zap", "--log-level=warn",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd, "--listen-peer-urls="+peers,
		"--initial-advertise-peer-urls="+peers, "--initial-cluster=test="+peers)
	p.startAPIServer(etcd, ports[2])
	p.admin = p.Kubeconfig(p.Issue("admin", "admin", "system:masters"))
	p.await("kube-apiserver", "/readyz")
	p.run("kube-scheduler", "--kubeconfig="+p.Kubeconfig(p.Issue("scheduler", "system:kube-scheduler")), "--leader-elect=false", "--secure-port=0")
	p.run("kube-controller-manager", "--kubeconfig="+p.Kubeconfig(p.Issue("controllers", "system:kube-controller-manager")), "--leader-elect=false", "--secure-port=0", "--controllers=*,bootstrapsigner",
		"--use-service-account-credentials", "--kube-api-qps=500", "--kube-api-burst=1000", "--root-ca-file="+p.path("ca.crt"), "--service-account-private-key-file="+p.path("sa.key"),
		"--cluster-signing-cert-file="+p.path("ca.crt"), "--cluster-signing-key-file="+p.path("ca.key"), "--node-monitor-period=1s", fmt.Sprint("--node-monitor-grace-period=", patience), fmt.Sprint("--node-startup-grace-period=", patience),
		"--horizontal-pod-autoscaler-sync-period=1s", "--horizontal-pod-autoscaler-cpu-initialization-period=1s", "--horizontal-pod-autoscaler-initial-readiness-delay=1s")
	p.await("kube-controller-manager", "/api/v1/namespaces/default/serviceaccounts/default")
	return p
}

func (p *Plane) prepare(program string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("the control plane isn't built, run `make controlplane`: %w", err)
	}
	for _, name := range programs {
		if err := os.Symlink(program, p.path(name)); err != nil {
			return err
		}
	}
	if p.ca, err = newAuthority(p.dir); err != nil {
		return err
	}
	if _, err = writeKey(p.path("sa.key")); err != nil {
		return err
	}
	return os.WriteFile(p.path("audit.yaml"), []byte(auditPolicy), 0o644)
}

// auditPolicy logs each request of a node, who changes a node's lists of volumes, and when pods are bound. Of these,
// only patches of a node's status are logged with their bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Request, verbs: [patch], resources: [{group: "", resources: [nodes/status]}]}
- {level: Metadata, users: ["system:kube-scheduler"], verbs: [create], resources: [{group: "", resources: [pods/binding]}]}
- {level: Metadata, userGroups: ["system:nodes"]}
- {level: None}
`

func (p *Plane) startAPIServer(etcd string, port int) {
	serving, err := p.ca.issue("apiserver", "kube-apiserver", nil, []string{p.address, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc." + ClusterDomain, "10.96.0.1"}, time.Time{})
	if err != nil {
		p.t.Fatal(err)
	}
	endpoints := "lease" // of the Service kubernetes
	if p.address == loopback {
		endpoints = "none"
	}
	proxy := p.Issue("front-proxy", "front-proxy") // to servers of APIs beside its own
	client := p.Issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
	p.run("kube-apiserver", "--etcd-servers="+etcd, "--bind-address="+p.address, "--advertise-address="+p.address, fmt.Sprint("--secure-port=", port),
		"--tls-cert-file="+serving.Cert, "--tls-private-key-file="+serving.Key, "--client-ca-file="+p.path("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-client-certificate="+client.Cert, "--kubelet-client-key="+client.Key,
		"--proxy-client-cert-file="+proxy.Cert, "--proxy-client-key-file="+proxy.Key, "--requestheader-client-ca-file="+p.path("ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-key-file="+p.path("sa.key"), "--service-account-signing-key-file="+p.path("sa.key"), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type="+endpoints, "--allow-privileged",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth",
		"--audit-policy-file="+p.path("audit.yaml"), "--audit-log-path="+p.path("audit.log"), "--audit-log-mode=blocking")
}

func (p *Plane) path(name string) string { return filepath.Join(p.dir, name) }

func url(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

// freePorts returns ports that nobody listens on.
func freePorts(t Owner, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // when all are found, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// run starts one of the programs. It is killed at the end of the test, and with it; its log is shown if the test fails.
func (p *Plane) run(name string, args ...string) {
	p.t.Helper()
	log, err := os.OpenFile(p.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(p.path(name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r := &running{args: args, cmd: cmd, gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(r.gone)
		runtime.LockOSThread() // the program is killed with the thread that started it, not with the process alone
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // its log says why
		if !r.stopped.Load() {
			p.ended <- name
		}
	}()
	err = <-started
	log.Close()
	if err != nil {
		p.t.Fatal(err)
	}
	p.running[name] = r
	p.t.Cleanup(func() {
		r.stop()
		if p.t.Failed() {
			p.t.Logf("%s's log, its end:\n%s", name, p.logged(name))
		}
	})
}

// order is the one in which the programs are started.
var order = []string{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"}

// KillAPIServer ends the API server, as a crash does, until it is started again.
func (p *Plane) KillAPIServer() (start func()) {
	p.t.Helper()
	name := "kube-apiserver"
	p.running[name].stop()
	return func() {
		p.t.Helper()
		p.run(name, p.running[name].args...)
		p.await(name, "/readyz")
	}
}

// again ends all programs and starts them when what is stored was changed.
func (p *Plane) again(change func() error) {
	p.t.Helper()
	for _, name := range slices.Backward(order) {
		p.running[name].stop()
	}
	if err := change(); err != nil {
		p.t.Fatal(err)
	}
	for _, name := range order {
		p.run(name, p.running[name].args...)
		if name == "kube-apiserver" {
			p.await(name, "/readyz")
		}
	}
	p.await("kube-controller-manager", "/api/v1/namespaces/default/serviceaccounts/default")
}

// Backup keeps what etcd has at this moment. restore goes back to that, as documented for Kubernetes: nothing else runs meanwhile, and resource
// versions are lower afterwards than those that clients have seen.
func (p *Plane) Backup() (restore func()) {
	p.t.Helper()
	etcd, kept := p.running["etcd"].cmd.Process, p.path("backup")
	// What it has written is all there while it stands still, as after a crash.
	if err := etcd.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	err := errors.Join(os.CopyFS(kept, os.DirFS(p.path("data"))), etcd.Signal(syscall.SIGCONT))
	if err != nil {
		p.t.Fatal(err)
	}
	return func() {
		p.t.Helper()
		p.again(func() error {
			return errors.Join(os.RemoveAll(p.path("data")), os.Rename(kept, p.path("data")), os.Chmod(p.path("data"), 0o700))
		})
	}
}

// LoseData has etcd start with nothing in it, as after the loss of its disk. Nothing else runs meanwhile.
func (p *Plane) LoseData() {
	p.t.Helper()
	p.again(func() error { return os.RemoveAll(p.path("data")) })
}

// SignFor has certificates that the control plane issues from now on last that long.
func (p *Plane) SignFor(d time.Duration) {
	p.t.Helper()
	const name = "kube-controller-manager"
	p.running[name].stop()
	p.run(name, append(p.running[name].args, fmt.Sprint("--cluster-signing-duration=", d))...)
}

// PauseControllers has controllers do nothing until they go on: what happens to pods meanwhile is the node's doing.
func (p *Plane) PauseControllers() (goOn func()) {
	p.t.Helper()
	signal := func(s syscall.Signal) {
		p.t.Helper()
		if err := p.running["kube-controller-manager"].cmd.Process.Signal(s); err != nil {
			p.t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { p.t.Helper(); signal(syscall.SIGCONT) }
}

func (p *Plane) logged(name string) []byte {
	text, err := os.ReadFile(p.path(name + ".log"))
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-4000):]
}

// await waits until the API server answers a path with 200.
func (p *Plane) await(who, path string) {
	p.t.Helper()
	p.awaitURL(who, p.server+path)
}

func (p *Plane) awaitURL(who, url string) {
	p.t.Helper()
	client, err := p.client()
	if err != nil {
		p.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	for {
		err := answers(ctx, client, url)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("%s isn't ready: %v", who, err)
		case name := <-p.ended:
			p.t.Fatalf("%s has ended", name)
		case <-time.After(50 * time.Millisecond): // it has no event to wait for
		}
	}
}

func answers(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return err
}

// client is an administrator's.
func (p *Plane) client() (*http.Client, error) {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca.cert)
	own, err := tls.LoadX509KeyPair(p.path("admin.crt"), p.path("admin.key"))
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}}}}, nil
}

// Issue makes a client certificate, as files with this name.
func (p *Plane) Issue(name, user string, groups ...string) Issued {
	p.t.Helper()
	return p.IssueUntil(time.Time{}, name, user, groups...)
}

// IssueUntil makes one that expires then, or has expired.
func (p *Plane) IssueUntil(until time.Time, name, user string, groups ...string) Issued {
	p.t.Helper()
	issued, err := p.ca.issue(name, user, groups, nil, until)
	if err != nil {
		p.t.Fatal(err)
	}
	return issued
}

// Node makes a kubeconfig for a node's agent.
func (p *Plane) Node(name string) string {
	p.t.Helper()
	return p.Kubeconfig(p.Issue("node-"+name, "system:node:"+name, "system:nodes"))
}

// Joinable has kubeadm do what it does at the end of `kubeadm init`, so that `kubeadm join` works, with this KubeletConfiguration for nodes. It
// returns the arguments of that.
func (p *Plane) Joinable(kubelet string) []string {
	p.t.Helper()
	endpoint := strings.TrimPrefix(p.server, "https://")
	text := fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: %s}]
nodeRegistration: {name: none, criSocket: "unix:///run/none.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: "%s"
---
%s`, token, endpoint, kubelet)
	if err := os.WriteFile(p.path("kubeadm.yaml"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	for _, phase := range []string{"upload-config all", "bootstrap-token"} {
		args := append([]string{"init", "phase"}, strings.Fields(phase)...)
		cmd := exec.CommandContext(p.t.Context(), p.KubeadmProgram(), append(args, "--kubeconfig="+p.admin, "--config="+p.path("kubeadm.yaml"))...)
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Fatalf("kubeadm init phase %s: %v: %s", phase, err, out)
		}
	}
	return []string{"join", endpoint, "--token=" + token, fmt.Sprintf("--discovery-token-ca-cert-hash=sha256:%x", sha256.Sum256(p.ca.cert.RawSubjectPublicKeyInfo))}
}

// token is the bootstrap token of Joinable.
const token = "abcdef.0123456789abcdef"

// Bootstrap makes a kubeconfig with that token.
func (p *Plane) Bootstrap() string {
	p.t.Helper()
	return p.writeKubeconfig(p.path("bootstrap.kubeconfig"), "{token: "+token+"}")
}

// Kubeconfig makes a kubeconfig file beside a client certificate.
func (p *Plane) Kubeconfig(client Issued) string {
	p.t.Helper()
	return p.writeKubeconfig(strings.TrimSuffix(client.Cert, ".crt")+".kubeconfig", fmt.Sprintf("{client-certificate: %q, client-key: %q}", client.Cert, client.Key))
}

func (p *Plane) writeKubeconfig(path, user string) string {
	p.t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: %s}]
`, p.server, p.path("ca.crt"), user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// Kubectl runs kubectl as an administrator, and returns what it prints.
func (p *Plane) Kubectl(input string, args ...string) (string, error) {
	return p.KubectlAs(p.admin, input, args...)
}

// Admin is an administrator's kubeconfig, KubectlProgram the program that goes with it.
func (p *Plane) Admin() string { return p.admin }

// Server is the API server's URL.
func (p *Plane) Server() string { return p.server }

// CA is the file with the authority of all certificates here.
func (p *Plane) CA() string { return p.path("ca.crt") }

// KubectlProgram is the path of kubectl, KubeadmProgram that of kubeadm.
func (p *Plane) KubectlProgram() string { return p.path("kubectl") }
func (p *Plane) KubeadmProgram() string { return p.path("kubeadm") }

// KubectlAs runs kubectl with a kubeconfig.
func (p *Plane) KubectlAs(kubeconfig, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(p.t.Context(), p.path("kubectl"), append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + p.path("cache")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(failed.Stderr))
	}
	return string(out), err
}
