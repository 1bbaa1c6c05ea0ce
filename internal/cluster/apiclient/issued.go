package apiclient

import (
	"crypto/tls"
	"errors"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// ClientCertificate is the one that is shown to the API server of a kubeconfig, nil if that has another kind of
// credentials. rotated is Config's.
func ClientCertificate(kubeconfig, rotated string) (*tls.Certificate, error) {
	id, _, err := readKubeconfig(kubeconfig, rotated, time.Now())
	if err != nil {
		return nil, err
	}
	return id.cert, nil
}

// CheckKubeconfig reads a kubeconfig, and the files that it names, as a client does: the error is why a client can't
// use it, or why the API server won't know who it is by it. The warning is what a person should know otherwise; empty
// for nothing. rotated is Config's.
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

// IssuedKubeconfig is a kubeconfig for the API server of another one, with the client certificate and its key that are
// in a file. Its names are those that a kubelet gives them.
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
