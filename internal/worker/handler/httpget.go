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
	// maxBody is how many bytes of a body are read (Kubernetes documentation, "Configure Liveness, Readiness and
	// Startup Probes").
	maxBody = 10 << 10
	// maxHead limits status line and headers, including those of informational responses, in bytes.
	maxHead = 64 << 10
	// maxRedirects is the number of redirects to the same host that are followed; a further redirect is an error.
	maxRedirects = 10
)

// errRedirects ends a redirect loop. Its text is that of net/http, because the kubelet's events contain this text.
var errRedirects = fmt.Errorf("stopped after %d redirects", maxRedirects)

// errPlainHTTP says that the server responded to a TLS request without TLS.
var errPlainHTTP = errors.New("server gave HTTP response to HTTPS client")

// getRequest is a GET request.
type getRequest struct {
	// URL is the request's URL. It has scheme http or https, and a host.
	URL *url.URL
	// Host is the Host header; if it is empty, the host of URL is sent.
	Host string
	// Header has the request's headers. They are sent unchanged.
	Header http.Header
}

// getAnswer is the response to a request.
type getAnswer struct {
	// Status is the status code of the last response.
	Status int
	// Body is the beginning of the body for a 3xx status; other bodies are read and discarded.
	Body []byte
}

// httpClient makes the GET requests of probes and hooks: HTTP/1.1, each on its own connection, without proxy,
// cookies, compression or verification of certificates, and with limits on everything that a server can send. It does
// the same as net/http's Transport without keep-alives at about two thirds of the cost (make bench-probes), because
// only the caller's goroutine reads and writes.
//
// It is safe for concurrent use. Its zero value is ready for use.
type httpClient struct {
	scratches sync.Pool
}

// get sends request r and follows up to ten redirects on the same host. A redirect to another host is returned as the
// response, as documented for HTTP probes. More than ten redirects are an error, because the final target is unknown
// (kubernetes/kubernetes#136698). get returns as soon as ctx is done. An error is a *url.Error around ctx's error,
// errPlainHTTP, errRedirects or a network error.
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

// failed formats an error like net/http: Get "URL": cause.
func (r getRequest) failed(err error) error {
	return &url.Error{Op: "Get", URL: r.URL.Redacted(), Err: err}
}

// Plain is the request over http instead of https. It sends only the headers Host, User-Agent and Accept in the
// clear: any other header may be a secret.
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

// redirected is the request for a redirect to this location.
func (r getRequest) redirected(location string) (getRequest, error) {
	to, err := url.Parse(location)
	if err != nil {
		return r, fmt.Errorf("the answer's Location can't be read: %w", err)
	}
	if to.Host != "" {
		r.Host = "" // the Host header was meant for the first host
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
