// Package secure is the agent's HTTPS server: its certificate, who may use it, and the table of what it serves.
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

// Config says what the server is.
type Config struct {
	Addr        netip.AddrPort
	Certificate *Certificate
	Access      *Access
	// CipherSuites, Curves and MinVersion are the configuration's, which has checked them.
	CipherSuites []string
	Curves       []int32
	MinVersion   string
	Routes       []Route
	// Meter counts the requests.
	Meter Meter
	// Tracer has a span begun for each request, as part of the trace that the request says it belongs to; nil for none.
	Tracer trace.TracerProvider
	Log    logr.Logger
}

// Meter counts requests: by their method, path and whether they may take long.
type Meter interface {
	Begin(method, path string, stream bool) (done func())
}

// Listener is where it is all served.
func Listener(c Config) (server.Listener, error) {
	suites, errSuites := cliflag.TLSCipherSuites(c.CipherSuites)
	curves, errCurves := cliflag.TLSCurvePreferences(c.Curves)
	oldest, errVersion := cliflag.TLSVersion(c.MinVersion)
	if err := errors.Join(errSuites, errCurves, errVersion); err != nil {
		return server.Listener{}, err
	}
	if len(suites) == 0 && oldest >= tls.VersionTLS12 { // who allows older versions wants their suites, too
		suites = defaultSuites()
	}
	return server.Listener{
		Name: "https", Addr: c.Addr, Setting: "port in the file of --config", Handler: serve(c),
		MaxHeader: local.MaxHeader,
		TLS: &tls.Config{
			MinVersion: oldest, CipherSuites: suites, CurvePreferences: curves,
			NextProtos: []string{"h2", "http/1.1"}, // streams of exec, attach and port-forward take the latter
			// Whose certificate isn't accepted is told so in an answer.
			ClientAuth:     tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Certificate.current() },
		},
		Load: func() {
			// No pod is kept from running for what can't be read. Both are read again when somebody asks.
			if err := c.Certificate.Load(); err != nil {
				c.Log.Error(err, "Nobody can connect to the HTTPS server until that is corrected")
			}
			if err := c.Access.Load(); err != nil {
				c.Log.Error(err, "The HTTPS server accepts no client certificate until that is corrected")
			}
		},
	}, nil
}

// defaultSuites are those of TLS 1.2 with forward secrecy and authenticated encryption: Go's own defaults have CBC with
// SHA-1 as well, which no client of a kubelet needs. TLS 1.3 has no others.
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

// bodyTimeout is how long the body of a request may take, where one is wanted.
const bodyTimeout = 5 * time.Second
