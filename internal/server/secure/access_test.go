package secure

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
)

// apiServer is a Reviewer that answers what a test sets.
type apiServer struct {
	mu sync.Mutex
	// tokens have users; allowed are rules "user verb subresource".
	tokens  map[string]authentication.UserInfo
	allowed []string
	// denied are rules that an authorizer refuses, whatever others say.
	denied []string
	away   error
	asked  []string
	specs  []authorization.SubjectAccessReviewSpec
	// hold keeps answers until it is closed.
	hold chan struct{}
	// reached is told of each question that is held.
	reached chan struct{}
}

func (a *apiServer) ask(ctx context.Context, what string) error {
	a.mu.Lock()
	hold := a.hold
	a.asked = append(a.asked, what)
	err := a.away
	a.mu.Unlock()
	if hold != nil {
		a.reached <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (a *apiServer) ReviewToken(ctx context.Context, r *authentication.TokenReview) error {
	if err := a.ask(ctx, "token "+r.Spec.Token); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Status.User, r.Status.Authenticated = a.tokens[r.Spec.Token], a.tokens[r.Spec.Token].Username != ""
	return nil
}

func (a *apiServer) ReviewAccess(ctx context.Context, r *authorization.SubjectAccessReview) error {
	rule := fmt.Sprintf("%s %s %s", r.Spec.User, r.Spec.ResourceAttributes.Verb, r.Spec.ResourceAttributes.Subresource)
	if err := a.ask(ctx, rule); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.specs = append(a.specs, r.Spec)
	r.Status.Allowed, r.Status.Denied = slices.Contains(a.allowed, rule), slices.Contains(a.denied, rule)
	return nil
}

func (a *apiServer) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// questions are those asked since the last time.
func (a *apiServer) questions() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.asked
	a.asked = nil
	return asked
}

// webhook runs a server that asks an API server.
func webhook(t *testing.T, api *apiServer, change func(*AccessConfig), table ...Route) (url string, admin *authority) {
	dir, ca := t.TempDir(), newAuthority(t, "ca")
	write(t, filepath.Join(dir, "ca.crt"), ca.pem())
	conf := AccessConfig{Node: "node1", ClientCAFile: filepath.Join(dir, "ca.crt"), Anonymous: true, Tokens: true, TokensFor: time.Hour, AllowedFor: time.Hour, RefusedFor: time.Hour, Reviewer: api, Log: testr.New(t)}
	if change != nil {
		change(&conf)
	}
	return run(t, NewCertificate(CertConfig{Dir: dir, Name: "node1", Log: testr.New(t)}), NewAccess(conf), table...), ca
}

func TestReviews(t *testing.T) {
	api := &apiServer{tokens: map[string]authentication.UserInfo{
		"good": {Username: "prometheus", UID: "7", Groups: []string{"viewers"}, Extra: map[string]authentication.ExtraValue{"pod": {"a", "b"}}},
		"fine": {Username: "dashboard"}, "torn": {Username: "torn"},
	}, allowed: []string{"prometheus get proxy", "dashboard get healthz", "admin get configz", "torn get healthz", "torn get proxy"}, denied: []string{"torn get healthz", "torn get proxy"}}
	url, ca := webhook(t, api, nil)
	later := time.Now().Add(time.Hour)
	admin, expired := ca.client("admin", later, x509.ExtKeyUsageClientAuth), ca.client("admin", time.Now().Add(-time.Minute), x509.ExtKeyUsageClientAuth)
	for _, c := range []struct {
		name, path, token string
		cert              bool
		bad               bool
		code              int
		text              string
		asked             string
	}{
		{name: "a token", path: "/healthz", token: "Bearer good", code: 200, asked: "token good,prometheus get healthz,prometheus get proxy"},
		{name: "again", path: "/healthz", token: "bearer good", code: 200},
		{name: "by the finer right", path: "/healthz", token: "Bearer fine", code: 200, asked: "token fine,dashboard get healthz"},
		{name: "refused", path: "/configz", token: "Bearer fine", code: 403, text: "Forbidden (user=dashboard, verb=get, resource=nodes, subresource(s)=[configz proxy])", asked: "dashboard get configz,dashboard get proxy"},
		{name: "refused again", path: "/configz", token: "Bearer fine", code: 403},
		{name: "allowed and denied is denied", path: "/healthz", token: "Bearer torn", code: 403, asked: "token torn,torn get healthz,torn get proxy"},
		{name: "nobody's token", path: "/healthz", token: "Bearer bad", code: 401, asked: "token bad"},
		{name: "nobody's token again", path: "/healthz", token: "Bearer bad", code: 401},
		{name: "another scheme", path: "/healthz", token: "Basic YTpi", code: 401},
		{name: "a certificate", path: "/configz", cert: true, code: 200, asked: "admin get configz"},
		{name: "a certificate counts first", path: "/configz", cert: true, token: "Bearer good", code: 200},
		{name: "a token beside an expired certificate", path: "/healthz", cert: true, bad: true, token: "Bearer good", code: 200},
		{name: "an expired certificate isn't anonymous", path: "/healthz", cert: true, bad: true, code: 401},
		{name: "anonymous", path: "/healthz", code: 403, text: "user=system:anonymous", asked: "system:anonymous get healthz,system:anonymous get proxy"},
		{name: "elsewhere", path: "/nowhere", token: "Bearer fine", code: 403, asked: ""},
		{name: "elsewhere with the right", path: "/nowhere", token: "Bearer good", code: 404},
	} {
		cert := admin
		if c.bad {
			cert = expired
		}
		if !c.cert {
			cert = nil
		}
		var header []string
		if c.token != "" {
			header = []string{c.token}
		}
		code, text, _ := get(t, url+c.path, cert, header...)
		if asked := strings.Join(api.questions(), ","); code != c.code || !strings.Contains(text, c.text) || asked != c.asked {
			t.Errorf("%s: %d %q, asked %q; want %d %q, %q", c.name, code, text, asked, c.code, c.text, c.asked)
		}
	}
	spec := api.specs[0]
	if a := spec.ResourceAttributes; a.Resource != "nodes" || a.Name != "node1" || a.Version != "v1" || a.Group != "" || a.Namespace != "" {
		t.Errorf("attributes %+v", a)
	}
	if spec.UID != "7" || !slices.Equal(spec.Groups, []string{"viewers", "system:authenticated"}) || !slices.Equal(spec.Extra["pod"], []string{"a", "b"}) {
		t.Errorf("user %+v", spec)
	}
}

// TestNothingIsRemembered: where answers don't count for any time, each request is asked about.
func TestNothingIsRemembered(t *testing.T) {
	api := &apiServer{tokens: map[string]authentication.UserInfo{"x": {Username: "u"}}}
	url, _ := webhook(t, api, func(c *AccessConfig) { c.TokensFor, c.AllowedFor, c.RefusedFor = 0, 0, 0 })
	for i, want := range []int{403, 200, 403, 401} {
		api.set(func() {
			api.allowed = nil
			if want == 200 {
				api.allowed = []string{"u get healthz"}
			}
			if want == 401 {
				delete(api.tokens, "x")
			}
		})
		if code, _, _ := get(t, url+"/healthz", nil, "Bearer x"); code != want {
			t.Errorf("request %d: %d, want %d", i, code, want)
		}
	}
}

// TestAnswersAreTheirs: what one user may do says nothing about another one with the same name, other groups or extra.
func TestAnswersAreTheirs(t *testing.T) {
	asked := 0
	a := NewAccess(AccessConfig{Node: "n", AllowedFor: time.Hour, RefusedFor: time.Hour, Reviewer: reviewFunc(func(s authorization.SubjectAccessReviewSpec) bool {
		asked++
		return slices.Contains(s.Groups, "admins") || len(s.Extra["scope"]) > 0 || s.UID == "1"
	})})
	for _, c := range []struct {
		u    authentication.UserInfo
		want bool
	}{
		{authentication.UserInfo{Username: "u"}, false},
		{authentication.UserInfo{Username: "u", Groups: []string{"admins"}}, true},
		{authentication.UserInfo{Username: "u", Groups: []string{"others"}}, false},
		{authentication.UserInfo{Username: "u", UID: "1"}, true},
		{authentication.UserInfo{Username: "u", Extra: map[string]authentication.ExtraValue{"scope": {"all"}}}, true},
		{authentication.UserInfo{Username: "u", Extra: map[string]authentication.ExtraValue{"scope": nil}}, false},
	} {
		for range 2 {
			if got, err := a.may(t.Context(), &c.u, "get", "proxy"); err != nil || got != c.want {
				t.Errorf("%+v: %v, %v", c.u, got, err)
			}
		}
	}
	if asked != 6 {
		t.Errorf("asked %d times", asked)
	}
}

type reviewFunc func(authorization.SubjectAccessReviewSpec) bool

func (f reviewFunc) ReviewToken(context.Context, *authentication.TokenReview) error { return nil }

func (f reviewFunc) ReviewAccess(_ context.Context, r *authorization.SubjectAccessReview) error {
	r.Status.Allowed = f(r.Spec)
	return nil
}

// TestNewTokens: one that the API server doesn't know yet isn't nobody's for long.
func TestNewTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{tokens: map[string]authentication.UserInfo{}}
		a := NewAccess(AccessConfig{Node: "n", Tokens: true, TokensFor: time.Hour, Reviewer: api, Log: testr.New(t)})
		if _, ok := a.byToken(t.Context(), "new"); ok {
			t.Error("nobody's token is somebody's")
		}
		api.set(func() { api.tokens["new"] = authentication.UserInfo{Username: "u"} })
		time.Sleep(unknownFor + time.Second)
		if _, ok := a.byToken(t.Context(), "new"); !ok {
			t.Error("a token that is known by now isn't")
		}
		if asked := api.questions(); len(asked) != 2 {
			t.Errorf("asked %q", asked)
		}
	})
}

