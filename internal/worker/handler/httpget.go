package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

const (
	// maxBody is how much of a body is read, in bytes (Kubernetes documentation,
	// "Configure Liveness, Readiness and Startup Probes").
	maxBody = 10 << 10
	// maxHead bounds status line and headers, those of informational answers included.
	maxHead = 64 << 10
	// maxRedirects is how many redirects to the same host are followed; one more is an error.
	maxRedirects = 10
)

// errRedirects ends a loop, in the words of net/http, which are those of the kubelet's events.
var errRedirects = fmt.Errorf("stopped after %d redirects", maxRedirects)

// errPlainHTTP says that a server which was asked with TLS answered without.
var errPlainHTTP = errors.New("server gave HTTP response to HTTPS client")

// getRequest is what to get.
type getRequest struct {
	// URL has scheme http or https, and a host.
	URL *url.URL
	// Host is the Host header; empty for that of URL.
	Host string
	// Header is sent as it is; get doesn't change it.
	Header http.Header
}

// getAnswer is what came of a request.
type getAnswer struct {
	// Status is the last answer's.
	Status int
	// Body is the beginning of the body of an answer with a status of 3xx; other
	// bodies are read but not kept.
	Body []byte
}

// httpClient makes the GET requests of probes and hooks: HTTP/1.1, each on a connection of its own,
// without proxy, cookies, compression or verification of certificates, and with bounds on all
// that a server can send. It does what net/http's Transport does without keep-alives at about
// two thirds of the cost (make bench-probes): only the caller's goroutine reads and writes.
//
// It makes any number of requests at a time. Its zero value is ready for use.
type httpClient struct {
	scratches sync.Pool
}

// get requests r and follows up to ten redirects that stay on the same host; one to another host is the
// answer, as documented for HTTP probes. More than ten are an error: where they lead to, nobody knows
// (kubernetes/kubernetes#136698). It returns as soon as ctx ends. An error is a *url.Error around ctx's
// error, errPlainHTTP, errRedirects or the network's.
func (c *httpClient) get(ctx context.Context, r getRequest) (getAnswer, error) {
	for hops := 0; ; hops++ {
		answer, location, err := c.once(ctx, r)
		if err != nil {
			return getAnswer{}, r.failed(err)
		}
		if location == "" {
			return answer, nil
		}
		next, err := r.redirected(location)
		if err != nil {
			return getAnswer{}, r.failed(err)
		}
		if !strings.EqualFold(next.URL.Hostname(), r.URL.Hostname()) {
			return answer, nil
		}
		if hops == maxRedirects {
			return getAnswer{}, r.failed(errRedirects)
		}
		if next.URL.Scheme != "http" && next.URL.Scheme != "https" {
			return getAnswer{}, r.failed(
				fmt.Errorf("redirect to %q refused: only http and https are followed", next.URL.Redacted()))
		}
		r = next
	}
}

// failed words an error as net/http does: Get "URL": what was wrong.
func (r getRequest) failed(err error) error {
	return &url.Error{Op: "Get", URL: r.URL.Redacted(), Err: err}
}

// Plain is the request over http instead of https. Of its headers only Host,
// User-Agent and Accept travel in the clear: a secret may have any other name.
func (r getRequest) Plain() getRequest {
	u := *r.URL
	u.Scheme = "http"
	given := r.Header
	r.URL, r.Header = &u, make(http.Header, 2)
	for _, name := range []string{"User-Agent", "Accept"} {
		if values, ok := given[name]; ok {
			r.Header[name] = slices.Clone(values)
		}
	}
	return r
}

// redirected is the request that an answer with this location asks for.
func (r getRequest) redirected(location string) (getRequest, error) {
	to, err := url.Parse(location)
	if err != nil {
		return r, fmt.Errorf("the answer's Location can't be read: %w", err)
	}
	if to.Host != "" {
		r.Host = "" // a name for the first host needn't be one for what is named now
	}
	wasSecure := r.URL.Scheme == "https"
	r.URL = r.URL.ResolveReference(to)
	if wasSecure && r.URL.Scheme != "https" {
		r.Header = withoutSecrets(r.Header)
	}
	return r, nil
}

func withoutSecrets(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
		h.Del(name)
	}
	return h
}
