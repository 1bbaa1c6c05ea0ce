package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	away    error
	asked   []string
	specs   []authorization.SubjectAccessReviewSpec
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
	r.Status.Allowed = slices.Contains(a.allowed, rule)
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
		"fine": {Username: "dashboard"},
	}, allowed: []string{"prometheus get proxy", "dashboard get healthz", "admin get configz"}}
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
		if code, text, _ := c.got(); code != c.code {
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

// TestStreamsAreBounded: one user can't take all of them.
func TestStreamsAreBounded(t *testing.T) {
	s := &streams{of: map[string]int{}}
	begun := func(user string) (n int) {
		for s.begin(user) {
			n++
		}
		return n
	}
	if n := begun("a"); n != maxStreamsOfOne {
		t.Errorf("one has %d", n)
	}
	if n := begun("b"); n != maxStreams-maxStreamsOfOne {
		t.Errorf("the other has %d", n)
	}
	s.end("a")
	if !s.begin("b") {
		t.Error("one that ended isn't free")
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
		})
	}
}