// TestLongCommands: a request may be as long as a command.
func TestLongCommands(t *testing.T) {
	url := run(t, NewCertificate(CertConfig{Dir: t.TempDir(), Name: "node1", Log: testr.New(t)}), NewAccess(AccessConfig{Anonymous: true, AlwaysAllow: true, Log: testr.New(t)}))
	for length, want := range map[int]int{128 << 10: 200, 3 * 128 << 10: 200, 1 << 20: 431} {
		if code, text, _ := get(t, url+"/healthz?command="+strings.Repeat("a", length), nil); code != want {
			t.Errorf("%d bytes: %d %.100s, want %d", length, code, text, want)
		}
	}
}

// TestAPIServerAway: what is known counts on, all else is an error, and nobody is let in, an anonymous user least of all.
func TestAPIServerAway(t *testing.T) {
	api := &apiServer{tokens: map[string]authentication.UserInfo{"known": {Username: "u"}}, allowed: []string{"u get healthz", "system:anonymous get configz"}}
	url, ca := webhook(t, api, nil)
	if code, text, _ := get(t, url+"/healthz", nil, "Bearer known"); code != 200 {
		t.Fatal(code, text)
	}
	api.set(func() { api.away = errors.New("it is away") })
	cert := ca.client("other", time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth)
	for name, c := range map[string]struct {
		code int
		got  func() (int, string, *x509.Certificate)
	}{
		"known":          {200, func() (int, string, *x509.Certificate) { return get(t, url+"/healthz", nil, "Bearer known") }},
		"not asked yet":  {500, func() (int, string, *x509.Certificate) { return get(t, url+"/configz", nil, "Bearer known") }},
		"another token":  {401, func() (int, string, *x509.Certificate) { return get(t, url+"/healthz", nil, "Bearer other") }},
		"a certificate":  {500, func() (int, string, *x509.Certificate) { return get(t, url+"/healthz", cert) }},
		"anonymous":      {500, func() (int, string, *x509.Certificate) { return get(t, url+"/configz", nil) }},
		"somewhere else": {500, func() (int, string, *x509.Certificate) { return get(t, url+"/exec/a/b/c", nil) }},
	} {
		code, text, _ := c.got()
		failed := strings.HasPrefix(text, "Authorization error (user=") &&
			strings.Contains(text, ", verb=get, resource=nodes, subresource(s)=[")
		if code != c.code || failed != (code == 500) {
			t.Errorf("%s: %d %s, want %d", name, code, text, c.code)
		}
	}
	api.set(func() { api.away = nil })
	if code, text, _ := get(t, url+"/configz", nil); code != 200 { // an error isn't remembered
		t.Errorf("back: %d %s", code, text)
	}
}

