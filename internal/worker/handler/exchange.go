package handler

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
)

// scratch is the memory for one HTTP request and its response.
type scratch struct {
	request bytes.Buffer
	limit   io.LimitedReader
	answer  *bufio.Reader
}

// once makes one request on its own connection. location is the target of a redirect, if the response is one.
func (c *httpClient) once(ctx context.Context, r getRequest) (a getAnswer, location string, err error) {
	port, err := portOf(r.URL)
	if err != nil {
		return a, "", err
	}
	conn, err := dialTCP(ctx, r.URL.Hostname(), port)
	if err != nil {
		return a, "", during(ctx, "connecting", err)
	}
	// The error of closing is irrelevant: the connection is reset.
	defer func() { _ = conn.Close() }()
	defer abortOnDone(ctx, conn)()

	var stream io.ReadWriter = conn
	if r.URL.Scheme == "https" {
		secure, err := handshake(conn, r.URL.Hostname())
		if err != nil {
			return a, "", during(ctx, "in the TLS handshake", err)
		}
		stream = secure
	}
	s := c.acquireScratch(stream)
	defer c.give(s)
	if err := s.send(r, stream); err != nil {
		return a, "", during(ctx, "sending the request", err)
	}
	response, err := s.head()
	if err != nil {
		return a, "", during(ctx, "waiting for the answer", err)
	}
	// The body isn't closed: Close would read all of it, however long it is.
	if a, err = body(response); err != nil {
		return a, "", during(ctx, "reading the answer's body", err)
	}
	return a, redirection(response), nil
}

// during adds the current step to err, and replaces err with ctx's error if ctx is done.
func during(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w while %s", ctx.Err(), doing)
	}
	return err
}

func portOf(u *url.URL) (int, error) {
	if u.Port() == "" {
		if u.Scheme == "https" {
			return 443, nil
		}
		return 80, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%q is no port", u.Port())
	}
	return int(port), nil
}

// handshake starts TLS on conn. Probes don't verify certificates (Kubernetes documentation): a container has no name
// or CA that the node could verify.
func handshake(conn net.Conn, host string) (*tls.Conn, error) {
	secure := tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	err := secure.Handshake()
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(record.RecordHeader[:]) == "HTTP/" {
		return nil, errPlainHTTP
	}
	return secure, err
}

func (c *httpClient) acquireScratch(stream io.Reader) *scratch {
	s, ok := c.scratches.Get().(*scratch)
	if !ok {
		s = &scratch{}
		s.answer = bufio.NewReader(&s.limit)
	}
	s.limit = io.LimitedReader{R: stream, N: maxHead}
	s.answer.Reset(&s.limit)
	return s
}

func (c *httpClient) give(s *scratch) {
	s.request.Reset()
	s.limit.R = nil
	c.scratches.Put(s)
}

func (s *scratch) send(r getRequest, to io.Writer) error {
	u := *r.URL
	u.User = nil
	q := http.Request{Method: http.MethodGet, URL: &u, Host: r.Host, Header: r.Header, Close: true}
	if err := q.Write(&s.request); err != nil {
		return err
	}
	_, err := to.Write(s.request.Bytes())
	return err
}

// head reads a response up to its body. It skips informational responses, except for 101, which wasn't requested.
func (s *scratch) head() (*http.Response, error) {
	for {
		response, err := http.ReadResponse(s.answer, nil)
		if err != nil {
			if s.limit.N <= 0 {
				return nil, fmt.Errorf("the answer's headers are longer than %d bytes", maxHead)
			}
			return nil, err
		}
		if response.StatusCode >= http.StatusOK || response.StatusCode == http.StatusSwitchingProtocols {
			s.limit.N = math.MaxInt64 // the reader of the body has its own limit
			return response, nil
		}
	}
}

func body(r *http.Response) (getAnswer, error) {
	a := getAnswer{Status: r.StatusCode}
	var err error
	if a.Status >= 300 && a.Status < 400 {
		a.Body, err = io.ReadAll(io.LimitReader(r.Body, maxBody))
		return a, err
	}
	if _, err = io.CopyN(io.Discard, r.Body, maxBody); errors.Is(err, io.EOF) {
		err = nil
	}
	return a, err
}

// redirection is the Location of a redirect; empty for other responses.
func redirection(r *http.Response) string {
	switch r.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
		return r.Header.Get("Location")
	}
	return ""
}
