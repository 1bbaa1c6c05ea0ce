package cluster_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal/terminaltest"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// TestServer: the node's HTTPS server does for kubectl, and for those who ask it themselves, what the API server lets them do.
func TestServer(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	t.Run("node", func(t *testing.T) {
		r := join(t, p, binary, "serverTLSBootstrap: true\nauthorization: {webhook: {cacheAuthorizedTTL: 1ms, cacheUnauthorizedTTL: 1ms}}\n")
		r.Start()
		r.created()
		r.is(v1.ConditionTrue)
		r.approved(nil)
		t.Run("who may", r.whoMay)
		r.apply(podNamed("quiet", spec("[sleep, 1h]")))
		r.podReady("quiet")
		began := time.Now()
		quiet := r.kubectlOver(true, "logs", "-f", "quiet")
		if err := quiet.Start(); err != nil {
			t.Fatal(err)
		}
		t.Run("checkpoint", r.checkpoint)
		t.Run("logs", r.logs)
		scrapes := r.autoscaled()
		t.Run("streams", func(t *testing.T) { r.streams(t, quiet, began, scrapes) })
	})
	t.Run("without the API server", func(t *testing.T) { unreachable(t, p, binary) })
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

// relay is a way to the API server that can be cut.
type relay struct {
	net.Listener
	to string

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// newRelay relays until the test ends.
func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			running.Go(func() { r.join(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.cut(true)
		running.Wait()
	})
	return r
}

// cut cuts all connections, and those to come until it is undone.
func (r *relay) cut(now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = now
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

func (r *relay) join(c net.Conn) {
	defer c.Close()
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer server.Close()
	r.mu.Lock()
	if r.isCut {
		r.mu.Unlock()
		return
	}
	r.conns = append(r.conns, c, server)
	r.mu.Unlock()
	var there sync.WaitGroup
	there.Go(func() {
		_, _ = io.Copy(server, c) // until it is cut
		server.Close()
	})
	_, _ = io.Copy(c, server)
	c.Close()
	there.Wait()
}

// unreachable: while the API server can't be asked, what it has said counts on, and nobody else is let in.
func unreachable(t *testing.T, p *plane.Plane, binary string) {
	way := newRelay(t, strings.TrimPrefix(p.Server(), "https://"))
	text, err := os.ReadFile(p.Node(node.Name))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, bytes.ReplaceAll(text, []byte(p.Server()), []byte("https://"+way.Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	r := join(t, p, binary, "", "--kubeconfig", kubeconfig, "--anonymous-auth")
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	r.grant("away", "User", "away", "nodes/metrics, nodes/configz")
	r.grant("anybody", "Group", "system:unauthenticated", "nodes/configz")
	cert := pair(t, p.Issue("away", "away"))
	tell := func(when, path string, cert *tls.Certificate, token string, want int) {
		t.Helper()
		if code, text := r.asks(path, cert, token); code != want {
			t.Errorf("%s: %s: %d %.200s, want %d", when, path, code, text, want)
		}
	}
	tell("before", "/metrics", cert, "", 200)
	way.cut(true)
	tell("away", "/metrics", cert, "", 200)
	tell("not asked before", "/configz", cert, "", 500)
	tell("anonymous, who would be allowed", "/configz", nil, "", 500)
	tell("a token", "/configz", nil, "abc", 401)
	way.cut(false)
	r.Eventually("the API server is asked again", func() error {
		if code, text := r.asks("/configz", cert, ""); code != 200 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	tell("back", "/configz", nil, "", 200)
}

// rights of people and programs to subresources of nodes.
const rights = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: test-NAME}, rules: [{apiGroups: [""], resources: [RESOURCES], verbs: [VERBS]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: test-NAME}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-NAME}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: KIND, name: SUBJECT}]}
`

func (r *rig) grant(name, kind, subject, resources string, verbs ...string) {
	if verbs == nil {
		verbs = []string{"get"}
	}
	r.apply(strings.NewReplacer("NAME", name, "KIND", kind, "SUBJECT", subject, "RESOURCES", resources, "VERBS", strings.Join(verbs, ", ")).Replace(rights))
}

// asks asks the node itself, with a certificate or a token: for a path, or by another method than GET for one.
func (r *rig) asks(what string, cert *tls.Certificate, token string) (int, string) {
	r.t.Helper()
	conf := &tls.Config{InsecureSkipVerify: true} // it may have made its certificate itself
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	method, path, other := strings.Cut(what, " ")
	if !other {
		method, path = http.MethodGet, what
	}
	request, err := http.NewRequestWithContext(r.t.Context(), method, fmt.Sprintf("https://127.0.0.1:%d%s", r.Port(2), path), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Transport{TLSClientConfig: conf, DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func pair(t *testing.T, i plane.Issued) *tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(i.Cert, i.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

// forged is a certificate of an administrator that nobody has signed.
func forged(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// whoMay tries each endpoint as everybody, on the real API server's word.
func (r *rig) whoMay(t *testing.T) {
	r.grant("metrics", "User", "metrics", "nodes/metrics")
	r.grant("pods", "User", "pods", "nodes/pods, nodes/healthz, nodes/configz")
	r.grant("proxy", "Group", "operators", "nodes/proxy")
	r.grant("account", "User", "system:serviceaccount:default:scraper", "nodes/metrics, nodes/statusz")
	r.kubectl("create", "serviceaccount", "scraper")
	token := strings.TrimSpace(r.kubectl("create", "token", "scraper"))
	r.grant("hands", "User", "hands", "nodes/proxy", "create", "update")
	r.grant("archivist", "User", "archivist", "nodes/checkpoint", "create")
	endpoints := []string{
		"/healthz", "/healthz/ping", "/pods", "/runningpods/", "/configz", "/flagz", "/metrics", "/statusz", "/containerLogs/default/none/c", "/debug/pprof/", "/elsewhere", "/logs/", "/logs/?query=kubelet",
		"POST /exec/default/none/c?command=ls&output=1", "POST /attach/default/none/c?output=1", "POST /portForward/default/none", "POST /run/default/none/c?cmd=ls", "PUT /debug/flags/v", "POST /checkpoint/default/none/c",
	}
	all := func(code int) []int {
		return slices.Repeat([]int{code}, len(endpoints))
	}
	// A right that nobody has is refused; what isn't there, is switched off or makes no sense is only told to those who have the right.
	gets := func(codes ...int) []int { return append(codes, 403, 403, 403, 403, 403, 403) }
	everything := []int{200, 200, 200, 200, 200, 200, 200, 200, 404, 200, 404, 200, 405, 404, 404, 404, 404, 400, 404}
	for _, c := range []struct {
		name  string
		cert  *tls.Certificate
		token string
		want  []int
	}{
		{"nobody", nil, "", all(401)},
		{"a forged certificate", forged(t), "", all(401)},
		{"an expired certificate", pair(t, r.p.IssueUntil(time.Now().Add(-time.Minute), "gone", "gone", "system:masters")), "", all(401)},
		{"a token of nobody's", nil, token + "x", all(401)},
		{"without rights", pair(t, r.p.Issue("viewer", "viewer", "viewers")), "", all(403)},
		{"metrics", pair(t, r.p.Issue("metrics", "metrics")), "", gets(403, 403, 403, 403, 403, 403, 200, 403, 403, 403, 403, 403, 403)},
		{"pods", pair(t, r.p.Issue("pods", "pods")), "", gets(200, 200, 200, 200, 200, 200, 403, 403, 403, 403, 403, 403, 403)},
		{"proxy", pair(t, r.p.Issue("op", "op", "operators")), "", gets(200, 200, 200, 200, 200, 200, 403, 403, 404, 200, 404, 403, 403)},
		{"a service account", nil, token, gets(403, 403, 403, 403, 403, 403, 200, 200, 403, 403, 403, 403, 403)},
		{"hands", pair(t, r.p.Issue("hands", "hands")), "", append(slices.Repeat([]int{403}, 13), 404, 404, 404, 404, 400, 403)},
		{"an archivist", pair(t, r.p.Issue("archivist", "archivist")), "", append(slices.Repeat([]int{403}, 18), 404)},
		{"an administrator", pair(t, r.p.Issue("root", "root", "system:masters")), "", everything},
		{"the API server", pair(t, plane.Issued{Cert: strings.TrimSuffix(r.p.CA(), "ca.crt") + "kubelet-client.crt", Key: strings.TrimSuffix(r.p.CA(), "ca.crt") + "kubelet-client.key"}), "", everything},
	} {
		for i, path := range endpoints {
			if code, text := r.asks(path, c.cert, c.token); code != c.want[i] {
				t.Errorf("%s: %s: %d %.200s, want %d", c.name, path, code, text, c.want[i])
			}
		}
	}
	// Nothing is remembered here: a right that is taken away is gone.
	op := pair(t, r.p.Issue("op2", "op2", "operators"))
	if code, text := r.asks("/pods", op, ""); code != 200 {
		t.Errorf("before: %d %s", code, text)
	}
	r.kubectl("delete", "clusterrolebinding", "test-proxy")
	r.Eventually("the right is gone", func() error {
		if code, text := r.asks("/pods", op, ""); code != 403 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

// checkpoint has the runtime write all that a container is, or says what criu, which does it, says here.
func (r *rig) checkpoint(t *testing.T) {
	code, text := r.asks("POST /checkpoint/default/quiet/c", pair(t, r.p.Issue("keeper", "keeper", "system:masters")), "")
	if err := exec.CommandContext(t.Context(), "criu", "check").Run(); err != nil {
		if code != http.StatusInternalServerError || !strings.Contains(text, "criu") || strings.Contains(text, "disabled") {
			t.Errorf("%d %s, though criu isn't there, or isn't for this kernel: %v", code, text, err)
		}
		return
	}
	var answer struct{ Items []string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != http.StatusOK || len(answer.Items) != 1 {
		t.Fatalf("%d %s, %v", code, text, err)
	}
	out, err := exec.Command("tar", "-tf", answer.Items[0]).Output()
	if info, errStat := os.Stat(answer.Items[0]); err != nil || errStat != nil || info.Mode() != 0o600 || !strings.Contains(string(out), "checkpoint/pages-1.img\n") {
		t.Errorf("%v, %v %v, with %s", err, info, errStat, out)
	}
}

// logs has kubectl show logs, with its words where there are none.
func (r *rig) logs(t *testing.T) {
	// All on one stream, so that there is one order.
	r.apply(manifest("v1", "Pod", `name: done, annotations: {lines: "line 1\nline 2\nline 3\nline 4\nline 5\n"}`, spec("[cat, /v/lines], volumeMounts: [{name: v, mountPath: /v}]",
		"restartPolicy: Never, volumes: [{name: v, downwardAPI: {items: [{path: lines, fieldRef: {fieldPath: 'metadata.annotations[''lines'']'}}]}}],")))
	r.apply(podNamed("talker", spec("[logs, '1000000', 100ms]")))
	r.apply(podNamed("again", spec("[exit, '1', 100ms]")))
	r.apply(podNamed("waiting", spec("[serve]", "volumes: [{name: v, configMap: {name: missing}}],")))
	r.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=60s")
	r.podReady("talker")
	all := "line 1\nline 2\nline 3\nline 4\nline 5\n"
	for _, c := range []struct{ args, want string }{
		{"logs done", all},
		{"logs done --tail=2", "line 4\nline 5\n"},
		{"logs done --limit-bytes=8", "line 1\nl"},
		{"logs done --since=1h", all},
		{"logs done --since-time=2100-01-01T00:00:00Z", ""},
		{"logs -f done", all},
		{"logs done -c c --prefix --tail=1", "[pod/done/c] line 5\n"},
		{"get --raw /api/v1/nodes/node1:PORT/proxy/containerLogs/default/done/c?tailLines=1", "line 5\n"},
		{"get --raw /api/v1/nodes/node1/proxy/containerLogs/default/done/c?tailLines=1", "line 5\n"},
	} {
		if got := r.kubectl(strings.Fields(strings.ReplaceAll(c.args, "PORT", fmt.Sprint(r.Port(2))))...); got != c.want {
			t.Errorf("kubectl %s: %q, want %q", c.args, got, c.want)
		}
	}
	if got := r.kubectl("logs", "done", "--timestamps", "--tail=1"); !strings.HasSuffix(got, "Z line 5\n") {
		t.Errorf("with timestamps: %q", got)
	}
	r.Eventually("the pod was restarted", func() error {
		if p := r.pod("again"); len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("%+v", p.Status.ContainerStatuses)
		}
		return nil
	})
	if got := r.kubectl("logs", "again", "--previous"); got != "" {
		t.Errorf("the previous instance: %q", got)
	}
	for args, want := range map[string]string{
		"logs done --previous":  `previous terminated container "c" in pod "done" not found`,
		"logs waiting":          `container "c" in pod "waiting" is waiting to start: ContainerCreating`,
		"logs talker -c other":  "container other is not valid for pod talker",
		"logs nobody --tail=10": `pods "nobody" not found`,
	} {
		if out, err := r.p.Kubectl("", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("kubectl %s: %q %v, want %s", args, out, err, want)
		}
	}
	// A log is followed until its container ends.
	follow := exec.Command(r.p.KubectlProgram(), "--kubeconfig="+r.p.Admin(), "logs", "-f", "talker", "--tail=1")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 10 {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), "line ") {
			t.Fatalf("followed: %q, %v", lines.Text(), lines.Err())
		}
	}
	r.kubectl("delete", "pod", "talker", "again", "done", "waiting", "--wait=false")
	for lines.Scan() {
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("the end of a followed log: %v", err)
	}
}

// box is a pod that has the machine's programs.
var box = podNamed("box", fmt.Sprintf(`{automountServiceAccountToken: false, terminationGracePeriodSeconds: 1, volumes: [{name: usr, hostPath: {path: /usr}}, {name: tmp, emptyDir: {}}],
  containers: [{name: c, image: %s, env: [{name: PATH, value: /usr/bin}], volumeMounts: [{name: tmp, mountPath: /tmp}, {name: usr, mountPath: /usr, readOnly: true},
    {name: usr, mountPath: /lib, subPath: lib, readOnly: true}, {name: usr, mountPath: /lib64, subPath: lib64, readOnly: true}, {name: usr, mountPath: /bin, subPath: bin, readOnly: true}]},
   {name: cat, image: %[1]s, command: [/usr/bin/cat], stdin: true, volumeMounts: [{name: usr, mountPath: /usr, readOnly: true}, {name: usr, mountPath: /lib, subPath: lib, readOnly: true}, {name: usr, mountPath: /lib64, subPath: lib64, readOnly: true}]}]}`, node.Image))

// kubectlOver is kubectl with streams over SPDY, or over WebSockets.
func (r *rig) kubectlOver(webSockets bool, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), r.p.KubectlProgram(), append([]string{"--kubeconfig=" + r.p.Admin()}, args...)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=%t", webSockets), fmt.Sprintf("KUBECTL_PORT_FORWARD_WEBSOCKETS=%t", webSockets))
	return cmd
}

// streams has kubectl run commands, copy files and forward ports.
func (r *rig) streams(t *testing.T, quiet *exec.Cmd, began time.Time, scrapes []plane.Scrape) {
	r.apply(box)
	r.podReady("box")
	for _, webSockets := range []bool{false, true} {
		t.Run(fmt.Sprintf("WebSockets %t", webSockets), func(t *testing.T) { r.commands(t, webSockets) })
	}
	// A pod of the API server has the commands on its machine, too.
	if out, code := r.Deckhand("exec", "box", "-c", "c", "--", "sh", "-c", "echo here; exit 3"); out != "here\ncommand terminated with exit code 3\n" || code != 3 {
		t.Errorf("deckhand exec: %q, exit code %d", out, code)
	}
	t.Run("on a terminal", r.onATerminal)
	t.Run("debug", r.debug)
	for _, webSockets := range []bool{false, true} {
		t.Run(fmt.Sprintf("many connections, WebSockets %t", webSockets), func(t *testing.T) { r.manyConnections(t, webSockets) })
	}
	t.Run("metrics-server", func(t *testing.T) { r.with(t).measured(scrapes) })
	t.Run("a quiet one", func(t *testing.T) {
		time.Sleep(time.Until(began.Add(35 * time.Second))) // longer than any answer may take that isn't a stream
		if err := quiet.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("a log that nothing comes of isn't followed any more: %v", err)
		}
		r.kubectl("delete", "pod", "quiet", "--wait=false")
		if err := quiet.Wait(); err != nil {
			t.Errorf("the end of a followed log: %v", err)
		}
	})
	t.Run("the agent ends", r.streamsEnd)
}

func (r *rig) commands(t *testing.T, webSockets bool) {
	run := func(input io.Reader, args ...string) (string, string, error) {
		cmd := r.kubectlOver(webSockets, args...)
		var out, errs bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, &errs
		err := cmd.Run()
		return out.String(), errs.String(), err
	}
	if out, errs, err := run(nil, "exec", "box", "-c", "c", "--", "sh", "-c", "echo out; echo err >&2; exit 7"); out != "out\n" || !strings.HasPrefix(errs, "err\ncommand terminated with exit code 7") || err == nil || err.Error() != "exit status 7" {
		t.Errorf("exec: %q, %q, %v", out, errs, err)
	}
	if out, errs, err := run(strings.NewReader("one\ntwo\n"), "exec", "-i", "box", "-c", "c", "--", "sort", "-r"); out != "two\none\n" || err != nil {
		t.Errorf("exec -i: %q, %q, %v", out, errs, err)
	}
	// What goes in, half-closed, and comes out again is the same.
	size := int64(*streamed) << 20
	sent, got := sha256.New(), sha256.New()
	cmd := r.kubectlOver(webSockets, "exec", "-i", "box", "-c", "c", "--", "cat")
	cmd.Stdin = io.TeeReader(io.LimitReader(rand.Reader, size), sent)
	cmd.Stdout, cmd.Stderr = got, os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes there and back: %v", size, err)
	}
	t.Logf("%d MiB there and back in %s", size>>20, time.Since(began).Round(time.Millisecond))

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{filepath.Join(dir, "file"), "box:/tmp/copy"}, {"box:/tmp/copy", filepath.Join(dir, "back")}} {
		if out, errs, err := run(nil, append([]string{"cp", "-c", "c"}, args...)...); err != nil {
			t.Errorf("cp %v: %s %s %v", args, out, errs, err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "back")); string(text) != "content" {
		t.Errorf("copied: %q, %v", text, err)
	}
	if out, errs, err := run(nil, "exec", "box", "-c", "none", "--", "true"); err == nil || !strings.Contains(errs, "container none is not valid for pod box") {
		t.Errorf("exec in no container: %s %s %v", out, errs, err)
	}
	if out, errs, err := run(nil, "exec", "box", "-c", "c", "--", "no-such-program"); err == nil || !strings.Contains(errs, "no-such-program") {
		t.Errorf("exec of no program: %s %s %v", out, errs, err)
	}
	t.Run("attach", func(t *testing.T) {
		cmd := r.kubectlOver(webSockets, "attach", "-i", "box", "-c", "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "hello\n" {
			t.Errorf("attached: %q, %v", line, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	t.Run("port-forward", func(t *testing.T) {
		cmd := r.kubectlOver(webSockets, "port-forward", "box", ":8080")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait() // it was killed
		}()
		line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:40001 -> 8080
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
		for range 20 {
			response, err := client.Get("http://" + strings.Fields(line)[2] + "/")
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", line, response.Status)
			}
		}
	})
	if !webSockets {
		return
	}
	// The node declares that it takes them, so the API server doesn't translate them.
	metrics := r.kubectl("get", "--raw", "/metrics")
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		if passed := fmt.Sprintf(`apiserver_websocket_streaming_requests_total{proxy_type="proxied_to_kubelet",subresource=%q}`, subresource); !strings.Contains(metrics, passed) {
			t.Errorf("WebSockets of %s didn't come to the node as such", subresource)
		}
	}
	if strings.Contains(metrics, `proxy_type="translated_at_apiserver"`) {
		t.Error("the API server translates WebSockets for the node")
	}
}

// onATerminal: sizes, signals and exit codes pass, and the terminal is afterwards as it was.
func (r *rig) onATerminal(t *testing.T) {
	console := terminaltest.Open(t, 24, 100)
	cmd := r.kubectlOver(true, "exec", "-it", "box", "-c", "c", "--", "sh")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = console.Terminal, console.Terminal, console.Terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	console.Shell()
	var failed *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &failed) || failed.ExitCode() != 5 {
		t.Errorf("exit code: %v", err)
	}
	console.Restored()
}

// debug has kubectl run pods and ephemeral containers, and attach to them.
func (r *rig) debug(t *testing.T) {
	for name, args := range map[string][]string{
		"run":   {"run", "once", "-i", "--rm", "--restart=Never", "--image=" + node.Image, "--overrides={\"spec\":{\"automountServiceAccountToken\":false}}", "--", "logs", "3", "300ms"},
		"debug": {"debug", "box", "-i", "--image=" + node.Image, "-c", "dbg", "--", "/web", "logs", "3", "300ms"},
	} {
		cmd := r.kubectlOver(true, args...)
		in, err := cmd.StdinPipe() // the end of the input would end the output, too
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput() // it attaches, or shows the log of what has ended before
		in.Close()
		if err != nil || !strings.Contains(string(out), "line 3") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// manyConnections: those of one forward leave nothing behind in the agent.
func (r *rig) manyConnections(t *testing.T, webSockets bool) {
	before, goroutines := r.descriptors(), r.goroutines()
	cmd := r.kubectlOver(webSockets, "port-forward", "box", ":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + strings.Fields(line)[2] + "/"
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	var asking, printing sync.WaitGroup
	printing.Go(func() { _, _ = io.Copy(io.Discard, out) }) // kubectl tells of each connection, and waits until that is read
	began := time.Now()
	for range 8 {
		asking.Go(func() {
			for range *forwarded / 8 {
				response, err := client.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			}
		})
	}
	asking.Wait()
	t.Logf("%d connections in %s; the agent has %d descriptors and %d goroutines, %d and %d before", *forwarded, time.Since(began).Round(time.Millisecond), r.descriptors(), r.goroutines(), before, goroutines)
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	printing.Wait()
	_ = cmd.Wait() // it was killed
	r.Eventually("nothing is left", func() error {
		if now := r.descriptors(); now > before+4 { // connections of the API server, say
			return fmt.Errorf("%d descriptors, and %d before", now, before)
		}
		if now := r.goroutines(); now > goroutines+10 {
			return fmt.Errorf("%d goroutines, and %d before", now, goroutines)
		}
		return nil
	})
}

var (
	forwarded = flag.Int("forwarded", 400, "how many connections one forward carries, one after the other; 10000 for all that it has to")
	streamed  = flag.Int("streamed", 64, "how many MiB go into a command and come out again; 1024 for all that have to")
)

func (r *rig) goroutines() (n int) {
	r.t.Helper()
	if _, err := fmt.Sscanf(r.kubectl("get", "--raw", "/api/v1/nodes/"+node.Name+"/proxy/debug/pprof/goroutine?debug=1"), "goroutine profile: total %d", &n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) descriptors() int {
	r.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.PID()))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(open)
}

// streamsEnd: whoever is connected when the agent stops is told at once, and nothing is left of it; the pod runs on.
func (r *rig) streamsEnd(t *testing.T) {
	var clients []*exec.Cmd
	for i := range 10 {
		cmd := r.kubectlOver(i%2 == 0, "exec", "-i", "box", "-c", "c", "--", "sh", "-c", "echo here; cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "here\n" {
			t.Fatalf("%q, %v", line, err)
		}
		clients = append(clients, cmd)
	}
	instances := r.Instances()
	began := time.Now()
	r.Stop()
	t.Logf("stopped in %s with %d streams", time.Since(began).Round(time.Millisecond), len(clients))
	for _, cmd := range clients {
		_ = cmd.Wait() // kubectl can't tell a stream that was cut from one that has ended
	}
	r.Start()
	r.is(v1.ConditionTrue)
	r.podReady("box")
	if now := r.Instances(); !reflect.DeepEqual(now, instances) {
		t.Errorf("containers %v, before %v", now, instances)
	}
	// The runtime ends what nobody's input comes to any more.
	r.Eventually("no command runs on", func() error {
		out, err := r.p.Kubectl("", "exec", "box", "-c", "c", "--", "sh", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
		if strings.Contains(out, "echo here; cat") {
			return fmt.Errorf("%s", out)
		}
		return err // it takes the new agent a moment to know its pods
	})
	r.kubectl("delete", "pod", "box", "--wait=false")
}
