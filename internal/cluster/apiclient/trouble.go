package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Error says why a call of the API server failed, and how to correct the failure. It wraps the server's answer
// (k8s.io/apimachinery/pkg/api/errors), or the reason why there is no answer.
type Error struct {
	// Server is the API server's URL; empty if no kubeconfig could be read.
	Server string
	Err    error
	// Advice is the suggested remedy; empty if the caller has to give one.
	Advice string

	trouble    trouble
	retryAfter time.Duration
}

// Error renders the error on one line.
func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Server != "" {
		text = "API server " + e.Server + ": " + text
	}
	if e.Advice != "" {
		text += ": " + e.Advice
	}
	return text
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Unusable reports whether a call failed because the server can't be used at all. The client logs that once, for all
// callers.
func Unusable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.trouble > own
}

// Refused reports whether a call failed because the server doesn't accept the client's credentials.
func Refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.trouble == badCredentials
}

// trouble is a kind of failure. Kinds after own affect all calls, not only this one.
type trouble int

const (
	// noTrouble is an answer of an API server.
	noTrouble trouble = iota
	// own is a failure that says nothing about the server.
	own
	badKubeconfig
	badCredentials
	badPlugin
	badName
	refused
	unreachable
	unresponsive
	wrongCA
	wrongHost
	serverExpired
	notTLS
	clientRefused
	notAPI
	unavailable
	broken
)

// lost reports whether a call failed because the server, or the network to it, was down.
func lost(err error) bool {
	var e *Error
	return errors.As(err, &e) &&
		slices.Contains([]trouble{badName, refused, unreachable, unavailable, broken}, e.trouble)
}

// foreign is an answer that doesn't come from an API server.
type foreign struct {
	why string
	// ofRequest says that the sender, such as a proxy, may refuse only this request.
	ofRequest bool
}

func (f *foreign) Error() string { return f.why }

// errUnresponsive is the cause when a server accepts a request, but doesn't answer in time.
var errUnresponsive = errors.New("it accepts connections and doesn't answer")

// diagnose explains the failure of a call to a server.
func diagnose(err error, o *outcome, id *identity) *Error {
	e := &Error{Server: id.server.String(), Err: err, retryAfter: o.retryAfter}
	if o.err != nil {
		err = o.err // as the transport returned it
	}
	explain := func(kind trouble, why error, advice string) *Error {
		e.trouble, e.Advice = kind, advice
		if why != nil {
			e.Err = why
		}
		return e
	}
	ca, user := id.field("certificate-authority"), id.userField()
	var (
		plugin    *pluginError
		other     *foreign
		large     *tooLarge
		dns       *net.DNSError
		unknownCA x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		op        *net.OpError
	)
	switch code := codeOf(err); {
	case errors.As(err, &plugin):
		return explain(badPlugin, plugin, plugin.advice)
	case errors.As(err, &large):
		return explain(noTrouble, large,
			"a node doesn't need such a large response: check the objects in the API server, and proxies in between")
	case errors.As(err, &other):
		return explain(notAPI, other, "check "+id.field("server")+", and proxies between this node and the API server")
	case code == http.StatusUnauthorized:
		return explain(badCredentials, nil, user+" doesn't have credentials that the server accepts"+id.note())
	case code == http.StatusServiceUnavailable, code == http.StatusBadGateway, code == http.StatusGatewayTimeout &&
		!o.structured:
		return explain(unavailable, nil,
			"it is starting or stopping, or its load balancer has no backend: check its log")
	case code != 0:
		return e // an answer to this call
	case !o.asked:
		return explain(own, nil, "")
	case o.structured && o.code < 300 && o.lost == nil:
		return explain(noTrouble, fmt.Errorf("its answer can't be decoded: %w", err), "")
	case errors.As(err, &dns):
		return explain(badName, dns, "check the name in "+id.field("server")+" and this machine's resolver")
	case errors.As(err, &unknownCA):
		return explain(wrongCA, unknownCA, "its certificate must be signed by an authority in "+ca)
	case errors.As(err, &host):
		return explain(wrongHost, host,
			"use one of these names in "+id.field("server")+", or set "+id.field("tls-server-name"))
	case errors.As(err, &invalid):
		return explain(serverExpired, invalid,
			"renew the server's certificate; if it is valid, this machine's clock is wrong")
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return explain(notTLS, fmt.Errorf("it doesn't speak TLS: %w", err),
			"check scheme and port in "+id.field("server"))
	case errors.As(err, &op) && op.Op == "remote error":
		return explain(clientRefused, fmt.Errorf("it refused the TLS handshake: %w", cause(err)),
			"check the client certificate in "+user+id.note())
	case errors.Is(err, syscall.ECONNREFUSED):
		return explain(refused, cause(err),
			"nothing listens there: check that the API server runs, and "+id.field("server"))
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return explain(unreachable, cause(err), "check this machine's network and "+id.field("server"))
	case isTimeout(err) && errors.As(err, &op) && op.Op == "dial":
		return explain(unreachable, cause(err), "check the network and firewalls between this node and the API server")
	case isTimeout(err):
		return explain(unresponsive, errUnresponsive,
			"check the API server's log, and the network between this node and it")
	default:
		return explain(broken, cause(err),
			"check the API server's log, and the network between this node and it"+id.note())
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, errUnresponsive) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &n) && n.Timeout()
}

// cause strips the request from an error of net or crypto/tls.
func cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op
	}
	return err
}

// apiType reports whether a body of this type may come from an API server.
func apiType(contentType string) bool {
	plain, _, _ := strings.Cut(contentType, ";")
	switch strings.TrimSpace(strings.ToLower(plain)) {
	case "application/json", "application/vnd.kubernetes.protobuf":
		return true
	}
	return false
}

// ofCall reports whether a failure affects only one call: another call was answered since this one began, or a proxy
// may have refused the request itself.
func (s *session) ofCall(class Class, o *outcome, e *Error) bool {
	lastAnswer := s.lastAnswer.Load()
	var other *foreign
	switch {
	case lastAnswer == nil:
		return false
	case errors.As(e.Err, &other):
		return other.ofRequest && class != Heartbeat // heartbeats are all alike
	}
	return (e.trouble == unresponsive || e.trouble == broken) && lastAnswer.After(o.began)
}