// TestAskedOnce: those who ask the same at the same time are answered together, and one who leaves takes nobody along.
func TestAskedOnce(t *testing.T) {
	api := &apiServer{tokens: map[string]authentication.UserInfo{"x": {Username: "u"}}, hold: make(chan struct{}), reached: make(chan struct{}, 100)}
	a := NewAccess(AccessConfig{Node: "n", Tokens: true, TokensFor: time.Hour, Reviewer: api, Log: testr.New(t)})
	leaving, leave := context.WithCancel(t.Context())
	var first, rest sync.WaitGroup
	first.Go(func() {
		if _, ok := a.byToken(leaving, "x"); ok {
			t.Error("one who left was answered")
		}
	})
	<-api.reached
	for range 50 {
		rest.Go(func() {
			if u, ok := a.byToken(t.Context(), "x"); !ok || u.Username != "u" {
				t.Errorf("%+v, %v", u, ok)
			}
		})
	}
	leave()
	first.Wait()
	close(api.hold)
	rest.Wait()
	if asked := api.questions(); len(asked) > 3 {
		t.Errorf("asked %d times", len(asked))
	}
}

// TestTable: what a route says holds, and there is no way around it.
func TestTable(t *testing.T) {
	api := &apiServer{tokens: map[string]authentication.UserInfo{"x": {Username: "u"}}, allowed: []string{"u get proxy", "u update proxy", "u create proxy"}}
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s|%s|%s|%s|%v", r.PathValue("a"), body, r.Header.Get("Authorization"), UserOf(r.Context()), err)
	})
	proxy := []string{"proxy"}
	url, _ := webhook(t, api, nil,
		Route{Methods: []string{"GET", "POST"}, Path: "/x/{a}", Subresources: proxy, Handler: echo},
		Route{Methods: []string{"PUT"}, Path: "/body", Subresources: proxy, Body: 4, Handler: echo},
		Route{Methods: []string{"GET"}, Path: "/off", Subresources: proxy, Off: "switched off", Handler: echo},
		Route{Methods: []string{"GET"}, Path: "/stream", Subresources: proxy, Stream: Always, Handler: echo},
		Route{Methods: []string{"GET"}, Path: "/other", Subresources: []string{"other"}, Handler: echo},
	)
	for _, c := range []struct {
		method, path, body string
		code               int
		text               string
	}{
		{"GET", "/x/1", "", 200, "1|||u|<nil>"},
		{"POST", "/x/1", "", 200, "1|||u|<nil>"},
		{"HEAD", "/x/1", "", 200, ""},
		{"DELETE", "/x/1", "", 403, "verb=delete"},
		{"PUT", "/x/1", "", 405, ""},
		{"GET", "/x/%2e%2e", "", 200, "..|||u|<nil>"}, // a value is a value
		{"GET", "/x/a%2fb", "", 200, "a/b|||u|<nil>"},
		{"GET", "/x/../other", "", 403, "[other]"},
		{"GET", "//x/1", "", 307, ""}, // to where it is: nothing is served
		{"GET", "/other", "", 403, "[other]"},
		{"PUT", "/body", "1234", 200, "|1234||u|<nil>"},
		{"PUT", "/body", "12345", 200, "too large"},
		{"GET", "/off", "", 405, "switched off"},
		{"GET", "/stream", "", 200, "|||u|<nil>"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer x")
		response, err := insecure.RoundTrip(request)
		if err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
			continue
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.code || !strings.Contains(string(text), c.text) {
			t.Errorf("%s %s: %d %q %v, want %d %q", c.method, c.path, response.StatusCode, text, err, c.code, c.text)
		}
	}
}

