package apiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/subprocess"
)

// pluginConfig configures a program that obtains credentials
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
//
// client-go's implementation isn't used: it runs the program without a time limit, and with the agent's standard input
// and error. A program that hangs would block the lease's renewals and the agent's exit.
type pluginConfig struct {
	APIVersion string   `json:"apiVersion"`
	Command    string   `json:"command"`
	Args       []string `json:"args"`
	Env        []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	InstallHint        string `json:"installHint"`
	ProvideClusterInfo bool   `json:"provideClusterInfo"`
	InteractiveMode    string `json:"interactiveMode"`

	// Cluster is the description of the cluster that is passed to the program. It isn't a field of the kubeconfig.
	Cluster *clientauthentication.Cluster `json:"-"`
}

const (
	// pluginLimit is the time limit of one run.
	pluginLimit = time.Minute
	// execExtension names the cluster's extension that is meant for the program.
	execExtension = "client.authentication.k8s.io/exec"
)

// prepare completes the configuration, or returns the invalid field and the reason.
func (p *pluginConfig) prepare(dir string, c *cluster, server *url.URL) (field, why string) {
	switch p.APIVersion {
	case "client.authentication.k8s.io/v1":
		if p.InteractiveMode == "" {
			return "interactiveMode", "it isn't set: a node needs Never or IfAvailable"
		}
	case "client.authentication.k8s.io/v1beta1":
	default:
		return "apiVersion", fmt.Sprintf("it is %q: it has to be client.authentication.k8s.io/v1 or v1beta1",
			p.APIVersion)
	}
	if p.InteractiveMode == "Always" {
		return "interactiveMode", "it is Always, but a node has nobody to ask: it has to be Never or IfAvailable"
	}
	if p.Command == "" {
		return "command", "it isn't set"
	}
	if strings.ContainsRune(p.Command, filepath.Separator) && !filepath.IsAbs(p.Command) {
		p.Command = filepath.Join(dir, p.Command)
	}
	if _, err := exec.LookPath(p.Command); err != nil {
		return "command", strings.TrimSpace(fmt.Sprintf("%v. %s", err, p.InstallHint))
	}
	if !p.ProvideClusterInfo || server == nil {
		return "", ""
	}
	p.Cluster = &clientauthentication.Cluster{Server: server.String(), TLSServerName: c.TLSServerName,
		InsecureSkipTLSVerify: c.Insecure, ProxyURL: c.ProxyURL, DisableCompression: c.DisableCompression}
	if data, err := base64.StdEncoding.DecodeString(c.CAData); err == nil && len(data) > 0 {
		p.Cluster.CertificateAuthorityData = data
	} else if c.CA != "" {
		path := c.CA
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		// The file was read before, and any error was reported then.
		p.Cluster.CertificateAuthorityData, _ = safeopen.ReadRegular(path, maxFile)
	}
	for _, e := range c.Extensions {
		if e.Name == execExtension {
			p.Cluster.Config = runtime.RawExtension{Raw: e.Extension}
		}
	}
	return "", ""
}

// pluginError says why a program returned no credentials.
type pluginError struct {
	command string
	err     error
	advice  string
}

func (p *pluginError) Error() string { return "credential plugin " + p.command + ": " + p.err.Error() }

func (p *pluginError) Unwrap() error { return p.err }

// gotten are the credentials that a program returned.
type gotten struct {
	token string
	cert  *tls.Certificate
	until time.Time
}

// leaf is the certificate (DER); nil if there is none.
func (g *gotten) leaf() []byte {
	if g.cert == nil {
		return nil
	}
	return g.cert.Certificate[0]
}

// plugin runs the program if its last credentials aren't valid any more.
type plugin struct {
	conf  *pluginConfig
	meter Meter
	// renewed is called when the certificate has changed.
	renewed func()
	// turn is held while the program runs, so that it runs once at a time.
	turn chan struct{}
	now  atomic.Pointer[gotten]
}

func newPlugin(c *pluginConfig, m Meter, renewed func()) *plugin {
	return &plugin{conf: c, meter: m, renewed: renewed, turn: make(chan struct{}, 1)}
}

// get returns the newest credentials. If they have expired, or if they are those that the server refused, it runs the
// program to get new ones.
func (p *plugin) get(ctx context.Context, refused *gotten) (*gotten, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	was := p.now.Load()
	if was != nil && was != refused && (was.until.IsZero() || time.Now().Before(was.until)) {
		return was, nil
	}
	now, err := p.run(ctx)
	if err != nil {
		return nil, &pluginError{p.conf.Command, err, p.conf.InstallHint}
	}
	p.now.Store(now)
	if was != nil && !bytes.Equal(was.leaf(), now.leaf()) {
		p.renewed()
	}
	return now, nil
}

// run runs the program once and returns the credentials that it printed.
func (p *plugin) run(ctx context.Context) (*gotten, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pluginLimit,
		fmt.Errorf("it took longer than %s and was ended", pluginLimit))
	defer cancel()
	ask := clientauthentication.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: p.conf.APIVersion, Kind: "ExecCredential"},
		Spec:     clientauthentication.ExecCredentialSpec{Cluster: p.conf.Cluster}}
	info, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	program := subprocess.Program{Path: p.conf.Command, Args: p.conf.Args}
	for _, e := range p.conf.Env {
		program.Env = append(program.Env, e.Name+"="+e.Value)
	}
	program.Env = append(program.Env, "KUBERNETES_EXEC_INFO="+string(info))
	out, err := program.Run(ctx, nil, "")
	p.meter.PluginCalled(pluginCall(err))
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("it doesn't end: %w", err)
		}
		return nil, err
	}
	return p.read(out)
}

// read decodes the program's output, which is secret: errors must not quote it.
func (p *plugin) read(text []byte) (*gotten, error) {
	var credential clientauthentication.ExecCredential
	switch err := json.Unmarshal(text, &credential); {
	case err != nil:
		return nil, errors.New("it doesn't print an ExecCredential in JSON")
	case credential.APIVersion != p.conf.APIVersion:
		return nil, fmt.Errorf("it prints an ExecCredential of apiVersion %q, not %s", credential.APIVersion,
			p.conf.APIVersion)
	case credential.Status == nil || credential.Status.Token == "" && credential.Status.ClientCertificateData == "":
		return nil, errors.New("the ExecCredential that it prints has neither a token nor a certificate")
	}
	g := &gotten{token: credential.Status.Token}
	if credential.Status.ExpirationTimestamp != nil {
		g.until = credential.Status.ExpirationTimestamp.Time
	}
	if credential.Status.ClientCertificateData != "" {
		pair, err := tls.X509KeyPair([]byte(credential.Status.ClientCertificateData),
			[]byte(credential.Status.ClientKeyData))
		if err != nil {
			return nil, fmt.Errorf("the certificate that it prints: %w", err)
		}
		g.cert = &pair
	}
	return g, nil
}

// pluginCall returns the exit code and status under which client-go's metrics count a run.
func pluginCall(err error) (code int, status string) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, "no_error"
	case errors.As(err, &exit):
		return exit.ExitCode(), "plugin_execution_error"
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return 1, "plugin_not_found_error"
	default:
		return 1, "client_internal_error"
	}
}
