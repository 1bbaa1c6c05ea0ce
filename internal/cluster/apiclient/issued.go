package apiclient

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// ClientCertificate is the client certificate for the API server of a kubeconfig; nil for a kubeconfig with other
// credentials. rotated is Config.Rotated.
func ClientCertificate(kubeconfig, rotated string) (*tls.Certificate, error) {
	id, _, err := readKubeconfig(kubeconfig, rotated, time.Now())
	if err != nil {
		return nil, err
	}
	return id.cert, nil
}

// CheckKubeconfig reads a kubeconfig, and the files that it names, as a client does. The error says why a client
// can't use it, or why the API server won't accept its credentials. The warning is any lesser problem; empty for
// none. rotated is Config.Rotated.
func CheckKubeconfig(path, rotated string, now time.Time) (warning string, err error) {
	id, _, err := readKubeconfig(path, rotated, now)
	switch {
	case err != nil:
		return "", err
	case id.expired:
		return "", &problem{path: path, why: errors.New(id.warning)}
	case id.warning != "":
		return id.warning, nil
	case id.cert == nil && id.token == "" && id.plugin == nil:
		return "", &problem{path, "users[" + id.userName + "].user",
			errors.New("it has no credentials: neither a client certificate, nor a token, nor exec")}
	}
	return "", nil
}

// IssuedKubeconfig returns a kubeconfig for the API server of the kubeconfig bootstrap. certificate is the path of
// the file with the client certificate and its key. The names of the cluster, user and context are those that the
// kubelet writes.
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
		"contexts": named("context",
			"default-context", map[string]string{"cluster": "default-cluster", "user": "default-auth",
				"namespace": "default"}),
		"clusters": named("cluster", "default-cluster", r.server),
		"users": named("user",
			"default-auth", map[string]string{"client-certificate": certificate, "client-key": certificate}),
	})
}