// TestStreamsAreBounded: one user can't take all of them, nor can those whom an API server speaks for, with a pod or a namespace.
func TestStreamsAreBounded(t *testing.T) {
	s := &streams{of: map[string]int{}}
	var ends []func()
	begun := func(user, namespace, pod, why string) (n int) {
		for {
			r := httptest.NewRequestWithContext(withUser(t.Context(), user), "GET", "/", nil)
			r.SetPathValue("namespace", namespace)
			r.SetPathValue("pod", pod)
			end, err := s.start(r)
			if err != nil {
				if !strings.Contains(err.Error(), why) {
					t.Errorf("%v, want %s", err, why)
				}
				return n
			}
			ends = append(ends, end)
			n++
		}
	}
	for _, c := range []struct {
		user, namespace, pod string
		want                 int
		why                  string
	}{
		{"api", "a", "one", maxStreamsOfPod, `pod "one" in namespace "a"`},
		{"api", "a", "two", maxStreamsOfNamespace - maxStreamsOfPod, `namespace "a"`},
		{"api", "a", "three", 0, `namespace "a"`},
		{"api", "b", "one", maxStreamsOfOne - maxStreamsOfNamespace, `user "api"`},
		{"other", "", "", maxStreams - maxStreamsOfOne, "1024 are served"},
	} {
		if n := begun(c.user, c.namespace, c.pod, c.why); n != c.want {
			t.Errorf("%+v: %d", c, n)
		}
	}
	for _, end := range ends {
		end()
	}
	if s.all != 0 || len(s.of) != 0 {
		t.Errorf("after all have ended: %d, %v", s.all, s.of)
	}
}

