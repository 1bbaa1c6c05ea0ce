package handler

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// httpServer serves in-place answers by path and notes the last request.
type httpServer struct {
	*httptest.Server
	seen atomic.Pointer[http.Request]
}

func serve(t *testing.T, secure bool) *httpServer {
	t.Helper()
	s := &httpServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.seen.Store(r.Clone(context.Background()))
		var status int
		if n, _ := fmt.Sscanf(r.URL.Path, "/status/%d", &status); n == 1 {
			w.WriteHeader(status)
			fmt.Fprint(w, "a body")
			return
		}
		if n, _ := fmt.Sscanf(r.URL.Path, "/ring/%d", &status); n == 1 {
			http.Redirect(w, r, fmt.Sprintf("/ring/%d", (status+1)%3), http.StatusTemporaryRedirect)
			return
		}
		if n, _ := fmt.Sscanf(r.URL.Path, "/away/%d", &status); n == 1 && status > 0 {
			http.Redirect(w, r, fmt.Sprintf("/away/%d", status-1), http.StatusSeeOther)
			return
		}
		switch r.URL.Path {
		case "/elsewhere", "/away/0":
			http.Redirect(w, r, "http://localhost:1/", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/huge":
			_, _ = w.Write(make([]byte, 1<<20))
		case "/hang":
			<-r.Context().Done()
		}
	}))
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// last is the last request.
func (s *httpServer) last() *http.Request { return s.seen.Load() }

func (s *httpServer) target(t *testing.T) Target {
	return local(t, s.Listener.Addr().String())
}

func httpProbe(path string, more ...func(*v1.HTTPGetAction)) *v1.Probe {
	a := &v1.HTTPGetAction{Path: path, Port: intstr.FromString("web")}
	for _, f := range more {
		f(a)
	}
	return &v1.Probe{TimeoutSeconds: 20, ProbeHandler: v1.ProbeHandler{HTTPGet: a}}
}

func https(a *v1.HTTPGetAction) { a.Scheme = v1.URISchemeHTTPS }

func TestHTTPProbe(t *testing.T) {
	s := serve(t, false)
	h, target := handlers(nil), s.target(t)
	for path, c := range map[string]struct {
		state   State
		message string
	}{
		"/status/200": {Success, ""},
		"/status/299": {Success, ""},
		"/status/300": {Warning, "Probe terminated redirects, Response body: a body"},
		"/status/399": {Warning, "Probe terminated redirects"},
		"/status/400": {Failure, "HTTP probe failed with statuscode: 400"},
		"/status/500": {Failure, "HTTP probe failed with statuscode: 500"},
		"/elsewhere":  {Warning, "localhost:1"},
		"/loop":       {Failure, `/loop": stopped after 10 redirects`},
		"/ring/0":     {Failure, "stopped after 10 redirects"},
		"/away/10":    {Warning, "localhost:1"}, // the tenth leads elsewhere
		"/huge":       {Success, ""},
		"":            {Success, ""},
	} {
		t.Run(path, func(t *testing.T) {
			want(t, h.Probe(t.Context(), target, httpProbe(path)), c.state, c.message)
		})
	}
}

func TestHTTPSProbe(t *testing.T) {
	secure, plain := serve(t, true), serve(t, false)
	h := handlers(nil)
	want(t, h.Probe(t.Context(), secure.target(t), httpProbe("/", https)), Success, "")
	want(t, h.Probe(t.Context(), plain.target(t), httpProbe("/", https)), Failure, "server gave HTTP response to HTTPS client")
}

