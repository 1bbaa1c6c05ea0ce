package apiclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	dialLimit      = 10 * time.Second
	handshakeLimit = 10 * time.Second
	// An HTTP/2 connection on which nothing arrives gets a ping after quiet, and is closed if no answer arrives
	// within pong: a vanished peer is detected within 30 s.
	quiet = 20 * time.Second
	pong  = 10 * time.Second
)

// errReplaced ends a watch that continues in another session.
var errReplaced = errors.New("the kubeconfig has changed")

// session is the connections to one server with one identity. After another session has replaced it, its calls may
// still finish.
type session struct {
	id *identity
	// replaced ends when another session replaces this one.
	replaced context.Context
	replace  context.CancelCauseFunc
	calls    sync.WaitGroup
	conf     *Config
	plugin   *plugin
	classes  [classes]struct {
		pool atomic.Pointer[pool]
		rest [resources]*rest.RESTClient
	}
	// missed counts heartbeats in a row without an answer.
	missed atomic.Int32
	// lastAnswer is the time of the last answer of an API server; nil for never.
	lastAnswer atomic.Pointer[time.Time]
}

func newSession(id *identity, c *Config, codecs serializer.CodecFactory) (*session, error) {
	s := &session{id: id, conf: c}
	s.replaced, s.replace = context.WithCancelCause(context.Background())
	if id.plugin != nil {
		s.plugin = newPlugin(id.plugin, c.Meter, s.reconnect)
	}
	for class := range classes {
		s.classes[class].pool.Store(s.newPool())
		client := &http.Client{Transport: &wire{session: s, class: class, agent: c.UserAgent, meter: c.Meter}}
		for r := range resources {
			d := r.described()
			var err error
			s.classes[class].rest[r], err = rest.NewRESTClient(id.server, d.path, rest.ClientContentConfig{
				ContentType: c.ContentType, AcceptContentTypes: accepted(c.ContentType), GroupVersion: d.version,
				Negotiator: runtime.NewClientNegotiator(codecs.WithoutConversion(), d.version),
			}, nil, client)
			if err != nil {
				return nil, fmt.Errorf("API server %s: %w", id.server, err)
			}
		}
	}
	return s, nil
}

// accepted are the content types that answers may have.
func accepted(contentType string) string {
	if contentType == runtime.ContentTypeJSON {
		return contentType
	}
	return contentType + "," + runtime.ContentTypeJSON
}

// pool is the connections of a class.
type pool struct {
	*http.Transport
	conns *connrotation.ConnectionTracker
}

// close closes all connections, idle or not.
func (p *pool) close() {
	p.CloseIdleConnections()
	p.conns.CloseAll()
}

func (s *session) newPool() *pool {
	dial := s.conf.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialLimit, KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: quiet, Interval: pong / 2, Count: 2, // the same for HTTP/1
		}}).DialContext
	}
	proxy := http.ProxyFromEnvironment
	if s.id.proxy != nil {
		proxy = http.ProxyURL(s.id.proxy)
	}
	s.conf.Meter.TransportMade()
	conns := connrotation.NewConnectionTracker()
	return &pool{&http.Transport{
		Proxy:                  proxy,
		DialContext:            connrotation.NewDialerWithTracker(dial, conns).DialContext,
		TLSClientConfig:        s.tls(),
		TLSHandshakeTimeout:    handshakeLimit,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: pong},
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     s.id.noCompression,
		MaxResponseHeaderBytes: maxHeader,
	}, conns}
}

func (s *session) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: s.id.serverName, RootCAs: s.id.roots,
		InsecureSkipVerify: s.id.insecure,
		// The certificate is sent whatever authorities the server names.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if s.id.cert != nil {
				return s.id.cert, nil
			}
			if s.plugin != nil { // the plugin runs before each request, and so before each connection
				if got := s.plugin.now.Load(); got != nil && got.cert != nil {
					return got.cert, nil
				}
			}
			return &tls.Certificate{}, nil
		},
	}
}

// drain closes the session once its calls have ended, at the latest after limit. It ends watches immediately.
func (s *session) drain(limit time.Duration) {
	s.replace(errReplaced)
	ended := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(limit):
	}
	s.close()
	<-ended // without connections, the remaining calls fail
}