// TestTokensAmongProtocols: a browser's token is taken for whose it is, and is passed on to nobody, whether it is good or not.
func TestTokensAmongProtocols(t *testing.T) {
	api := &apiServer{tokens: map[string]authentication.UserInfo{"good": {Username: "u"}, "other": {Username: "v"}}, allowed: []string{"u get proxy", "v get proxy", "system:anonymous get proxy"}}
	url, _ := webhook(t, api, nil, Route{Methods: []string{"GET"}, Path: "/x", Subresources: []string{"proxy"}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s|%q", UserOf(r.Context()), r.Header.Values("Sec-WebSocket-Protocol"))
	})})
	in := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	for _, c := range []struct {
		name, bearer, upgrade string
		protocols             []string
		code                  int
		text                  string
	}{
		{"good", "", "websocket", []string{"v4.channel.k8s.io, " + in("good")}, 200, `u|["v4.channel.k8s.io"]`},
		{"on two lines", "", "WebSocket", []string{in("good"), "v4.channel.k8s.io,v3.channel.k8s.io"}, 200, `u|["v4.channel.k8s.io, v3.channel.k8s.io"]`},
		{"beside a header", "other", "websocket", []string{"a," + in("good")}, 200, `v|["a"]`},
		{"nobody's", "", "websocket", []string{"a, " + in("bad")}, 401, ""},
		{"alone", "", "websocket", []string{in("good")}, 401, ""},
		{"two", "", "websocket", []string{"a", in("good"), in("good")}, 401, ""},
		{"empty", "", "websocket", []string{"a", in("")}, 401, ""},
		{"not base64", "", "websocket", []string{"a", in("good") + "%"}, 401, ""},
		{"not text", "", "websocket", []string{"a", in("\xff\xfe")}, 401, ""},
		{"not for WebSockets", "", "", []string{"a", in("good")}, 401, ""},
		{"none", "", "websocket", []string{"a", "base64url.bearer"}, 200, `system:anonymous|["a" "base64url.bearer"]`},
	} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", url+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header["Sec-WebSocket-Protocol"] = c.protocols
		if c.upgrade != "" {
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", c.upgrade)
		}
		if c.bearer != "" {
			request.Header.Set("Authorization", "Bearer "+c.bearer)
		}
		response, err := insecure.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != c.code || !strings.Contains(string(text), c.text) || strings.Contains(string(text), "bearer.auth") {
			t.Errorf("%s: %d %s %v, want %d %s", c.name, response.StatusCode, text, err, c.code, c.text)
		}
	}
}