// TestPath: a path is a path and a query, whatever else it looks like.
func TestPath(t *testing.T) {
	s := serve(t, false)
	h, target := handlers(nil), s.target(t)
	for path, uri := range map[string]string{
		"":                       "/",
		"a/b?x=1&y":              "/a/b?x=1&y",
		"/a%2Fb":                 "/a%2Fb",
		"a%2Fb":                  "/a%2Fb",
		"/a b":                   "/a%20b",
		"/a?":                    "/a?",
		"/a#b":                   "/a",
		"//u:p@other/x":          "/x",
		"http://other.example/x": "/x",
		"mailto:x":               "/mailto:x",
		"/%zz":                   "/%25zz",
		"/a\r\nX-Evil: 1":        "/a%0D%0AX-Evil:%201",
	} {
		o := h.Probe(t.Context(), target, httpProbe(path))
		if o.State != Success || s.last().RequestURI != uri || s.last().Header.Get("Authorization") != "" || s.last().Header.Get("X-Evil") != "" {
			t.Errorf("path %q: got %s, want %s (%v)", path, s.last().RequestURI, uri, o)
		}
	}
}

func TestHeaders(t *testing.T) {
	s := serve(t, false)
	h, target := handlers(nil), s.target(t)
	address := s.Listener.Addr().String()
	for name, c := range map[string]struct {
		given  []v1.HTTPHeader
		host   string
		header string
	}{
		"defaults":   {nil, address, "map[Accept:[*/*] User-Agent:[kube-probe/1.36]]"},
		"overridden": {[]v1.HTTPHeader{{Name: "user-agent", Value: "me"}, {Name: "ACCEPT", Value: "text/html"}}, address, "map[Accept:[text/html] User-Agent:[me]]"},
		"removed":    {[]v1.HTTPHeader{{Name: "User-Agent"}, {Name: "Accept"}}, address, "map[]"},
		"repeated":   {[]v1.HTTPHeader{{Name: "x-a", Value: "1"}, {Name: "X-A", Value: "2"}}, address, "map[Accept:[*/*] User-Agent:[kube-probe/1.36] X-A:[1 2]]"},
		"host":       {[]v1.HTTPHeader{{Name: "host", Value: "web.example"}}, "web.example", "map[Accept:[*/*] User-Agent:[kube-probe/1.36]]"},
		"injection": {[]v1.HTTPHeader{{Name: "X-A", Value: "1\r\nX-B: 2"}, {Name: "X-C: 3\r\nX-D", Value: "4"}}, address,
			"map[Accept:[*/*] User-Agent:[kube-probe/1.36] X-A:[1  X-B: 2]]"},
		"framing": {[]v1.HTTPHeader{{Name: "Content-Length", Value: "7"}, {Name: "Transfer-Encoding", Value: "chunked"}}, address,
			"map[Accept:[*/*] User-Agent:[kube-probe/1.36]]"},
	} {
		t.Run(name, func(t *testing.T) {
			o := h.Probe(t.Context(), target, httpProbe("/", func(a *v1.HTTPGetAction) { a.HTTPHeaders = c.given }))
			want(t, o, Success, "")
			s.last().Header.Del("Connection")
			if got := fmt.Sprint(s.last().Header); got != c.header || s.last().Host != c.host {
				t.Errorf("got host %s and %s, want %s and %s", s.last().Host, got, c.host, c.header)
			}
		})
	}
}

