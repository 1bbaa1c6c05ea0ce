package apiclient

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// document has the fields of a kubeconfig that are used
// (https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/). The fields with base64 data are strings, not
// bytes, so that an error can name the field.
type document struct {
	Kind           string `json:"kind"`
	APIVersion     string `json:"apiVersion"`
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string  `json:"name"`
		Cluster cluster `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User user   `json:"user"`
	} `json:"users"`
}

type cluster struct {
	Server             string `json:"server,omitempty"`
	TLSServerName      string `json:"tls-server-name,omitempty"`
	Insecure           bool   `json:"insecure-skip-tls-verify,omitempty"`
	CA                 string `json:"certificate-authority,omitempty"`
	CAData             string `json:"certificate-authority-data,omitempty"`
	ProxyURL           string `json:"proxy-url,omitempty"`
	DisableCompression bool   `json:"disable-compression,omitempty"`
	Extensions         []struct {
		Name      string          `json:"name"`
		Extension json.RawMessage `json:"extension"`
	} `json:"extensions,omitempty"`
}

type user struct {
	Certificate     string          `json:"client-certificate"`
	CertificateData string          `json:"client-certificate-data"`
	Key             string          `json:"client-key"`
	KeyData         string          `json:"client-key-data"`
	Token           string          `json:"token"`
	TokenFile       string          `json:"tokenFile"`
	Exec            *pluginConfig   `json:"exec"`
	As              string          `json:"as"`
	Username        string          `json:"username"`
	AuthProvider    json.RawMessage `json:"auth-provider"`
}

// identity is a kubeconfig with the contents of all files that it names: a server, and this node's credentials there.
type identity struct {
	path, clusterName, userName string

	server        *url.URL
	serverName    string
	insecure      bool
	roots         *x509.CertPool // nil for the machine's CAs
	proxy         *url.URL
	noCompression bool

	cert   *tls.Certificate
	token  string
	plugin *pluginConfig

	// warning is a problem of a kubeconfig that is used nevertheless, such as an expired certificate.
	warning string
	expired bool
	// sum is a hash that changes with any other field.
	sum [sha256.Size]byte
}

// problem is an error in a kubeconfig.
type problem struct {
	path, field string
	why         error
}

func (p *problem) Error() string {
	if p.field == "" {
		return "kubeconfig " + p.path + ": " + p.why.Error()
	}
	return "kubeconfig " + p.path + ": " + p.field + ": " + p.why.Error()
}

func (p *problem) Unwrap() error { return p.why }

// field names a field of the cluster in messages.
func (id *identity) field(name string) string {
	return fmt.Sprintf("clusters[%s].cluster.%s of %s", id.clusterName, name, id.path)
}

func (id *identity) userField() string {
	return fmt.Sprintf("users[%s].user of %s", id.userName, id.path)
}

func (id *identity) note() string {
	if id.warning == "" {
		return ""
	}
	return " (" + id.warning + ")"
}

// reading is the state of one attempt to read a kubeconfig.
type reading struct {
	id *identity
	// files are the kubeconfig and the files that it names, whether they could be read or not.
	files []string
	sum   []byte
	err   *problem
	// server is the cluster of the current context.
	server *cluster
	// rotated is a file that may have a newer certificate.
	rotated string
}

// readKubeconfig reads a kubeconfig and the files that it names. It returns the files' paths even with an error.
// rotated is Config.Rotated.
func readKubeconfig(path, rotated string, now time.Time) (*identity, []string, error) {
	r := &reading{id: &identity{path: path}, files: []string{path}, rotated: rotated}
	r.read(now)
	if r.err != nil {
		return nil, r.files, r.err
	}
	r.id.sum = sha256.Sum256(r.sum)
	return r.id, r.files, nil
}

// fail records the first error.
func (r *reading) fail(field, format string, args ...any) {
	if r.err == nil {
		r.err = &problem{r.id.path, field, fmt.Errorf(format, args...)}
	}
}

func (r *reading) read(now time.Time) {
	text, err := safeopen.ReadRegular(r.id.path, maxFile)
	if err != nil {
		r.fail("", "%w", err)
		return
	}
	if len(bytes.TrimSpace(text)) == 0 {
		r.fail("", "the file is empty")
		return
	}
	var doc document
	if err := yaml.Unmarshal(text, &doc); err != nil {
		if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
			r.fail(kind.Field, "a value of type %s is needed, not %s", kind.Type, kind.Value)
		} else {
			r.fail("", "it can't be read as YAML: %v", err)
		}
		return
	}
	switch {
	case doc.Kind != "" && doc.Kind != "Config":
		r.fail("kind", "it is %q, a kubeconfig has Config", doc.Kind)
	case doc.APIVersion != "" && doc.APIVersion != "v1":
		r.fail("apiVersion", "it is %q, a kubeconfig has v1", doc.APIVersion)
	}
	c, u := r.choose(&doc)
	if r.err != nil {
		return
	}
	r.server = c
	r.cluster(c)
	r.user(u, c, now)
	r.sum = fmt.Appendf(r.sum, "%q %q %t %t %q %q", r.id.server, c.TLSServerName, c.Insecure, c.DisableCompression,
		c.ProxyURL, r.id.token)
	if r.id.plugin != nil {
		text, _ := json.Marshal(r.id.plugin) // it was decoded from JSON
		r.sum = append(r.sum, text...)
	}
}

// choose finds the current context's cluster and user.
func (r *reading) choose(doc *document) (*cluster, *user) {
	var names []string
	for i := range doc.Contexts {
		c := &doc.Contexts[i]
		names = append(names, c.Name)
		if c.Name != doc.CurrentContext || doc.CurrentContext == "" {
			continue
		}
		r.id.clusterName, r.id.userName = c.Context.Cluster, c.Context.User
		var found *cluster
		var foundUser *user
		for j := range doc.Clusters {
			if doc.Clusters[j].Name == c.Context.Cluster {
				found = &doc.Clusters[j].Cluster
			}
		}
		for j := range doc.Users {
			if doc.Users[j].Name == c.Context.User {
				foundUser = &doc.Users[j].User
			}
		}
		field := "contexts[" + c.Name + "].context."
		switch {
		case c.Context.Cluster == "":
			r.fail(field+"cluster", "it isn't set")
		case found == nil:
			r.fail(field+"cluster", "there is no cluster %q in clusters", c.Context.Cluster)
		case c.Context.User == "":
			r.fail(field+"user", "it isn't set")
		case foundUser == nil:
			r.fail(field+"user", "there is no user %q in users", c.Context.User)
		}
		return found, foundUser
	}
	switch {
	case len(names) == 0:
		r.fail("contexts", "there is none")
	case doc.CurrentContext == "":
		r.fail("current-context", "it isn't set: it has to name one of the contexts %s", strings.Join(names, ", "))
	default:
		r.fail("current-context", "there is no context %q, only %s", doc.CurrentContext, strings.Join(names, ", "))
	}
	return nil, nil
}

func (r *reading) cluster(c *cluster) {
	at := "clusters[" + r.id.clusterName + "].cluster."
	r.id.server = r.url(at+"server", c.Server, "https", "http")
	if s := r.id.server; s != nil && s.User != nil {
		r.fail(at+"server", "it has a user name: credentials belong into users")
	}
	if c.ProxyURL != "" {
		r.id.proxy = r.url(at+"proxy-url", c.ProxyURL, "http", "https", "socks5")
	}
	r.id.serverName, r.id.insecure, r.id.noCompression = c.TLSServerName, c.Insecure, c.DisableCompression
	ca, field := r.content(at+"certificate-authority", c.CA, c.CAData)
	switch {
	case field == "":
	case c.Insecure:
		r.fail(at+"insecure-skip-tls-verify", "it can't be true beside %s", strings.TrimPrefix(field, at))
	default:
		r.id.roots = x509.NewCertPool()
		if !r.id.roots.AppendCertsFromPEM(ca) {
			r.fail(field, "there is no certificate in PEM format in it")
		}
	}
}

// url parses a URL with one of the schemes.
func (r *reading) url(field, text string, schemes ...string) *url.URL {
	if text == "" {
		r.fail(field, "it isn't set")
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme):
		r.fail(field, "it isn't a URL like %s://HOST:PORT", schemes[0]) // not quoted: it may have a password
	case u.Hostname() == "":
		r.fail(field, "%s has no host", u.Redacted())
	}
	return u
}

func (r *reading) user(u *user, c *cluster, now time.Time) {
	at := "users[" + r.id.userName + "].user."
	switch {
	case u.As != "":
		r.fail(at+"as", "a node can't act as another user")
	case u.Username != "":
		r.fail(at+"username", "API servers don't take passwords any more: use a client certificate or a token")
	case len(u.AuthProvider) > 0 && string(u.AuthProvider) != "null":
		r.fail(at+"auth-provider", "Kubernetes has removed it: use exec")
	}
	r.certificate(at, u, now)
	r.bearer(at, u)
	if u.Exec != nil && r.id.cert == nil && r.id.token == "" {
		r.id.plugin = u.Exec
		if field, why := u.Exec.prepare(filepath.Dir(r.id.path), c, r.id.server); why != "" {
			r.fail(at+"exec."+field, "%s", why)
		}
	}
	if r.id.server != nil && r.id.server.Scheme == "http" && (u.Exec != nil || r.id.cert != nil || r.id.token != "") {
		// kubectl and the kubelet don't send credentials over plain HTTP, either.
		r.id.cert, r.id.token, r.id.plugin = nil, "", nil
		r.id.warning = "the server isn't asked over https, so it gets no credentials"
	}
}

func (r *reading) certificate(at string, u *user, now time.Time) {
	cert, certField := r.content(at+"client-certificate", u.Certificate, u.CertificateData)
	key, keyField := r.content(at+"client-key", u.Key, u.KeyData)
	switch {
	case certField == "" && keyField == "", r.err != nil:
		return
	case certField == "":
		r.fail(at+"client-certificate", "it isn't set, though client-key is")
		return
	case keyField == "":
		r.fail(at+"client-key", "it isn't set, though client-certificate is")
		return
	}
	leaf, err := firstCertificate(cert)
	if err != nil {
		r.fail(certField, "%v", err)
		return
	}
	if !hasKey(key) {
		r.fail(keyField, "there is no private key in PEM format in it")
		return
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		r.fail(keyField, "it isn't the key of the certificate in %s, or can't be read: %v",
			strings.TrimPrefix(certField, at), err)
		return
	}
	r.id.cert = &pair
	if r.renewed(u, now) {
		leaf, certField = r.id.cert.Leaf, r.rotated
	}
	if now.After(leaf.NotAfter) {
		// The certificate is used nevertheless: the server's clock decides, not this machine's.
		r.id.expired, r.id.warning = true,
			fmt.Sprintf("%s has expired at %s", certField, leaf.NotAfter.Format(time.RFC3339))
	}
}

// renewed uses the rotated certificate if it is newer than the kubeconfig's and for the same user, unless only the
// rotated one has expired. A signer may change the subject, so users are compared by common name.
func (r *reading) renewed(u *user, now time.Time) bool {
	if r.rotated == "" || u.CertificateData == "" && u.Certificate == r.rotated {
		return false
	}
	text, err := r.file(r.rotated)
	if err != nil {
		return false // there is none yet
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return false
	}
	has, next := r.id.cert.Leaf, pair.Leaf
	if next.Subject.CommonName != has.Subject.CommonName || !next.NotBefore.After(has.NotBefore) ||
		now.After(next.NotAfter) && !now.After(has.NotAfter) {
		return false
	}
	r.id.cert, r.sum = &pair, append(r.sum, text...)
	return true
}

func (r *reading) bearer(at string, u *user) {
	field, token := at+"token", u.Token
	if u.TokenFile != "" {
		field = at + "tokenFile"
		text, err := r.file(u.TokenFile)
		if err != nil {
			r.fail(field, "%w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			r.fail(field, "%s is empty", u.TokenFile)
		}
	}
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		r.fail(field, "it has characters that a token can't have")
	}
	r.id.token = token
}

// content returns the value of a field: the field's data or, without data, the content of its file. from names the
// field that has the value; it is empty if neither is set.
func (r *reading) content(field, path, data string) (content []byte, from string) {
	var err error
	switch {
	case data != "":
		from = field + "-data"
		if content, err = base64.StdEncoding.DecodeString(data); err != nil {
			r.fail(from, "it isn't base64: %v", err)
		}
	case path != "":
		from = field
		if content, err = r.file(path); err != nil {
			r.fail(from, "%w", err)
		}
	}
	r.sum = fmt.Appendf(r.sum, "%s %q ", from, content)
	return content, from
}

// file reads a file that the kubeconfig names.
func (r *reading) file(path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.id.path), path)
	}
	r.files = append(r.files, path)
	text, err := safeopen.ReadRegular(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// maxFile bounds the kubeconfig and each file that it names, in bytes.
const maxFile = 1 << 20

func firstCertificate(text []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New("there is no certificate in PEM format in it")
}

func hasKey(text []byte) bool {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return true
		}
	}
	return false
}
