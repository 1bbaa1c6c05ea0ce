// Package secure is the agent's HTTPS server: its certificate, authentication, authorization and table of routes.
package secure

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Config configures the server.
type Config struct {
	Addr        netip.AddrPort
	Certificate *Certificate
	Access      *Access
	// CipherSuites, Curves and MinVersion are the fields tlsCipherSuites, tlsCurvePreferences and tlsMinVersion of the
	// configuration, which has validated them.
	CipherSuites []string
	Curves       []int32
	MinVersion   string
	Routes       []Route
	// Meter counts the requests.
	Meter Meter
	// Tracer traces each request, as part of the trace in the request's headers; nil for no tracing.
	Tracer trace.TracerProvider
	Log    logr.Logger
}

// Meter counts requests by method, path and whether they are streams.
type Meter interface {
	StartRequest(method, path string, stream bool) (done func())
}

// Listener returns the listener of the HTTPS server.
func Listener(c Config) (server.Listener, error) {
	suites, errSuites := cliflag.TLSCipherSuites(c.CipherSuites)
	curves, errCurves := cliflag.TLSCurvePreferences(c.Curves)
	oldest, errVersion := cliflag.TLSVersion(c.MinVersion)
	if err := errors.Join(errSuites, errCurves, errVersion); err != nil {
		return server.Listener{}, err
	}
	if len(suites) == 0 && oldest >= tls.VersionTLS12 { // versions before TLS 1.2 need other suites
		suites = defaultSuites()
	}
	return server.Listener{
		Name: "https", Addr: c.Addr, Setting: "port in the file of --config", Handler: serve(c),
		MaxHeader: local.MaxHeader,
		TLS: &tls.Config{
			MinVersion: oldest, CipherSuites: suites, CurvePreferences: curves,
			NextProtos: []string{"h2", "http/1.1"}, // exec, attach and port-forward need HTTP/1.1
			// A client certificate is verified later, so that a rejected client gets an HTTP answer.
			ClientAuth:     tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Certificate.current() },
		},
		Load: func() {
			// An error must not keep pods from running. Certificate and CA certificates are read again at the next
			// connection.
			if err := c.Certificate.Load(); err != nil {
				c.Log.Error(err, "Nobody can connect to the HTTPS server until that is corrected")
			}
			if err := c.Access.Load(); err != nil {
				c.Log.Error(err, "The HTTPS server accepts no client certificate until that is corrected")
			}
		},
	}, nil
}

// defaultSuites returns the cipher suites of TLS 1.2 with forward secrecy and authenticated encryption. Go's defaults
// also contain suites with CBC and SHA-1, which no client of a kubelet needs. TLS 1.3 needs no list: all of its suites
// have these properties.
func defaultSuites() []uint16 {
	var suites []uint16
	for _, s := range tls.CipherSuites() {
		old := slices.Contains(s.SupportedVersions, tls.VersionTLS12)
		if old && strings.HasPrefix(s.Name, "TLS_ECDHE_") && !strings.Contains(s.Name, "_CBC_") {
			suites = append(suites, s.ID)
		}
	}
	return suites
}

// bodyTimeout is how long the body of a request may take to arrive, for routes that read it.
const bodyTimeout = 5 * time.Second
