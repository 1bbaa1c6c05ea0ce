package secure

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/deckhand-node/deckhand/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs certificates.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB, name string) *authority {
	a := &authority{t: t}
	der := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	a.key = der.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign makes a certificate; by is nil for one that signs itself.
func (a *authority) sign(template, by *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-2 * time.Hour)
	}
	signer := key
	if by == nil {
		by = template
	} else {
		signer = a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) client(name string, until time.Time, use x509.ExtKeyUsage) *tls.Certificate {
	c := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{use}}, a.cert)
	return &c
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// quiet counts nothing.
type quiet struct{}

func (quiet) StartRequest(string, string, bool) func() { return func() {} }

// run runs the server until the end of the test, and returns where. It serves /healthz and /configz, or a table.
func run(t *testing.T, cert *Certificate, access *Access, table ...Route) string {
	t.Helper()
	url, _ := runUntil(t, cert, access, table...)
	return url
}

// runUntil is run until stop is called, at the latest.
func runUntil(t *testing.T, cert *Certificate, access *Access, table ...Route) (url string, stop func()) {
	t.Helper()
	if table == nil {
		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		table = []Route{
			{Methods: []string{"GET"}, Path: "/healthz", Subresources: []string{"healthz", "proxy"}, Handler: ok},
			{Methods: []string{"GET"}, Path: "/configz", Subresources: []string{"configz", "proxy"}, Handler: ok},
		}
	}
	l, err := Listener(Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), Certificate: cert, Access: access, Routes: table, MinVersion: "VersionTLS12", Meter: quiet{}, Log: testr.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(testr.New(t), l)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	<-s.Ready()
	return "https://" + s.Addr("https").String(), stop
}

// insecure doesn't look at what a server shows.
var insecure = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}

// get asks with a client certificate, nil for none, and returns the status and the answer.
func get(t *testing.T, url string, client *tls.Certificate, header ...string) (int, string, *x509.Certificate) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // what the server shows is looked at
	if client != nil {
		config.Certificates = []tls.Certificate{*client}
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(header) > 0 {
		request.Header.Set("Authorization", header[0])
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), response.TLS.PeerCertificates[0]
}

func TestWhoMay(t *testing.T) {
	log := testr.New(t)
	good, other := newAuthority(t, "good"), newAuthority(t, "other")
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	write(t, ca, good.pem())
	later := time.Now().Add(time.Hour)
	admin := good.client("admin", later, x509.ExtKeyUsageClientAuth)
	cert := func() *Certificate { return NewCertificate(CertConfig{Dir: dir, Name: "node1", Log: log}) }
	allow := run(t, cert(), NewAccess(AccessConfig{ClientCAFile: ca, AlwaysAllow: true, Log: log}))
	open := run(t, cert(), NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: log}))
	ask := run(t, cert(), NewAccess(AccessConfig{ClientCAFile: ca, Anonymous: true, Log: log}))
	for name, c := range map[string]struct {
		url    string
		client *tls.Certificate
		header []string
		code   int
		text   string
	}{
		"a client":            {url: allow + "/healthz", client: admin, code: 200, text: "ok"},
		"a client's configz":  {url: allow + "/configz", client: admin, code: 200, text: "ok"},
		"what isn't there":    {url: allow + "/pods", client: admin, code: 404},
		"nobody":              {url: allow + "/healthz", code: 401, text: "Unauthorized"},
		"another authority's": {url: allow + "/healthz", client: other.client("admin", later, x509.ExtKeyUsageClientAuth), code: 401},
		"expired":             {url: allow + "/healthz", client: good.client("admin", time.Now().Add(-time.Minute), x509.ExtKeyUsageClientAuth), code: 401},
		"a server's":          {url: allow + "/healthz", client: good.client("admin", later, x509.ExtKeyUsageServerAuth), code: 401},
		"without a name":      {url: allow + "/healthz", client: good.client("", later, x509.ExtKeyUsageClientAuth), code: 401},
		"anonymous":           {url: open + "/healthz", code: 200},
		// Kubernetes' node suite shows its token to a kubelet that lets everybody in.
		"a certificate nobody checks":   {url: open + "/healthz", client: admin, code: 200},
		"a token nobody checks":         {url: open + "/healthz", header: []string{"Bearer abc"}, code: 200},
		"nobody says what a client may": {url: ask + "/configz", client: admin, code: 403, text: "Forbidden (user=admin, verb=get, resource=nodes, subresource(s)=[configz proxy])"},
		"nobody says what anybody may":  {url: ask + "/healthz", code: 403, text: "user=system:anonymous"},
		"what isn't there is no secret": {url: ask + "/exec/a/b", code: 403, text: "[proxy]"},
	} {
		if code, text, _ := get(t, c.url, c.client, c.header...); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s, want %d %s", name, code, text, c.code, c.text)
		}
	}
	// Another authority takes the place of the first, without a restart; half a file changes nothing.
	write(t, ca, append([]byte("# changed\n"), other.pem()...))
	if code, _, _ := get(t, allow+"/healthz", admin); code != 401 {
		t.Errorf("a client of the old authority: %d", code)
	}
	write(t, ca, []byte("-----BEGIN"))
	if code, _, _ := get(t, allow+"/healthz", other.client("admin", later, x509.ExtKeyUsageClientAuth)); code != 200 {
		t.Errorf("while the file is broken: %d", code)
	}
}

