package handler

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// get gets path from a server with this handler.
func get(t *testing.T, path string, h http.HandlerFunc) (getAnswer, error) {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	var c httpClient
	return c.get(t.Context(), request(t, s.URL+path))
}

func request(t *testing.T, text string) getRequest {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return getRequest{URL: u, Header: http.Header{"X-Given": {"a", "b"}}}
}

// raw serves every connection with talk, which gets the request's first line, and returns the URL.
func raw(t *testing.T, talk func(c net.Conn, request string)) string {
	t.Helper()
	return "http://" + serveConns(t, func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		talk(c, line)
	})
}

func TestWhatTheServerSees(t *testing.T) {
	var seen *http.Request
	a, err := get(t, "/a%2Fb?q=1&r", func(w http.ResponseWriter, r *http.Request) { seen = r.Clone(context.Background()) })
	if err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	if seen.Method != "GET" || seen.RequestURI != "/a%2Fb?q=1&r" || seen.Proto != "HTTP/1.1" || !seen.Close {
		t.Errorf("%s %s %s, to be closed: %v", seen.Method, seen.RequestURI, seen.Proto, seen.Close)
	}
	if got := fmt.Sprint(seen.Header); got != "map[Connection:[close] User-Agent:[Go-http-client/1.1] X-Given:[a b]]" {
		t.Errorf("headers %s", got)
	}
}

func TestRedirects(t *testing.T) {
	for name, c := range map[string]struct {
		location string
		status   int
		wrong    string // part of the error
	}{
		"relative":                {location: "/end", status: 204},
		"relative to directory":   {location: "end", status: 204},
		"same host":               {location: "http://HOST/end", status: 204},
		"other host":              {location: "http://localhost:1/end", status: 302},
		"other host of no scheme": {location: "//localhost:1/end", status: 302},
		"loop":                    {location: "/start", wrong: "stopped after 10 redirects"},
		"no location":             {location: "", status: 302},
		"other scheme":            {location: "ftp://HOST/end", wrong: `redirect to "ftp://`},
		"a socket":                {location: "unix:///run/x.sock", status: 302},
		"a file":                  {location: "file:///etc/passwd", status: 302},
		"opaque":                  {location: "mailto:a@b", status: 302},
		"unreadable":              {location: "http://[::1", wrong: "Location can't be read"},
		"bad port":                {location: "http://127.0.0.1:99999/end", wrong: `"99999" is no port`},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := get(t, "/start", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/end" {
					w.WriteHeader(204)
					return
				}
				w.Header()["Location"] = []string{strings.Replace(c.location, "HOST", r.Host, 1)}
				w.WriteHeader(302)
				fmt.Fprint(w, "moved")
			})
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Fatalf("got %v, %v, want an error with %q", a, err, c.wrong)
				}
				return
			}
			if err != nil || a.Status != c.status {
				t.Errorf("got %+v, %v", a, err)
			}
			if c.status == 302 && string(a.Body) != "moved" {
				t.Errorf("body %q", a.Body)
			}
		})
	}
}

func TestTenRedirectsAreFollowed(t *testing.T) {
	for _, n := range []int{10, 11} {
		requests := 0
		a, err := get(t, "/", func(w http.ResponseWriter, r *http.Request) {
			requests++
			if requests <= n {
				http.Redirect(w, r, "/", []int{301, 302, 303, 307, 308}[requests%5])
			}
		})
		if requests != 11 || errors.Is(err, errRedirects) != (n == 11) || (a.Status == 200) != (n == 10) {
			t.Errorf("%d redirects: %d requests, %+v, %v", n, requests, a, err)
		}
	}
}

func TestHeadersOfRedirects(t *testing.T) {
	var plain *httptest.Server
	var got []string
	note := func(r *http.Request) {
		got = append(got, fmt.Sprintf("%s host=%v auth=%q given=%v", r.URL.Path, r.Host == "name", r.Header.Get("Authorization"), len(r.Header["X-Given"])))
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		if r.URL.Path == "/1" {
			w.Header().Set("Location", "/2")
		} else {
			w.Header().Set("Location", plain.URL+"/3")
		}
		w.WriteHeader(307)
	}))
	defer secure.Close()
	plain = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note(r) }))
	defer plain.Close()
	r := request(t, secure.URL+"/1")
	r.Host = "name"
	r.Header.Set("Authorization", "secret")
	var c httpClient
	if a, err := c.get(t.Context(), r); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	want := []string{`/1 host=true auth="secret" given=2`, `/2 host=true auth="secret" given=2`, `/3 host=false auth="" given=2`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r.Header.Get("Authorization") != "secret" {
		t.Error("the caller's headers were changed")
	}
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		status int
		wrong  string
	}{
		"no length, to the end":  {answer: "HTTP/1.0 200 OK\r\n\r\nhello", status: 200},
		"informational first":    {answer: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 500 No\r\n\r\n", status: 500},
		"switching protocols":    {answer: "HTTP/1.1 101 Switching Protocols\r\n\r\n", status: 101},
		"chunks":                 {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", status: 200},
		"cut off in the body":    {answer: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", wrong: "unexpected EOF"},
		"nothing":                {answer: "", wrong: "unexpected EOF"},
		"not HTTP":               {answer: "220 smtp.example\r\n", wrong: "malformed HTTP"},
		"headers without end":    {answer: "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 20_000), wrong: "headers are longer than 65536"},
		"one endless header":     {answer: "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 100_000), wrong: "headers are longer than 65536"},
		"informational for ever": {answer: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 5000), wrong: "headers are longer than 65536"},
		"redirect of 20 KiB":     {answer: "HTTP/1.1 300 Choose\r\n\r\n" + strings.Repeat("x", 20<<10), status: 300},
	} {
		t.Run(name, func(t *testing.T) {
			var client httpClient
			url := raw(t, func(conn net.Conn, _ string) { _, _ = io.WriteString(conn, c.answer) })
			a, err := client.get(t.Context(), request(t, url))
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) || !strings.HasPrefix(err.Error(), `Get "`+url) {
					t.Fatalf("got %v, %v, want an error with %q", a, err, c.wrong)
				}
				return
			}
			if err != nil || a.Status != c.status || len(a.Body) > maxBody {
				t.Errorf("got status %d, %d bytes, %v", a.Status, len(a.Body), err)
			}
			if c.status == 300 && len(a.Body) != maxBody {
				t.Errorf("%d bytes of body", len(a.Body))
			}
		})
	}
}

// A body without end is given up after 10 KiB: the server can't write it all.
func TestEndlessBody(t *testing.T) {
	broke := make(chan int, 1)
	a, err := get(t, "/", func(w http.ResponseWriter, _ *http.Request) {
		for n := 0; ; n++ {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				broke <- n
				return
			}
		}
	})
	if err != nil || a.Status != 200 || a.Body != nil {
		t.Error(a, err)
	}
	<-broke
}

