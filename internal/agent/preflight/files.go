package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/certificates"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired/file"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/image/credentials/provider"
	"github.com/deckhand-node/deckhand/internal/runtime/dns"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// fileCheck checks what one setting names.
type fileCheck struct {
	// setting is the path of a field, or a flag as it is written: "--kubeconfig".
	setting string
	// path is what the setting names, a file, directory or endpoint; nothing is checked where it is empty.
	path string
	// check opens it as the agent does. Notes are what a person should know although the agent can use it.
	check func(path string) (notes []string, err error)
	// advice is what to do about an error, unless the error says so.
	advice string
	// noteOnly makes an error a note: the agent starts without the file, which may come later.
	noteOnly bool
}

// Files opens the files that a configuration names, as an agent does that is started at the time now, and changes
// nothing. It returns what is wrong with them, and notes: what a person should know otherwise, and what this process
// isn't permitted to open. What an agent makes itself may be missing.
func Files(ctx context.Context, cfg *config.Config, now time.Time) (problems []config.Problem, notes []string) {
	return checkFiles(ctx, cfg, now, os.Geteuid() == 0)
}

// checkFiles is Files. root says that missing permission is no matter of who runs this.
func checkFiles(
	ctx context.Context, cfg *config.Config, now time.Time, root bool,
) (problems []config.Problem, notes []string) {
	for _, c := range fileChecks(ctx, cfg, now) {
		if c.path == "" {
			continue
		}
		more, err := c.check(c.path)
		for _, text := range more {
			notes = append(notes, c.setting+": "+text)
		}
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrPermission) && !root:
			notes = append(notes, c.setting+": "+c.path+" wasn't checked: permission denied; run this command as root")
		default:
			for line := range strings.Lines(err.Error()) {
				text := c.explain(strings.TrimSpace(line))
				if c.noteOnly {
					notes = append(notes, c.setting+": "+text)
				} else {
					problems = append(problems, cfg.Problem(c.setting, text))
				}
			}
		}
	}
	return problems, notes
}

// explain makes a message of an error: it names the path, and says what to do.
func (c *fileCheck) explain(text string) string {
	text = strings.TrimPrefix(text, c.setting+": ")
	if !strings.Contains(text, c.path) {
		text = c.path + ": " + text
	}
	if c.advice != "" {
		text += "; " + c.advice
	}
	return text
}

// fileChecks are the files that an agent opens because a setting names them. Those of --config and --config-dir have
// been read.
func fileChecks(ctx context.Context, cfg *config.Config, now time.Time) []fileCheck {
	k := &cfg.Kubelet
	kubeconfig, bootstrap := kubeconfigChecks(cfg, now)
	providers, clientCA := cfg.CredentialProviders, k.Authentication.X509.ClientCAFile
	return []fileCheck{
		kubeconfig,
		bootstrap,
		{setting: "--offline-secrets-key", path: cfg.OfflineSecretsKey, check: only(lastknown.CheckKeys),
			advice: "without the key no Secrets are kept for when the API server is away"},
		{setting: "--image-credential-provider-config", path: providers.Config,
			check: func(path string) ([]string, error) {
				return nil, checkProviders(path, providers.BinDir)
			}},
		{setting: "--lock-file", path: cfg.LockFile, check: only(checkLockFile),
			advice: "correct --lock-file, or create the directory"},
		{setting: "--embedded-bin-dir", path: embeddedBinDir(cfg), check: only(checkBinDir)},
		{setting: "staticPodPath", path: k.StaticPodPath, check: checkManifests},
		{setting: "tlsCertFile", path: k.TLSCertFile, check: func(path string) ([]string, error) {
			return nil, checkPair(path, k.TLSPrivateKeyFile, now)
		}, advice: "tlsCertFile and tlsPrivateKeyFile have to name a certificate that is valid, and its key, in PEM"},
		{setting: "authentication.x509.clientCAFile", path: clientCA, check: func(path string) ([]string, error) {
			_, err := secure.ReadAuthorities(path)
			return nil, err
		}, advice: "it has to have the certificates of those who sign client certificates, in PEM"},
		{setting: "resolvConf", path: ptr.Deref(k.ResolverConfig, ""), check: only(dns.CheckFile)},
		{setting: "containerRuntimeEndpoint", path: k.ContainerRuntimeEndpoint, check: socketCheck(ctx),
			noteOnly: true},
		{setting: "imageServiceEndpoint", path: k.ImageServiceEndpoint, check: socketCheck(ctx), noteOnly: true},
	}
}