func TestOwnCertificate(t *testing.T) {
	dir := t.TempDir()
	conf := CertConfig{Dir: dir, Name: "node1", IPs: []net.IP{net.IPv4(192, 0, 2, 1)}, Log: testr.New(t)}
	access := NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)})
	shown := func() *x509.Certificate {
		t.Helper()
		_, _, c := get(t, run(t, NewCertificate(conf), access)+"/healthz", nil)
		return c
	}
	first := shown()
	if err := first.VerifyHostname("node1"); err != nil {
		t.Error(err)
	}
	if err := first.VerifyHostname("192.0.2.1"); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, ownKey)); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
	if again := shown(); !again.Equal(first) {
		t.Error("another start has another certificate")
	}
	write(t, filepath.Join(dir, ownCert), []byte("broken"))
	if made := shown(); made.Equal(first) {
		t.Error("a broken certificate is used")
	}
	a := newAuthority(t, "old")
	old := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "node1"}, NotAfter: time.Now().Add(ownRenewal / 2)}, nil)
	writePair(t, filepath.Join(dir, ownCert), filepath.Join(dir, ownKey), old)
	if made := shown(); time.Until(made.NotAfter) < ownRenewal {
		t.Error("a certificate that expires soon isn't made again")
	}
	early := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "node1"}, NotBefore: time.Now().Add(time.Hour),
		NotAfter: time.Now().Add(2 * ownRenewal)}, nil)
	writePair(t, filepath.Join(dir, ownCert), filepath.Join(dir, ownKey), early)
	if made := shown(); made.NotBefore.After(time.Now()) {
		t.Error("a certificate that isn't valid yet, as after the clock was set back, isn't made again")
	}
}

func writePair(t *testing.T, cert, key string, pair tls.Certificate) {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// TestGivenCertificate: it is followed while the server runs; a pair that doesn't fit isn't taken.
func TestGivenCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	pair := func(name string) tls.Certificate {
		return newAuthority(t, name).sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}, nil)
	}
	writePair(t, cert, key, pair("one"))
	url := run(t, NewCertificate(CertConfig{CertFile: cert, KeyFile: key, Log: testr.New(t)}), NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)}),
		Route{Methods: []string{"GET"}, Path: "/healthz", Subresources: []string{"proxy"}, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})},
		Route{Methods: []string{"GET"}, Path: "/echo", Subresources: []string{"proxy"}, Stream: Always, Handler: http.HandlerFunc(echo)})
	stream, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := io.WriteString(stream, "GET /echo HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for step, c := range []struct {
		change func()
		want   string
	}{
		{func() {}, "one"},
		{func() { writePair(t, cert, key, pair("second")) }, "second"},
		{func() { write(t, key, []byte("no key")) }, "second"},
		{func() { os.Remove(cert) }, "second"},
		{func() { writePair(t, cert, key, pair("the third")) }, "the third"},
	} {
		c.change()
		if _, _, shown := get(t, url+"/healthz", nil); shown.Subject.CommonName != c.want {
			t.Errorf("step %d: %s, want %s", step, shown.Subject.CommonName, c.want)
		}
		got := make([]byte, len("hello"))
		if _, err := io.WriteString(stream, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(stream, got); err != nil || string(got) != "hello" {
			t.Fatalf("step %d: a stream that began before says %q, %v", step, got, err)
		}
	}
}

