package httpsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxSize is the maximum size of a manifest in bytes.
const maxSize = 10 << 20

// maxHeader is the maximum size of a response's headers in bytes.
const maxHeader = 64 << 10

// maxReason is the maximum length of a reported error in bytes: some errors repeat the server's response.
const maxReason = 512

// maxRedirects is how many redirects are followed.
const maxRedirects = 10

// errNotModified says that the text at the URL is still the text that was accepted last.
var errNotModified = errors.New("not modified")

func newClient(secret http.Header) *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: timeout}).DialContext,
		TLSHandshakeTimeout: timeout,
		MaxIdleConns:        1,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,

		MaxResponseHeaderBytes: maxHeader,
	}
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return fmt.Errorf("it redirects more than %d times", maxRedirects)
			}
			// The client copies headers to the request for the target of a redirect, and sends the previous URL with
			// its query as Referer: both may contain secrets.
			next.Header.Del("Referer")
			first := via[0].URL
			if next.URL.Host != first.Host || next.URL.Scheme != first.Scheme && next.URL.Scheme != "https" {
				for name := range secret {
					next.Header.Del(name)
				}
			}
			return nil
		},
	}
}

// fetch returns the text at the URL. Its errors are for users, are equal for equal causes, and contain no secrets.
func (s *Source) fetch(ctx context.Context, within time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := s.request(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the manifest can't be fetched: %w", plain(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified && s.accepted != nil {
		return nil, errNotModified
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the manifest can't be fetched: the server answered %d %s", resp.StatusCode,
			http.StatusText(resp.StatusCode))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("the connection was lost while fetching the manifest: %w", plain(err))
	}
	if len(data) > maxSize {
		return nil, fmt.Errorf("the manifest is larger than %d MiB, and isn't used", maxSize>>20)
	}
	s.etag, s.modified = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return data, nil
}

func (s *Source) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, errors.New("the URL of the manifest can't be used for a request")
	}
	for name, values := range s.header {
		for _, value := range values {
			req.Header.Add(name, value)
		}
	}
	if host := s.header.Get("Host"); host != "" {
		req.Host = host // the client uses only this field
	}
	if s.accepted == nil {
		return req, nil
	}
	if s.etag != "" {
		req.Header.Set("If-None-Match", s.etag)
	}
	if s.modified != "" {
		req.Header.Set("If-Modified-Since", s.modified)
	}
	return req, nil
}

// plain removes two parts from a client's error: parts that differ each time (local ports), and the URL, which may
// contain a password.
func plain(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		err = outer.Err
	}
	var lookup *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the server takes too long to answer")
	case errors.As(err, &lookup) && lookup.IsTimeout:
		return fmt.Errorf("looking up host %s took too long", lookup.Name)
	case errors.As(err, &lookup):
		return fmt.Errorf("host %s can't be found", lookup.Name)
	case errors.As(err, &op):
		return fmt.Errorf("%s %s: %w", op.Op, op.Net, op.Err)
	}
	if text := err.Error(); len(text) > maxReason {
		return errors.New(strings.ToValidUTF8(text[:maxReason], "") + "...")
	}
	return err
}