// TestCertificatesCostLittle: one that comes with many others isn't looked at, one that was accepted isn't verified again, and none
// counts for longer than all that it hangs on.
func TestCertificatesCostLittle(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	path := filepath.Join(dir, "ca.crt")
	write(t, path, ca.pem())
	a := NewAccess(AccessConfig{ClientCAFile: path, Log: testr.New(t)})
	parsed := func(c *tls.Certificate) *x509.Certificate {
		t.Helper()
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf
	}
	between := &authority{t: t}
	signed := ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "between"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour)}, ca.cert)
	between.cert, between.key = parsed(&signed), signed.PrivateKey.(*ecdsa.PrivateKey)
	leaf := parsed(between.client("admin", time.Now().Add(10*time.Hour), x509.ExtKeyUsageClientAuth))
	asks := func(others ...*x509.Certificate) bool {
		_, ok := a.byCertificate(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: append([]*x509.Certificate{leaf}, others...)}})
		return ok
	}
	if asks() {
		t.Error("accepted without what it hangs on")
	}
	if !asks(between.cert) || !asks(between.cert, ca.cert, ca.cert) {
		t.Error("not accepted")
	}
	if asks(between.cert, ca.cert, ca.cert, ca.cert) {
		t.Error("accepted with many others")
	}
	a.certs.slots <- struct{}{} // somebody's certificate takes its time
	if !asks(between.cert) {
		t.Error("one that was accepted is verified again")
	}
	if asks(between.cert, between.cert) {
		t.Error("another one isn't verified")
	}
	<-a.certs.slots
	until, err := verify(mustPool(t, path), []*x509.Certificate{leaf, between.cert})
	if err != nil || !until.Equal(between.cert.NotAfter) {
		t.Errorf("it counts until %s, %v; want %s", until, err, between.cert.NotAfter)
	}
	write(t, path, append([]byte("# others\n"), newAuthority(t, "other").pem()...))
	if asks(between.cert) {
		t.Error("accepted by an authority that isn't one any more")
	}
}