// echo takes over the connection, and says again what it is told.
func echo(w http.ResponseWriter, _ *http.Request) {
	c, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	_, _ = io.Copy(c, in) // until the client leaves
}

// TestWhatIsSpoken: nothing but what the configuration allows.
func TestWhatIsSpoken(t *testing.T) {
	for name, c := range map[string]struct {
		server Config
		client *tls.Config
		speaks bool
	}{
		"the suite":                           {Config{MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}}, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, true},
		"another suite":                       {Config{MinVersion: "VersionTLS12", CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}}, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}, false},
		"the curve":                           {Config{MinVersion: "VersionTLS12", Curves: []int32{int32(tls.CurveP384)}}, &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}, true},
		"another curve":                       {Config{MinVersion: "VersionTLS12", Curves: []int32{int32(tls.CurveP384)}}, &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}, false},
		"authenticated encryption by default": {Config{}, only(tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384), true},
		"and the other one":                   {Config{}, only(tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256), true},
		"no CBC by default":                   {Config{}, only(tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA), false},
		"CBC that was asked for":              {Config{CipherSuites: []string{"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}}, only(tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA), true},
		"an old version that was asked for":   {Config{MinVersion: "VersionTLS10"}, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, true},
		"no old version by default":           {Config{}, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"the version":                         {Config{MinVersion: "VersionTLS13"}, &tls.Config{}, true},
		"another version":                     {Config{MinVersion: "VersionTLS13"}, &tls.Config{MaxVersion: tls.VersionTLS12}, false},
	} {
		c.server.Certificate, c.server.Access, c.server.Log = NewCertificate(CertConfig{Dir: t.TempDir(), Name: "node1", Log: testr.New(t)}), NewAccess(AccessConfig{AlwaysAllow: true, Anonymous: true, Log: testr.New(t)}), testr.New(t)
		l, err := Listener(c.server)
		if err != nil {
			t.Fatal(err)
		}
		l.Load()
		near, far := net.Pipe()
		c.client.InsecureSkipVerify = true
		var serving sync.WaitGroup
		serving.Go(func() {
			_ = tls.Server(far, l.TLS).Handshake() // the client says how that went
			far.Close()
		})
		if err := tls.Client(near, c.client).Handshake(); (err == nil) != c.speaks {
			t.Errorf("%s: %v", name, err)
		}
		near.Close()
		serving.Wait()
	}
}

// only is a client of TLS 1.2 with these suites.
func only(suites ...uint16) *tls.Config {
	return &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: suites}
}

// TestOwnCertificateIsNoAuthority: it vouches for this node and for nothing else; one of an older version, which could, is made again.
func TestOwnCertificateIsNoAuthority(t *testing.T) {
	dir := t.TempDir()
	write := func(change func(*x509.Certificate)) []byte {
		now := time.Now()
		older := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node1"}, DNSNames: []string{"node1"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownLifetime),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true}
		change(older)
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.CreateCertificate(rand.Reader, older, older, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		writePair(t, filepath.Join(dir, ownCert), filepath.Join(dir, ownKey), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private})
		return der
	}
	// What openssl req -x509 makes is a CA, too.
	given := write(func(c *x509.Certificate) { c.ExtKeyUsage, c.KeyUsage = nil, 0 })
	if c := NewCertificate(CertConfig{Dir: dir, Name: "node1", Log: testr.New(t)}); c.Load() != nil {
		t.Fatal(c.Load())
	} else if pair, err := c.current(); err != nil || !bytes.Equal(pair.Certificate[0], given) {
		t.Errorf("the administrator's own certificate was replaced (%v)", err)
	}
	write(func(*x509.Certificate) {})
	c := NewCertificate(CertConfig{Dir: dir, Name: "node1", IPs: []net.IP{net.IPv4(192, 0, 2, 1)}, Log: testr.New(t)})
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	pair, err := c.current()
	if err != nil {
		t.Fatal(err)
	}
	leaf := pair.Leaf
	if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature || !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("CA %v, key usage %b, extended %v", leaf.IsCA, leaf.KeyUsage, leaf.ExtKeyUsage)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(leaf)
	for _, name := range []string{"node1", "192.0.2.1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: name}); err != nil {
			t.Errorf("a client that trusts it can't use it for %s: %v", name, err)
		}
	}
}

