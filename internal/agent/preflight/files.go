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

// fileCheck is the check of a file that a setting names.
type fileCheck struct {
	// setting is the path of a field, or a flag with its dashes: "--kubeconfig".
	setting string
	// path is the file, directory or endpoint; it isn't checked if it is empty.
	path string
	// check opens the file as the agent does. notes are warnings about a file that the agent can use.
	check func(path string) (notes []string, err error)
	// advice tells the user how to correct an error; it is empty if the error itself does.
	advice string
	// noteOnly turns an error into a note: the agent starts without the file, which may be created later.
	noteOnly bool
}

// Files opens the files that a configuration names, as an agent does that starts at the time now. It changes nothing.
// problems are errors in the files. notes are warnings, and files that this process has no permission to open. Files
// that the agent creates itself may be missing.
func Files(ctx context.Context, cfg *config.Config, now time.Time) (problems []config.Problem, notes []string) {
	return checkFiles(ctx, cfg, now, os.Geteuid() == 0)
}

// checkFiles implements Files. root reports whether the process runs as root: then a denied permission is a problem;
// otherwise it is a note.
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

// explain turns an error into a message that names the path and contains the advice.
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

// fileChecks returns the checks of the files that the agent opens because a setting names them. The files of --config
// and --config-dir have been read before.
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

// only adapts a check that returns no notes.
func only(check func(path string) error) func(string) ([]string, error) {
	return func(path string) ([]string, error) { return nil, check(path) }
}

// kubeconfigChecks returns the checks of the files of --kubeconfig and --bootstrap-kubeconfig. While the kubeconfig is
// missing or unusable, the agent needs the bootstrap kubeconfig to create it. With a usable kubeconfig, the bootstrap
// kubeconfig isn't needed.
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
		kubeconfig.path = "" // the agent creates it
	case own != nil:
		kubeconfig.noteOnly, kubeconfig.advice = true, "the agent replaces it, with --bootstrap-kubeconfig"
	default:
		inner := bootstrap.check
		bootstrap.check = func(path string) ([]string, error) {
			notes, err := inner(path)
			if errors.Is(err, fs.ErrNotExist) {
				return notes, nil // no longer needed
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

// checkPair checks the certificate and key of the HTTPS server, and the certificate's validity at the time now.
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

// checkProviders checks a CredentialProviderConfig and the plugin executables that it names.
func checkProviders(path, binDir string) error {
	_, err := provider.Load(path, binDir)
	var invalid *provider.InvalidError
	if !errors.As(err, &invalid) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return errors.New(strings.Join(invalid.Problems, "\n"))
}

// checkLockFile checks that the file exists or can be created. It doesn't acquire the lock.
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

// embeddedBinDir returns the directory of the embedded runtime's programs; empty if it isn't set or the runtime isn't
// embedded.
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