func mustPool(t *testing.T, path string) *x509.CertPool {
	t.Helper()
	pool, err := ReadAuthorities(path)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// TestAudit: who streams or changes something is recorded, with what came of it, and nothing that may be secret.
func TestAudit(t *testing.T) {
	var lines []string
	var mu sync.Mutex
	log := funcr.NewJSON(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
	api := &apiServer{tokens: map[string]authentication.UserInfo{"hidden": {Username: "u"}}, allowed: []string{"u get proxy", "u create proxy", "u update proxy"}}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), newAuthority(t, "ca").pem())
	serves := func(code int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.ReadAll(r.Body)
			if code > 0 {
				w.WriteHeader(code)
			}
			_, _ = io.WriteString(w, "hidden")
		})
	}
	taken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		c.Close()
	})
	proxy := []string{"proxy"}
	l, err := Listener(Config{Access: NewAccess(AccessConfig{Tokens: true, TokensFor: time.Hour, AllowedFor: time.Hour, Reviewer: api}), MinVersion: "VersionTLS12", Meter: quiet{}, Log: log, Routes: []Route{
		{Methods: []string{"GET", "POST"}, Path: "/page", Subresources: proxy, Handler: serves(0)},
		{Methods: []string{"GET"}, Path: "/logs/{path...}", Subresources: proxy, Stream: Always, Handler: serves(0)},
		{Methods: []string{"POST"}, Path: "/exec", Subresources: proxy, Stream: Always, Handler: taken},
		{Methods: []string{"PUT"}, Path: "/set", Subresources: proxy, Body: 10, Handler: serves(400)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(l.Handler)
	defer web.Close()
	for _, c := range []struct {
		method, path string
		want         string // the method, path and status that are recorded; nothing for none
	}{
		{"GET", "/page", ""},
		{"HEAD", "/page", ""},
		{"POST", "/page?command=hidden", "POST /page 200"},
		{"GET", "/logs/a%0ab?query=hidden", "GET /logs/a\nb 200"},
		{"HEAD", "/logs/", "HEAD /logs/ 200"},
		{"POST", "/exec?command=hidden", "POST /exec 101"},
		{"PUT", "/set", "PUT /set 400"},
		{"GET", "/logs/" + strings.Repeat("a", 1000), "GET /logs/" + strings.Repeat("a", 506) + "... 200"},
	} {
		lines = nil
		request, err := http.NewRequestWithContext(t.Context(), c.method, web.URL+c.path, strings.NewReader("hidden"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer hidden")
		response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		web.CloseClientConnections()
		web.Config.SetKeepAlivesEnabled(false)
		recorded := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(lines)
		}
		for c.want != "" && len(recorded()) == 0 { // it is recorded once it is served
			runtime.Gosched()
		}
		got := recorded()
		if c.want == "" {
			if len(got) > 0 {
				t.Errorf("%s %s: %q", c.method, c.path, got)
			}
			continue
		}
		var line struct {
			Msg, Method, Path, User, Address string
			Status                           int
			Duration                         string
		}
		if err := json.Unmarshal([]byte(got[0]), &line); err != nil {
			t.Fatal(err)
		}
		host, _, err := net.SplitHostPort(line.Address)
		took, errTook := time.ParseDuration(line.Duration)
		if fmt.Sprintf("%s %s %d", line.Method, line.Path, line.Status) != c.want || line.User != "u" || err != nil || host != "127.0.0.1" || errTook != nil || took <= 0 || len(got) != 1 {
			t.Errorf("%s %s: %q, want %s", c.method, c.path, got, c.want)
		}
		if strings.Contains(got[0], "hidden") {
			t.Errorf("%s %s: %s", c.method, c.path, got[0])
		}
	}
}

// BenchmarkKnown is what it takes to let somebody in who is known: by a token, and by a certificate.
func BenchmarkKnown(b *testing.B) {
	api := &apiServer{tokens: map[string]authentication.UserInfo{"x": {Username: "u", Groups: []string{"a", "b"}}}, allowed: []string{"u get proxy", "admin get proxy"}}
	ca := newAuthority(b, "ca")
	dir := b.TempDir()
	write(b, filepath.Join(dir, "ca.crt"), ca.pem())
	a := NewAccess(AccessConfig{Node: "n", ClientCAFile: filepath.Join(dir, "ca.crt"), Tokens: true, TokensFor: time.Hour, AllowedFor: time.Hour, RefusedFor: time.Hour, Reviewer: api})
	cert, err := x509.ParseCertificate(ca.client("admin", time.Now().Add(time.Hour), x509.ExtKeyUsageClientAuth).Certificate[0])
	if err != nil {
		b.Fatal(err)
	}
	h := a.guard([]string{"proxy"}, func(w http.ResponseWriter, _ *http.Request, _ *authentication.UserInfo) {
		w.WriteHeader(http.StatusNoContent)
	})
	for name, r := range map[string]func() *http.Request{
		"token": func() *http.Request {
			return &http.Request{Method: "GET", Header: http.Header{"Authorization": {"Bearer x"}}}
		},
		"certificate": func() *http.Request {
			return &http.Request{Method: "GET", Header: http.Header{}, TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r()); w.Code != http.StatusNoContent {
					b.Fatal(w.Code, w.Body)
				}
			}
			if each := b.Elapsed() / time.Duration(b.N); b.N >= 1000 && each > 100*time.Microsecond {
				b.Errorf("%s each, the goal is ≤ 100 µs", each)
			}
		})
	}
}