// TestIssuedCertificate: what the cluster issues is shown from then on; before it is what is configured, or nothing.
func TestIssuedCertificate(t *testing.T) {
	dir := t.TempDir()
	pair := func(name string) *tls.Certificate {
		p := newAuthority(t, name).sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}, nil)
		return &p
	}
	cert, key := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key")
	writePair(t, cert, key, *pair("given"))
	var issued atomic.Pointer[tls.Certificate]
	access := NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)})
	given := run(t, NewCertificate(CertConfig{CertFile: cert, KeyFile: key, Issued: issued.Load, Log: testr.New(t)}), access)
	own := run(t, NewCertificate(CertConfig{Dir: dir, Name: "node1", Issued: issued.Load, Log: testr.New(t)}), access)
	if _, _, shown := get(t, given+"/healthz", nil); shown.Subject.CommonName != "given" {
		t.Errorf("shown is %s", shown.Subject)
	}
	if _, err := tls.Dial("tcp", strings.TrimPrefix(own, "https://"), &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("there is a certificate before the cluster has issued one")
	}
	for _, name := range []string{"first", "second"} {
		issued.Store(pair(name))
		for _, url := range []string{given, own} {
			if _, _, shown := get(t, url+"/healthz", nil); shown.Subject.CommonName != name {
				t.Errorf("shown is %s, want %s", shown.Subject, name)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ownKey)); err == nil {
		t.Error("one was made all the same")
	}
}

// TestBadFiles: what can't be used at the start is an error that names file and setting.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	write(t, broken, []byte("x"))
	for want, load := range map[string]func() error{
		"tlsCertFile " + broken: NewCertificate(CertConfig{CertFile: broken, KeyFile: broken}).Load,
		"authentication.x509.clientCAFile): " + broken + " has no certificate": NewAccess(AccessConfig{ClientCAFile: broken}).Load,
		"authentication.x509.clientCAFile): stat /none":                        NewAccess(AccessConfig{ClientCAFile: "/none"}).Load,
		"in " + broken + " (--cert-dir)":                                       NewCertificate(CertConfig{Dir: broken, Name: "a"}).Load,
	} {
		if err := load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestFilesComeLate: a server whose files can't be used at the start answers nobody, and everybody once they can.
func TestFilesComeLate(t *testing.T) {
	dir := t.TempDir()
	cert, key, ca := filepath.Join(dir, "a.crt"), filepath.Join(dir, "a.key"), filepath.Join(dir, "ca.crt")
	url := run(t, NewCertificate(CertConfig{CertFile: cert, KeyFile: key, Log: testr.New(t)}), NewAccess(AccessConfig{ClientCAFile: ca, AlwaysAllow: true, Log: testr.New(t)}))
	if _, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("there is a certificate")
	}
	a := newAuthority(t, "late")
	writePair(t, cert, key, a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "late"}, NotAfter: time.Now().Add(time.Hour)}, nil))
	client := a.client("admin", time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth)
	if code, _, _ := get(t, url+"/healthz", client); code != 401 {
		t.Errorf("without an authority: %d", code)
	}
	write(t, ca, a.pem())
	if code, _, _ := get(t, url+"/healthz", client); code != 200 {
		t.Errorf("once it is there: %d", code)
	}
}

// TestForeignTalk: what isn't TLS, or never comes to a request, keeps nobody waiting.
func TestForeignTalk(t *testing.T) {
	url := run(t, NewCertificate(CertConfig{Dir: t.TempDir(), Name: "node1", Log: testr.New(t)}), NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)}))
	address := strings.TrimPrefix(url, "https://")
	for i := range 500 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = fmt.Fprint(c, []string{"GET / HTTP/1.1\r\n", "\x16\x03\x01", ""}[i%3]) // fails where it was cut already
	}
	for range 5 {
		if code, text, _ := get(t, url+"/healthz", nil); code != 200 {
			t.Errorf("%d %s", code, text)
		}
	}
	if _, err := tls.Dial("tcp", address, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10, InsecureSkipVerify: true}); err == nil {
		t.Error("an old version of TLS is spoken")
	}
}

