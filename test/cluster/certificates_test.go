package cluster_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/fsnotify/fsnotify"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// rotations are more than one, of certificates that last longer, where a person has the time.
var (
	rotations = flag.Int("rotations", 1, "how many times the client certificate is renewed under a pod (5)")
	signedFor = flag.Duration("signed-for", 20*time.Second, "how long certificates last (2m)")
)

// renewed waits until another certificate is in place of the last one, and returns it.
func renewed(t *testing.T, current string, last *x509.Certificate) *x509.Certificate {
	t.Helper()
	changes, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	if err := changes.Add(filepath.Dir(current)); err != nil {
		t.Fatal(err)
	}
	ends := time.After(time.Until(last.NotAfter))
	for {
		if now := leaf(t, current); !now.Equal(last) {
			return now
		}
		select {
		case <-changes.Events:
		case err := <-changes.Errors:
			t.Fatal(err)
		case <-ends:
			t.Fatalf("the certificate has ended at %s, and there is no other one", last.NotAfter)
		}
	}
}

// TestCertificates: a node that has a bootstrap token gets a certificate, its own kubeconfig and in time another certificate, and another one again;
// no pod notices.
func TestCertificates(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	p.SignFor(*signedFor)
	t.Run("node", func(t *testing.T) {
		r := join(t, p, binary, "")
		const kubeconfig, bootstrap, certs = "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/pki"
		r.kubeadmJoin(kubeconfig, bootstrap, certs)
		current := filepath.Join(certs, "kubelet-client-current.pem")
		private(t, kubeconfig, current)
		if left, err := filepath.Glob(filepath.Join(certs, "kubelet-client.*")); err != nil || len(left) > 0 {
			t.Errorf("left over: %q, %v", left, err)
		}
		if by := r.kubectl("get", "csr", "--field-selector", "spec.signerName=kubernetes.io/kube-apiserver-client-kubelet", "-o", "jsonpath={.items[*].spec.username}"); by != "system:bootstrap:abcdef" {
			t.Errorf("requests: %s", by)
		}
		r.apply(podNamed("steady", spec("[serve], readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}")))
		r.podReady("steady")
		seen, pid, before := r.record(), r.PID(), r.Instances()

		served := r.served(nil)
		last := leaf(t, current)
		for range *rotations {
			now := renewed(t, current, last)
			if slices.Equal(now.RawSubjectPublicKeyInfo, last.RawSubjectPublicKeyInfo) || now.Subject.CommonName != "system:node:"+node.Name {
				t.Errorf("the certificate of %s, or with the key of before", now.Subject)
			}
			_, from := r.calls(0)
			r.Eventually("the node calls with the new certificate, and no longer with the old one", func() error {
				calls := p.Calls()[from:]
				for i := range 3 {
					if len(calls) < 3 || calls[len(calls)-1-i].Certificate != credential(now) {
						return fmt.Errorf("%v", calls)
					}
				}
				return nil
			})
			last = now
			served = r.served(served)
		}
		late := time.Now()
		r.Eventually("the lease is renewed", func() error {
			for _, c := range p.Calls() {
				if c.At.After(late) && c.Resource == "leases.coordination.k8s.io" {
					if c.Certificate != credential(last) {
						t.Errorf("with another certificate: %+v", c)
					}
					return nil
				}
			}
			return fmt.Errorf("not since %s", late)
		})
		if r.PID() != pid || !maps.Equal(r.Instances(), before) {
			t.Errorf("the agent or what runs has changed: %v, %v", before, r.Instances())
		}
		r.is(v1.ConditionTrue)
		seen.mu.Lock()
		if len(seen.faults) > 0 {
			t.Errorf("%q", seen.faults)
		}
		seen.mu.Unlock()
		if logged := r.Logged(); strings.Contains(logged, "PRIVATE KEY") || strings.Contains(logged, "0123456789abcdef") {
			t.Error("a secret is in the log")
		}

		// A certificate that expired while the machine was off is asked for with a token again.
		r.Stop()
		if err := os.WriteFile(bootstrap, read(t, p.Bootstrap()), 0o600); err != nil {
			t.Fatal(err)
		}
		old := p.IssueUntil(time.Now().Add(-time.Minute), "expired", "system:node:"+node.Name, "system:nodes")
		text := slices.Concat(read(t, old.Cert), read(t, old.Key))
		if err := os.WriteFile(current, text, 0o600); err != nil {
			t.Fatal(err)
		}
		r.Start()
		r.podReady("steady")
		r.Eventually("the lease is renewed with a certificate that is valid", func() error {
			calls := p.Calls()
			if last := calls[len(calls)-1]; last.Certificate != credential(leaf(t, current)) || leaf(t, current).NotAfter.Before(time.Now()) {
				return fmt.Errorf("%+v", last)
			}
			return nil
		})
		if by := strings.Fields(r.kubectl("get", "csr", "-o", "jsonpath={.items[*].spec.username}")); len(by) < 2 || !slices.Contains(by[1:], "system:bootstrap:abcdef") {
			t.Errorf("requests: %q", by)
		}
		r.is(v1.ConditionTrue)
		if !maps.Equal(r.Instances(), before) {
			t.Errorf("what runs has changed: %v, %v", before, r.Instances())
		}
		private(t, kubeconfig, current, filepath.Join(certs, "kubelet-server-current.pem"))
		r.Stop()
	})
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

// kubeadmJoin has kubeadm join the node, with the agent as the kubelet that it waits for: with kubeadm's files as they are, and the flags of its unit.
func (r *rig) kubeadmJoin(kubeconfig, bootstrap, certs string) {
	r.t.Helper()
	for _, dir := range []string{"/etc/kubernetes", "/var/lib/kubelet"} {
		made := os.Mkdir(dir, 0o755) == nil
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			r.t.Fatalf("mount %s: %v", dir, err)
		}
		r.t.Cleanup(func() {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			if made {
				_ = os.Remove(dir)
			}
		})
	}
	r.StartRuntime()
	began := time.Now()
	args := r.p.Joinable(r.ConfigText(config + fmt.Sprintf("port: %d\nserverTLSBootstrap: true\ncgroupDriver: cgroupfs\n", r.Port(2))))
	kubeadm := exec.CommandContext(r.t.Context(), r.p.KubeadmProgram(), append(args, "--node-name="+node.Name, "--cri-socket="+r.RuntimeEndpoint(), "--ignore-preflight-errors=all")...)
	// It finds no service manager: the agent is started here.
	kubeadm.Env = []string{"PATH=" + r.t.TempDir()}
	var said bytes.Buffer
	kubeadm.Stdout, kubeadm.Stderr = &said, &said
	ended := make(chan error, 1)
	go func() { ended <- kubeadm.Run() }()
	var env string
	r.Eventually("kubeadm has written its files", func() error {
		text, err := os.ReadFile("/var/lib/kubelet/kubeadm-flags.env")
		_, env, _ = strings.Cut(strings.TrimSpace(string(text)), "=")
		return err
	})
	r.AddFlags("--bootstrap-kubeconfig="+bootstrap, "--kubeconfig="+kubeconfig, "--config=/var/lib/kubelet/config.yaml", "--cert-dir="+certs)
	r.AddFlags(strings.Fields(strings.Trim(env, `"`))...)
	r.Start()
	if err := <-ended; err != nil {
		r.t.Fatalf("kubeadm join: %v\n%s", err, &said)
	}
	r.created()
	r.is(v1.ConditionTrue)
	r.t.Logf("ready %s after kubeadm began, with the flags %s\n%s", time.Since(began).Round(time.Millisecond), env, &said)
	if _, err := os.Stat(bootstrap); err == nil {
		r.t.Error("kubeadm has left the bootstrap kubeconfig")
	}
}