func TestWhereProbesConnect(t *testing.T) {
	s := serve(t, false)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	full, none := s.target(t), Target{PodIP: "127.0.0.1"}
	gone := Target{PodIP: "127.0.0.1", Ports: full.Container.Ports}
	noIP := Target{Container: full.Container}
	for name, c := range map[string]struct {
		target  Target
		host    string
		port    intstr.IntOrString
		state   State
		message string
	}{
		"named":              {full, "", intstr.FromString("web"), Success, ""},
		"number in a string": {full, "", intstr.FromString(port), Success, ""},
		"other host":         {Target{PodIP: "192.0.2.1", Ports: gone.Ports}, "localhost", intstr.FromString("web"), Success, ""},
		"spec is gone":       {gone, "", intstr.FromString("web"), Success, ""},
		"no such name":       {full, "", intstr.FromString("wep"), Unknown, `no port named "wep"`},
		"no ports":           {none, "", intstr.FromString("web"), Unknown, `no port named "web"`},
		"out of range":       {full, "", intstr.FromInt32(65536), Unknown, "isn't in the range"},
		"zero":               {full, "", intstr.FromInt32(0), Unknown, "isn't in the range"},
		"negative":           {full, "", intstr.FromString("-1"), Unknown, "isn't in the range"},
		"no address":         {noIP, "", intstr.FromString("web"), Unknown, "no address yet"},
	} {
		t.Run(name, func(t *testing.T) {
			h := handlers(nil)
			p := httpProbe("/", func(a *v1.HTTPGetAction) { a.Host, a.Port = c.host, c.port })
			want(t, h.Probe(t.Context(), c.target, p), c.state, c.message)
			p.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: c.host, Port: c.port}}
			want(t, h.Probe(t.Context(), c.target, p), c.state, c.message)
		})
	}
	want(t, handlers(nil).Probe(t.Context(), full, httpProbe("/", func(a *v1.HTTPGetAction) { a.Scheme = "FTP" })), Unknown, `scheme "FTP"`)
}

func TestHTTPProbeIsCancelled(t *testing.T) {
	s := serve(t, false)
	h, target := handlers(nil), s.target(t)
	p := httpProbe("/hang")
	p.TimeoutSeconds = 0 // which is 1
	want(t, h.Probe(t.Context(), target, p), Failure, `/hang": context deadline exceeded while waiting for the answer`)
	p.TimeoutSeconds = 3600
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	want(t, h.Probe(ctx, target, p), Unknown, "cancelled: context canceled")
}

func TestHTTPHook(t *testing.T) {
	secure, plain := serve(t, true), serve(t, false)
	for name, c := range map[string]struct {
		server *httpServer
		path   string
		scheme v1.URIScheme
		want   string
	}{
		"done":              {plain, "/status/200", "HTTP", ""},
		"any status counts": {plain, "/status/500", "HTTP", ""},
		"elsewhere":         {plain, "/elsewhere", "HTTP", ""},
		"in a circle":       {plain, "/loop", "HTTP", "stopped after 10 redirects"},
		"TLS":               {secure, "/", "HTTPS", ""},
		"TLS to plain HTTP": {plain, "/", "HTTPS", ""},
		"never answered":    {plain, "/hang", "HTTP", "context canceled"},
		"TLS hangs":         {secure, "/hang", "HTTPS", "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			c.server.seen.Store(nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.path == "/hang" {
				time.AfterFunc(100*time.Millisecond, cancel)
			}
			hook := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: c.path, Port: intstr.FromString("web"), Scheme: c.scheme,
				HTTPHeaders: []v1.HTTPHeader{{Name: "X-Api-Key", Value: "hush"}, {Name: "Host", Value: "given.example"}, {Name: "Accept", Value: "a/b"}}}}
			var log bytes.Buffer
			h := New(Config{Log: funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{Verbosity: 10})})
			err := h.Hook(ctx, c.server.target(t), hook)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if strings.Contains(log.String(), "hush") || strings.Contains(fmt.Sprint(err), "hush") {
				t.Errorf("tells a header's value: %s %v", log.String(), err)
			}
			if c.want != "" {
				return
			}
			if c.server.last().UserAgent() != "kube-lifecycle/1.36" {
				t.Errorf("User-Agent %q", c.server.last().UserAgent())
			}
			inTheClear := c.scheme == "HTTPS" && c.server == plain
			got := c.server.last()
			if (got.Header.Get("X-Api-Key") == "") != inTheClear || got.Host != "given.example" || got.Header.Get("Accept") != "a/b" {
				t.Errorf("host %s, headers %v", got.Host, got.Header)
			}
			if inTheClear != strings.Contains(log.String(), "Set the hook's scheme to HTTP") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
	bad := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromString("wep")}}
	if err := handlers(nil).Hook(t.Context(), plain.target(t), bad); err == nil || !strings.Contains(err.Error(), `named "wep"`) {
		t.Error(err)
	}
}
