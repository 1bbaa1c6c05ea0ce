package apiclient

import (
	"crypto/tls"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// ClientCertificate is the one that is shown to the API server of a kubeconfig, nil if that has another kind of credentials. rotated is
// Config's.
func ClientCertificate(kubeconfig, rotated string) (*tls.Certificate, error) {
	id, _, err := readKubeconfig(kubeconfig, rotated, time.Now())
	if err != nil {
		return nil, err
	}
	return id.cert, nil
}

// IssuedKubeconfig is a kubeconfig for the API server of another one, with the client certificate and its key that are in a file. Its names
// are those that a kubelet gives them.
func IssuedKubeconfig(bootstrap, certificate string) ([]byte, error) {
	r := &reading{id: &identity{path: bootstrap}}
	if r.read(time.Now()); r.err != nil {
		return nil, r.err
	}
	if r.server.CA != "" && !filepath.IsAbs(r.server.CA) {
		r.server.CA = filepath.Join(filepath.Dir(bootstrap), r.server.CA)
	}
	named := func(what, name string, value any) []any { return []any{map[string]any{"name": name, what: value}} }
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "default-context",
		"contexts": named("context", "default-context", map[string]string{"cluster": "default-cluster", "user": "default-auth", "namespace": "default"}),
		"clusters": named("cluster", "default-cluster", r.server),
		"users":    named("user", "default-auth", map[string]string{"client-certificate": certificate, "client-key": certificate}),
	})
}