// Whatever the server holds back, the end of ctx ends the request, and the error
// says what it waited for.
func TestGetIsCancelled(t *testing.T) {
	for name, c := range map[string]struct{ scheme, answer, wrong string }{
		"silent":            {"http", "", "while waiting for the answer"},
		"silent with TLS":   {"https", "", "while in the TLS handshake"},
		"stops in a header": {"http", "HTTP/1.1 200 OK\r\nA: ", "while waiting for the answer"},
		"stops in the body": {"http", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "while reading the answer's body"},
		"drips":             {"http", "HTTP/1.1 100 Continue\r\n\r\n", "while waiting for the answer"},
	} {
		for _, how := range []error{context.DeadlineExceeded, context.Canceled} {
			t.Run(name+", "+how.Error(), func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if how == context.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
				}
				defer cancel()
				url := raw(t, func(conn net.Conn, _ string) {
					_, _ = io.WriteString(conn, c.answer)
					if how == context.Canceled {
						cancel()
					}
					// Until the client is gone.
					_, _ = io.Copy(io.Discard, conn)
				})
				var client httpClient
				_, err := client.get(ctx, request(t, c.scheme+strings.TrimPrefix(url, "http")))
				if !errors.Is(err, how) {
					t.Fatalf("got %v", err)
				}
				if how == context.DeadlineExceeded && !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %q, want %q", err, c.wrong)
				}
			})
		}
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.TLS == nil {
			w.WriteHeader(500)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	var c httpClient
	if a, err := c.get(t.Context(), request(t, s.URL)); err != nil || a.Status != 200 {
		t.Error("a certificate nobody knows:", a, err)
	}
	if a, err := c.get(t.Context(), request(t, strings.Replace(s.URL, "https", "http", 1))); err != nil || a.Status != 400 {
		t.Error("HTTP to a TLS server:", a, err)
	}
}

func TestTLSToPlainServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	var c httpClient
	r := request(t, strings.Replace(s.URL, "http", "https", 1))
	r.Host = "name"
	r.Header.Set("X-Api-Key", "secret")
	r.Header.Set("User-Agent", "a")
	r.Header.Set("Accept", "b")
	if _, err := c.get(t.Context(), r); !errors.Is(err, errPlainHTTP) {
		t.Fatalf("got %v", err)
	}
	p := r.Plain()
	if got := fmt.Sprint(p.Header); got != "map[Accept:[b] User-Agent:[a]]" || p.Host != "name" || r.Header.Get("X-Api-Key") == "" || r.URL.Scheme != "https" {
		t.Errorf("plain request %v, after which the first is %v", p, r)
	}
	if a, err := c.get(t.Context(), p); err != nil || a.Status != 200 {
		t.Error(a, err)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var c httpClient
	_, err = c.get(t.Context(), request(t, "http://u:pw@"+l.Addr().String()+"/x"))
	if want := fmt.Sprintf(`Get "http://u:xxxxx@%s/x": dial tcp %[1]s: connect: connection refused`, l.Addr()); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Many at a time, of which some break off, don't get into each other's memory.
func TestManyAtATime(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "7") {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(300)
		fmt.Fprint(w, r.URL.Path)
	}))
	defer s.Close()
	var c httpClient
	errs := make(chan error)
	const workers = 8
	for i := range workers {
		go func() {
			var wrong error
			for n := range 50 {
				path := fmt.Sprintf("/%d-%d", i, n)
				u, _ := url.Parse(s.URL + path)
				a, err := c.get(t.Context(), getRequest{URL: u})
				if n%10 == 7 {
					if err == nil {
						wrong = fmt.Errorf("%s: no error", path)
					}
				} else if err != nil || string(a.Body) != path {
					wrong = fmt.Errorf("%s: got %q, %w", path, a.Body, err)
				}
			}
			errs <- wrong
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	u, _ := url.Parse(s.URL)
	var c httpClient
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.get(b.Context(), getRequest{URL: u}); err != nil {
			b.Fatal(err)
		}
	}
}