// TestCiphertextIsNoRequest: what a peer sends can't look like a request that has come, and so keep others waiting.
func TestCiphertextIsNoRequest(t *testing.T) {
	url := run(t, NewCertificate(CertConfig{Dir: t.TempDir(), Name: "node1", Log: testr.New(t)}), NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)}))
	for range 128 { // as many as are served at once
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprint(c, "\x16\x03\x01\x40\x00\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	client := http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Get(url + "/healthz") // a handshake may take 5 s
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

// TestFailureAmidAnAnswer: what was sent of an answer whose handler failed doesn't look like all of it, and the server goes on.
func TestFailureAmidAnAnswer(t *testing.T) {
	url := run(t, NewCertificate(CertConfig{Dir: t.TempDir(), Name: "node1", Log: testr.New(t)}), NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)}),
		Route{Methods: []string{"GET"}, Path: "/", Subresources: []string{"proxy"}, Stream: Always, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "the first line\n")
			_ = http.NewResponseController(w).Flush()
			panic("a mistake")
		})})
	for range 2 {
		response, err := insecure.RoundTrip(httptest.NewRequestWithContext(t.Context(), "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil || string(text) != "the first line\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// over2 speaks HTTP/2.
func over2(t *testing.T) *http.Transport {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// TestHTTP2: what isn't a stream of an upgraded connection can be had over HTTP/2, many at once on one connection, with the same bounds; and logs that are
// followed on it end with the server, not as if that were all of them.
func TestHTTP2(t *testing.T) {
	access := NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)})
	proxy := []string{"proxy"}
	entered := make(chan struct{}, 100)
	url, stop := runUntil(t, NewCertificate(CertConfig{Dir: t.TempDir(), Name: "node1", Log: testr.New(t)}), access,
		Route{Methods: []string{"GET"}, Path: "/page", Subresources: proxy, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })},
		Route{Methods: []string{"GET"}, Path: "/take", Subresources: proxy, Stream: Always, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
				t.Error("a connection that others have requests on was taken over")
			}
		})},
		Route{Methods: []string{"GET"}, Path: "/follow", Subresources: proxy, Stream: Always, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "line\n")
			_ = http.NewResponseController(w).Flush()
			entered <- struct{}{}
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		})})
	transport := over2(t)
	ask := func(path string) (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), "GET", url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return transport.RoundTrip(request)
	}
	for path, want := range map[string]string{"/page": "HTTP/2.0", "/take": "", "/page?" + strings.Repeat("a", 20<<10): "HTTP/1.1"} {
		response, err := ask(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(text), want) || (response.StatusCode == 431) != (len(path) > 10) {
			t.Errorf("%.20s: %s %q, %v", path, response.Status, text, err)
		}
	}
	var followed []*http.Response
	for range 40 { // more than one connection takes
		response, err := ask("/follow")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		followed = append(followed, response)
		<-entered
	}
	if response, err := ask("/page"); err != nil || response.StatusCode != 200 {
		t.Errorf("beside streams: %v, %v", response, err)
	} else {
		response.Body.Close()
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	for _, response := range followed {
		if text, err := io.ReadAll(response.Body); err == nil || string(text) != "line\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// TestHTTP2Hoarders: peers that ask for much on each connection and read none of it don't keep others from being answered.
func TestHTTP2Hoarders(t *testing.T) {
	large := strings.Repeat("a", 1<<20)
	access := NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)})
	url, _ := runUntil(t, NewCertificate(CertConfig{Dir: t.TempDir(), Name: "node1", Log: testr.New(t)}), access,
		Route{Methods: []string{"GET"}, Path: "/large", Subresources: []string{"proxy"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) })},
		Route{Methods: []string{"GET"}, Path: "/page", Subresources: []string{"proxy"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })})
	for range 150 { // more than are served at once
		// An answer may take 30 s.
		c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, http2.ClientPreface) // it fails where it was cut already
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) // it reads nothing
		var block bytes.Buffer
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "a"}, {":path", "/large"}} {
			if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		}
	}
	client := http.Client{Timeout: 4 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for range 20 {
		response, err := client.Get(url + "/page")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
}