// close closes all connections. New calls would open others.
func (s *session) close() {
	for i := range s.classes {
		s.classes[i].pool.Load().close()
	}
}

// reconnect replaces all connections before it closes them, so that no call uses one that is closing.
func (s *session) reconnect() {
	for i := range s.classes {
		s.classes[i].pool.Swap(s.newPool()).close()
	}
}

// outcome reports to a caller how its request went on the wire.
type outcome struct {
	err        error
	code       int
	retryAfter time.Duration
	// sent is the size of the request's body.
	sent int
	// structured says that contentType, the answer's Content-Type, is one that API servers use.
	structured  bool
	contentType string
	// asked says that the request was passed to the transport. lost is the error of reading the answer.
	asked bool
	lost  error
	// most bounds the answer in bytes; 0 for a watch, which has a bound for each event.
	most int64
	// began is when the call began.
	began time.Time
}

type outcomeKey struct{}

func withOutcome(ctx context.Context, most int64) (context.Context, *outcome) {
	o := &outcome{most: most, began: time.Now()}
	return context.WithValue(ctx, outcomeKey{}, o), o
}

// wire sends requests with credentials, and checks the answers. client-go's wrappers aren't used because they log
// requests.
type wire struct {
	session *session
	class   Class
	agent   string
	meter   Meter
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	o, ok := r.Context().Value(outcomeKey{}).(*outcome)
	if !ok {
		o = &outcome{}
	}
	o.sent, o.asked = int(max(r.ContentLength, 0)), true
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", w.agent)
	answer, err := w.send(r)
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(answer.StatusCode)
		err = checkAnswer(answer, o)
	}
	w.meter.Requested(code, r.Method, r.URL.Host)
	if err != nil {
		o.err = err
		return nil, err
	}
	return answer, nil
}

func (w *wire) send(r *http.Request) (*http.Response, error) {
	s := w.session
	if s.plugin == nil {
		authorize(r, s.id.token)
		return s.classes[w.class].pool.Load().RoundTrip(r)
	}
	got, err := s.plugin.get(r.Context(), nil)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // http.RoundTripper requires it
		}
		return nil, err
	}
	authorize(r, got.token)
	answer, err := s.classes[w.class].pool.Load().RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		if _, err := s.plugin.get(r.Context(), got); err != nil { // for the next try
			_ = answer.Body.Close()
			return nil, err
		}
	}
	return answer, err
}

func authorize(r *http.Request, token string) {
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
}

// checkAnswer checks whether an answer comes from an API server.
func checkAnswer(a *http.Response, o *outcome) error {
	o.code = a.StatusCode
	kind := a.Header.Get("Content-Type")
	o.structured, o.contentType = apiType(kind), kind
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && seconds > 0 {
		o.retryAfter = pod.Seconds(seconds)
	}
	var err error
	switch {
	case a.StatusCode >= 300 && a.StatusCode < 400: // redirects aren't followed: credentials are for this server alone
		err = &foreign{why: fmt.Sprintf("it answers with a redirection (%s), which an API server doesn't", a.Status)}
	case a.StatusCode < 300 && !o.structured:
		err = &foreign{why: fmt.Sprintf("it answers with %q (%s), which an API server doesn't", kind, a.Status)}
	case strange(a.StatusCode) && !o.structured:
		err = &foreign{why: fmt.Sprintf("it answers with %s and %q, which an API server doesn't", a.Status, kind),
			ofRequest: true}
	case a.StatusCode >= 300:
		a.Body = struct { // the body has the reason; a part of it is enough
			io.Reader
			io.Closer
		}{io.LimitReader(a.Body, maxSmall), a.Body}
	case o.most > 0:
		a.Body = &limited{ReadCloser: a.Body, what: "the answer", most: o.most, lost: &o.lost}
	}
	if err != nil {
		_ = a.Body.Close() // nobody reads it
	}
	return err
}

// strange reports whether an API server sends this status only with an error object in the body: if the body has no
// such object, the answer is from a proxy or another server.
func strange(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
		http.StatusTooManyRequests:
		return false
	}
	return code >= 400 && code < 500
}
