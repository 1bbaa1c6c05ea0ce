package apiclient

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"go.uber.org/goleak"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t}
	cert, key := a.issue(func(c *x509.Certificate) {
		c.Subject.CommonName, c.IsCA, c.BasicConstraintsValid, c.KeyUsage = "test", true, true, x509.KeyUsageCertSign
	})
	a.pem = cert
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(crypto.Signer)
	return a
}

// issue makes a certificate for 127.0.0.1 and its key, in PEM.
func (a *authority) issue(change func(*x509.Certificate)) (cert, key []byte) {
	a.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(c)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, own
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, own.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

func expired(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }

// server is an HTTPS server, on loopback or on pipes.
type server struct {
	t    testing.TB
	ca   *authority
	url  string
	dial func(context.Context, string, string) (net.Conn, error)
	// calls counts requests, dials connections.
	calls, dials atomic.Int32
	// handle answers.
	handle atomic.Pointer[http.HandlerFunc]
}

// newServer starts a server; its certificate may be changed.
func newServer(t testing.TB, l net.Listener, change func(*x509.Certificate), handle http.HandlerFunc) *server {
	t.Helper()
	s := &server{t: t, ca: newAuthority(t), url: "https://127.0.0.1:6443"}
	s.handle.Store(&handle)
	cert, key := s.ca.issue(change)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := l.(*pipes); ok {
		s.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			s.dials.Add(1)
			return p.dial(ctx)
		}
	} else {
		s.url = "https://" + l.Addr().String()
		s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			s.dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}
	clients := x509.NewCertPool()
	clients.AddCert(s.ca.cert)
	web := &http.Server{
		// A later TLS lets clients write before it has looked at their certificates, and they may see a cut connection.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.VerifyClientCertIfGiven, MaxVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.calls.Add(1)
			(*s.handle.Load())(w, r)
		}),
	}
	var running sync.WaitGroup
	running.Go(func() { _ = web.ServeTLS(l, "", "") }) // its end is ours
	t.Cleanup(func() {
		_ = web.Close()
		running.Wait()
	})
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pipes is a network in memory, for virtual time.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
	// dead has what clients send vanish from now on.
	dead atomic.Bool
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return &mortal{Conn: client, dead: &p.dead}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.ended) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

// mortal is a connection whose other end may vanish without a word.
type mortal struct {
	net.Conn
	dead *atomic.Bool
}

func (m *mortal) Write(b []byte) (int, error) {
	if m.dead.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// who is how a kubeconfig names the node: fields of its user.
func (s *server) kubeconfig(t testing.TB, who string) string {
	t.Helper()
	return kubeconfig(t, fmt.Sprintf("server: %s, certificate-authority-data: %s", s.url, base64.StdEncoding.EncodeToString(s.ca.pem)), who)
}

func kubeconfig(t testing.TB, cluster, who string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "kubeconfig"), "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"contexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {"+cluster+"}}]\nusers: [{name: u, user: {"+who+"}}]\n")
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// counts is a Meter.
type counts struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counts) add(what ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[strings.TrimSpace(fmt.Sprintln(what...))]++
}

func (c *counts) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[what]
}

func (c *counts) Requested(code, method, _ string) { c.add("requested", code, method) }
func (c *counts) Took(verb, _ string, _ time.Duration, sent, received int) {
	c.add("took", verb, sent > 0, received > 0)
}
func (c *counts) Waited(verb, _ string, _ time.Duration) { c.add("waited", verb) }
func (c *counts) Retried(code, verb, _ string)           { c.add("retried", code, verb) }
func (c *counts) PluginCalled(code int, status string)   { c.add("plugin", code, status) }
func (c *counts) TransportMade()                         { c.add("transport") }

// logged is a log that can be read.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// count counts the lines that have a text.
func (l *logged) count(text string) int {
	n := 0
	for line := range strings.SplitSeq(l.String(), "\n") {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

type rigged struct {
	*Client
	log   *logged
	meter *counts
}

// newClient makes a client without limits; Run isn't called.
func newClient(t testing.TB, path string, change func(*Config)) *rigged {
	t.Helper()
	r := &rigged{log: &logged{}, meter: &counts{}}
	conf := Config{Kubeconfig: path, Files: filewatch.New(filewatch.Every, logr.Discard()), ContentType: kruntime.ContentTypeJSON, UserAgent: UserAgent("v1.36.3-deckhand", "0123456789ab"), LeaseDuration: 40 * time.Second, Meter: r.meter,
		Log: funcr.New(func(prefix, args string) {
			r.log.mu.Lock()
			defer r.log.mu.Unlock()
			r.log.lines = append(r.log.lines, prefix+args)
		}, funcr.Options{Verbosity: 10})}
	if change != nil {
		change(&conf)
	}
	c, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	r.Client = c
	return r
}

// loaded makes a client that has read its kubeconfig once; the end of the test ends it.
func loaded(t testing.TB, path string, change func(*Config)) *rigged {
	t.Helper()
	r := newClient(t, path, change)
	_, _ = r.load() // what is wrong is told by calls
	t.Cleanup(r.end)
	return r
}

// run runs a client until the end of the test.
func (r *rigged) run(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// get gets node n1.
func (r *rigged) get(ctx context.Context, class Class) error {
	return r.Get(ctx, class, Nodes, "", "n1", &v1.Node{})
}

// node is a node in JSON.
func node(version string) string {
	return fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","resourceVersion":%q}}`, version)
}

// answer answers in JSON, unless the text isn't JSON.
func answer(code int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// refusal is a Status.
func refusal(code int, reason metav1.StatusReason) http.HandlerFunc {
	return answer(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no: %s","reason":%q,"code":%d}`, reason, reason, code))
}

// html answers as a web server or a load balancer does.
func html(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html>Welcome</html>")
	}
}

// sight records what a watch tells.
type sight struct{ told chan string }

func newSight() *sight { return &sight{make(chan string, 1000)} }

func (s *sight) Listed(all List) {
	s.told <- fmt.Sprintf("listed %d at %s", len(all.Objects), all.Version)
	for _, m := range all.Malformed {
		s.Malformed(m)
	}
}

func (s *sight) Malformed(m Malformed) {
	s.told <- fmt.Sprintf("malformed %s %s, deleted: %t", m.Name, m.UID, m.Deleted)
}

func (s *sight) Changed(kind watch.EventType, o kruntime.Object) {
	s.told <- fmt.Sprintf("%s %s at %s", strings.ToLower(string(kind)), o.(metav1.Object).GetName(), o.(metav1.Object).GetResourceVersion())
}

func (s *sight) Away(err error) {
	if err == nil {
		s.told <- "back"
		return
	}
	s.told <- "away: " + err.Error()
}
