package secure

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
)

// anonymous is who nobody says to be (kubernetes.io/docs/reference/access-authn-authz/authentication).
const anonymous = "system:anonymous"

// AccessConfig says who may use the HTTPS server.
type AccessConfig struct {
	// ClientCAFile has the authorities that sign client certificates; empty for none.
	ClientCAFile string
	// Anonymous takes in requests that don't say who they are from.
	Anonymous bool
	// AlwaysAllow lets everybody who is taken in do everything; without it nobody may do anything.
	AlwaysAllow bool
	Log         logr.Logger
}

// Access decides who may use the HTTPS server.
type Access struct {
	conf AccessConfig

	mu    sync.Mutex
	seen  fs.FileInfo
	roots *x509.CertPool
	told  bool
}

// NewAccess returns who may use the server. Load reads the authorities first.
func NewAccess(c AccessConfig) *Access { return &Access{conf: c} }

// Load reads the authorities that sign client certificates. The error names the file and the setting.
func (a *Access) Load() error {
	_, err := a.authorities()
	return err
}

// authorities are those of the file; if it can't be used, the last ones that could.
func (a *Access) authorities() (*x509.CertPool, error) {
	if a.conf.ClientCAFile == "" {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	info, err := os.Stat(a.conf.ClientCAFile)
	if err == nil && a.roots != nil && unchanged(a.seen, info) {
		return a.roots, nil
	}
	roots := x509.NewCertPool()
	var text []byte
	if err == nil {
		text, err = os.ReadFile(a.conf.ClientCAFile)
	}
	if err == nil && !roots.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s has no certificate in PEM", a.conf.ClientCAFile)
	}
	if err == nil {
		a.seen, a.roots, a.told = info, roots, false
		return roots, nil
	}
	err = fmt.Errorf("the authorities of client certificates (authentication.x509.clientCAFile): %w", err)
	if a.roots == nil {
		return nil, err
	}
	if !a.told {
		a.told = true
		a.conf.Log.Error(err, "The last authorities that could be used count on")
	}
	return a.roots, nil
}

// user returns who a request is from, and false if that isn't to be believed.
func (a *Access) user(r *http.Request) (name string, ok bool) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return anonymous, a.conf.Anonymous && r.Header.Get("Authorization") == "" // nobody here knows tokens
	}
	roots, err := a.authorities()
	if roots == nil || err != nil {
		return "", false
	}
	chain := r.TLS.PeerCertificates
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil {
		a.conf.Log.V(2).Info("A client's certificate isn't accepted", "err", err.Error())
		return "", false
	}
	return chain[0].Subject.CommonName, chain[0].Subject.CommonName != ""
}

// guard lets in only those who may do what they ask for: what a kubelet calls a verb on a subresource of the node.
func (a *Access) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := a.user(r)
		if !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if !a.conf.AlwaysAllow {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=[%s])", name, verb(r.Method), subresource(r.URL.Path)), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}

// subresource is what a path is a part of (kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz).
func subresource(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case slices.Contains([]string{"healthz", "configz", "stats", "metrics", "checkpoint", "statusz", "pods"}, first):
		return first
	case first == "logs":
		return "log"
	case first == "runningpods":
		return "pods"
	case first == "flagz":
		return "configz"
	}
	return "proxy"
}