// served is approved, with what is said before.
func (r *rig) served(was *x509.Certificate) *x509.Certificate {
	r.t.Helper()
	address := fmt.Sprint("127.0.0.1:", r.Port(2))
	if was == nil {
		if c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}); err == nil {
			c.Close()
			r.t.Error("the server has a certificate before one was approved")
		}
		r.Eventually("it is said what the certificate waits for", func() error {
			out, code := r.Deckhand("why")
			if code == 0 || !strings.Contains(out, "kubelet-server-current.pem, for") || !strings.Contains(out, "run: kubectl certificate approve node-csr-") {
				return fmt.Errorf("%d: %s", code, out)
			}
			return nil
		})
	}
	return r.approved(was)
}

// approved approves what the HTTPS server asks for, and returns what it shows then, which isn't what it was.
func (r *rig) approved(was *x509.Certificate) (now *x509.Certificate) {
	r.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(r.t, r.p.CA()))
	r.Eventually("the server shows a certificate that was approved", func() error {
		if err := r.p.ApproveServing(); err != nil {
			return err
		}
		var address string
		for _, a := range r.object().Status.Addresses {
			if a.Type == v1.NodeInternalIP {
				address = a.Address
			}
		}
		c, err := tls.Dial("tcp", net.JoinHostPort(address, fmt.Sprint(r.Port(2))), &tls.Config{RootCAs: roots, ServerName: address})
		if err != nil {
			return err
		}
		defer c.Close()
		if now = c.ConnectionState().PeerCertificates[0]; was != nil && now.Equal(was) {
			return fmt.Errorf("that of before, until %s", now.NotAfter)
		}
		return now.VerifyHostname(r.name)
	})
	return now
}

// private fails the test unless only their owner can read files.
func private(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// leaf is the first certificate of a file.
func leaf(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(read(t, path))
	if block == nil {
		t.Fatalf("%s has no certificate", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// credential is how the API server's audit log names a certificate.
func credential(c *x509.Certificate) string {
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(c.Raw))
}