// only is a check that has no notes.
func only(check func(path string) error) func(string) ([]string, error) {
	return func(path string) ([]string, error) { return nil, check(path) }
}

// kubeconfigChecks are those of --kubeconfig and --bootstrap-kubeconfig. The agent writes the first with the second
// while it can't be used; from then on it does without the second.
func kubeconfigChecks(cfg *config.Config, now time.Time) (kubeconfig, bootstrap fileCheck) {
	rotated := ""
	if cfg.Kubelet.RotateCertificates {
		rotated = certificates.ClientFile(cfg.CertDir)
	}
	check := func(path string) ([]string, error) { return checkKubeconfig(path, rotated, now) }
	kubeconfig = fileCheck{setting: "--kubeconfig", path: cfg.Kubeconfig, check: check,
		advice: "correct the file, or name another one with --kubeconfig"}
	bootstrap = fileCheck{setting: "--bootstrap-kubeconfig", path: cfg.BootstrapKubeconfig,
		check: func(path string) ([]string, error) { return checkKubeconfig(path, "", now) },
		advice: "correct the file (`kubeadm token create` makes a new token), " +
			"or name another one with --bootstrap-kubeconfig"}
	if cfg.BootstrapKubeconfig == "" {
		return kubeconfig, bootstrap
	}
	_, own := check(cfg.Kubeconfig)
	switch {
	case errors.Is(own, fs.ErrNotExist):
		kubeconfig.path = "" // it will be written
	case own != nil:
		kubeconfig.noteOnly, kubeconfig.advice = true, "the agent replaces it, with --bootstrap-kubeconfig"
	default:
		inner := bootstrap.check
		bootstrap.check = func(path string) ([]string, error) {
			notes, err := inner(path)
			if errors.Is(err, fs.ErrNotExist) {
				return notes, nil // it has done its work
			}
			return notes, err
		}
	}
	return kubeconfig, bootstrap
}

func checkKubeconfig(path, rotated string, now time.Time) ([]string, error) {
	warning, err := apiclient.CheckKubeconfig(path, rotated, now)
	if err != nil || warning == "" {
		return nil, err
	}
	return []string{path + ": " + warning}, nil
}

// checkPair checks the certificate of the HTTPS server, and that it is valid at the time now.
func checkPair(cert, key string, now time.Time) error {
	pair, err := secure.ReadPair(cert, key)
	switch {
	case err != nil:
		return err
	case now.After(pair.Leaf.NotAfter):
		return fmt.Errorf("%s has expired at %s", cert, pair.Leaf.NotAfter.Format(time.RFC3339))
	case now.Before(pair.Leaf.NotBefore):
		return fmt.Errorf("%s isn't valid before %s", cert, pair.Leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}

func checkManifests(path string) (notes []string, err error) {
	exposures, err := file.Check(path, rootdir.InvokerOf(os.Getenv))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s doesn't exist: create the directory, or correct staticPodPath", path)
	}
	for _, text := range exposures {
		notes = append(notes, "open: "+text)
	}
	return notes, err
}

// checkProviders checks a CredentialProviderConfig and the programs that it names.
func checkProviders(path, binDir string) error {
	_, err := provider.Load(path, binDir)
	var invalid *provider.InvalidError
	if !errors.As(err, &invalid) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return errors.New(strings.Join(invalid.Problems, "\n"))
}

// checkLockFile checks that the file is there or can be made; the lock isn't taken.
func checkLockFile(path string) error {
	info, err := os.Lstat(path) // the agent doesn't follow a link
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_, err = os.Stat(filepath.Dir(path))
		return err
	case err == nil && !info.Mode().IsRegular():
		return errors.New("it isn't a regular file")
	}
	return err
}

// embeddedBinDir is the directory of the embedded runtime's programs; empty where it isn't set, or isn't used.
func embeddedBinDir(cfg *config.Config) string {
	if !cfg.UsesEmbeddedRuntime() {
		return ""
	}
	return cfg.Embedded.BinDir
}

func checkBinDir(path string) error {
	if _, err := os.ReadDir(path); err != nil {
		return fmt.Errorf("%w; correct --embedded-bin-dir", err)
	}
	_, err := embedded.FindPrograms([]string{path})
	return err
}

// socketCheck returns a check that the unix socket of an endpoint accepts connections.
func socketCheck(ctx context.Context) func(endpoint string) ([]string, error) {
	return func(endpoint string) ([]string, error) {
		if wrong := checkSocket(ctx, endpoint); wrong != "" {
			return nil, errors.New(wrong)
		}
		return nil, nil
	}
}
