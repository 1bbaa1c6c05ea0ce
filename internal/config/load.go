package config

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// reducedBackOff is the maximum delay between restarts with the feature gate ReduceDefaultCrashLoopBackOffDecay
// (KEP-4603).
const reducedBackOff = time.Minute

// Load reads the configuration files, applies the flags and defaults, and validates the result. If the node's name and
// address aren't set, Load gets them from the host, which may take up to two seconds on a host without a default
// route. It returns all errors of the configuration together, as an *InvalidError. For a file that can't be read it
// returns another error.
func Load(ctx context.Context, s *flags.Set) (*Config, error) {
	return load(ctx, s, systemHost{})
}

// Reload is Load for a running agent. Properties of the host, and settings that only flags can set, are copied from c.
func (c *Config) Reload(ctx context.Context, s *flags.Set) (*Config, error) {
	read, err := load(ctx, s, noHost{})
	if err != nil {
		return nil, err
	}
	next := *c
	next.Kubelet, next.Gates, next.merged = read.Kubelet, read.Gates, read.merged
	next.NotActedOn, next.Deprecated, next.Exposures = read.NotActedOn, read.Deprecated, read.Exposures
	return &next, nil
}

// Check is Load without a host: the returned configuration has no properties of the host. The notes describe the
// settings that have no effect or are deprecated, and the exposures.
func Check(ctx context.Context, s *flags.Set) (c *Config, notes []string, err error) {
	return newLoader(s).check(ctx)
}

// CheckFile is Check with data instead of the file of --config. Errors use name as the file's name.
func CheckFile(ctx context.Context, s *flags.Set, name string, data []byte) (c *Config, notes []string, err error) {
	l := newLoader(s)
	l.file = &document.DropInFile{Path: name, Data: data}
	return l.check(ctx)
}

func load(ctx context.Context, s *flags.Set, h host) (*Config, error) {
	return newLoader(s).load(ctx, h)
}

// loader is the state of one load.
type loader struct {
	set    *flags.Set
	flags  flags.Values
	config *Config
	// file is the content of the file of --config; nil if there is none, or it hasn't been read.
	file *document.DropInFile
	// somewhere is set when a configuration is only checked: the agent that uses it later may have a kubeconfig even if
	// the command line of the check names none.
	somewhere bool
	// given is the content of files and flags, without defaults.
	given *document.Merged
	// files are the paths of the files that were read, from low to high precedence.
	files    []string
	problems []Problem
	// unread are the paths of the settings that couldn't be read. Further errors about them would be useless.
	unread map[string]bool
}

func newLoader(s *flags.Set) *loader {
	return &loader{set: s, flags: s.Values(), config: &Config{merged: document.NewMerged()},
		given: document.NewMerged(), unread: map[string]bool{}}
}

func (l *loader) load(ctx context.Context, h host) (*Config, error) {
	if err := l.readFiles(); err != nil {
		return nil, err
	}
	for _, p := range l.set.Check() {
		l.failFlag(p.Flag, "%s", p.Message)
	}
	l.kubelet()
	l.ofFlags()
	l.endpoints()
	l.embedded()
	l.addNotes()
	l.addExposures()
	l.node(ctx, h)
	if len(l.problems) > 0 {
		sortProblems(l.problems, l.files)
		return nil, &InvalidError{Problems: atMost(maxProblems, l.problems)}
	}
	return l.config, nil
}

func (l *loader) check(ctx context.Context) (c *Config, notes []string, err error) {
	l.somewhere = true
	c, err = l.load(ctx, noHost{})
	if err != nil {
		return nil, nil, err
	}
	notes = fields.Lines(c.NotActedOn)
	for _, d := range c.Deprecated {
		notes = append(notes, "deprecated: "+d)
	}
	for _, e := range c.Exposures {
		notes = append(notes, "open: "+e.String())
	}
	return c, notes, nil
}

// kubelet completes and validates the KubeletConfiguration.
func (l *loader) kubelet() {
	merged := l.config.merged
	c := merged.Config()
	// As in the kubelet, defaults are set before the flags are applied: a 0 in a flag isn't replaced by the default,
	// but a 0 in a file usually is.
	SetDefaults(c)
	for _, m := range []*document.Merged{merged, l.given} {
		for path, flag := range l.set.Overlay(m.Config()) {
			m.Mark(path, document.Origin{Kind: document.Flag, Name: "--" + flag})
		}
	}
	l.config.Standalone = l.flags.Kubeconfig == ""
	if l.config.Standalone {
		l.standalone(c)
	}
	var problems []gates.Problem
	l.config.Gates, problems = gates.Resolve(c.FeatureGates)
	for _, p := range problems {
		l.fail("featureGates["+p.Gate+"]", "", p.Message)
	}
	l.reduceBackOff(c)
	for _, p := range validation.Validate(c, l.config.Gates) {
		l.fail(p.Field, p.Beside, p.Message)
	}
	l.relative(c)
	l.config.Kubelet = *c
}

// reduceBackOff sets the default that depends on a feature gate (KEP-4603).
func (l *loader) reduceBackOff(c *v1beta1.KubeletConfiguration) {
	if l.config.Gates.Enabled(gates.ReduceDefaultCrashLoopBackOffDecay) &&
		!l.given.Given("crashLoopBackOff.maxContainerRestartPeriod") {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: reducedBackOff}
	}
}

// standalone sets the defaults that differ for a standalone agent. The table of flags repeats them (row.alone).
func (l *loader) standalone(c *v1beta1.KubeletConfiguration) {
	unset := func(path string) bool { return !l.given.Given(path) }
	if unset("readOnlyPort") {
		c.ReadOnlyPort = DefaultReadOnlyPort
	}
	if unset("address") {
		c.Address = loopback
	}
	if unset("failSwapOn") {
		c.FailSwapOn = ptr.To(false)
	}
	if unset("failCgroupV1") {
		c.FailCgroupV1 = ptr.To(false)
	}
	given := l.given.Config().EvictionHard
	for signal, threshold := range aloneEvictionHard() {
		_, has := c.EvictionHard[signal]
		if _, own := given[signal]; has && !own {
			c.EvictionHard[signal] = threshold
		}
	}
}

// fail adds a problem of the setting at path, with the place to correct: the line or flag that set path. If path wasn't
// set, it is the place of the setting beside, which contradicts path.
func (l *loader) fail(path, beside, message string) {
	if l.isUnread(path) {
		return
	}
	p := l.config.problem(path, beside, message)
	if p.File == "" && p.Flag == "" && l.file != nil {
		p.File = l.file.Path
	}
	l.problems = append(l.problems, p)
}

// Problem returns a problem of a setting, with the place where it was set. setting is the path of a field, or a flag
// with its dashes.
func (c *Config) Problem(setting, message string) Problem {
	if strings.HasPrefix(setting, "--") {
		return Problem{Flag: setting, Message: message}
	}
	return c.problem(setting, "", message)
}

// problem returns a problem of the setting at path, with the line or flag that set it. If path wasn't set, it has the
// place of the setting beside, which contradicts path.
func (c *Config) problem(path, beside, message string) Problem {
	p := Problem{Field: path, Message: message}
	o := c.merged.Nearest(path)
	own := o.Kind != document.Default
	if !own {
		o = c.merged.Nearest(beside)
	}
	switch {
	case o.Kind == document.Flag:
		p.Flag = o.Name
		if own && !strings.ContainsRune(path, '[') {
			p.Field = "" // the flag already identifies the setting
		}
	case o.Kind != document.Default:
		p.File, p.Line = o.Name, o.Line
	}
	return p
}

// isUnread reports whether the setting at path, or a parent of it, couldn't be read.
func (l *loader) isUnread(path string) bool {
	for path != "" && !l.unread[path] {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return path != ""
}

func (l *loader) failFlag(name, format string, args ...any) {
	l.problems = append(l.problems, Problem{Flag: "--" + name, Message: fmt.Sprintf(format, args...)})
}

// relative makes the paths in the configuration absolute. As in the kubelet, a path in a file is relative to the file's
// directory, and a path in a flag to the working directory.
func (l *loader) relative(c *v1beta1.KubeletConfiguration) {
	for path, value := range map[string]*string{
		"staticPodPath": &c.StaticPodPath, "tlsCertFile": &c.TLSCertFile, "tlsPrivateKeyFile": &c.TLSPrivateKeyFile,
		"authentication.x509.clientCAFile": &c.Authentication.X509.ClientCAFile, "resolvConf": c.ResolverConfig,
	} {
		o := l.config.merged.Origin(path)
		if *value == "" || o.Kind == document.Default {
			continue
		}
		base := ""
		if o.Kind == document.File || o.Kind == document.DropIn {
			base = filepath.Dir(o.Name)
		}
		abs, err := absolute(base, *value)
		if err != nil {
			l.fail(path, "", err.Error())
		}
		*value = abs
	}
}

func absolute(base, path string) (string, error) {
	if base != "" && !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%s can't be made absolute: %w", path, err)
	}
	return abs, nil
}

// ofFlags copies the settings that only flags can set. Set.Check has validated them.
func (l *loader) ofFlags() {
	c, v := l.config, &l.flags
	path := func(flag, value string) string {
		if value == "" {
			return ""
		}
		abs, err := absolute("", value)
		if err != nil {
			l.failFlag(flag, "%v", err)
		}
		return abs
	}
	c.RootDir, c.CertDir = path("root-dir", v.RootDir), path("cert-dir", v.CertDir)
	c.Kubeconfig, c.ExternalCloud = path("kubeconfig", v.Kubeconfig), v.CloudProvider == "external" &&
		v.Kubeconfig != ""
	if c.BootstrapKubeconfig = path("bootstrap-kubeconfig", v.BootstrapKubeconfig); c.BootstrapKubeconfig != "" &&
		c.Kubeconfig == "" {
		l.failFlag("bootstrap-kubeconfig",
			"--kubeconfig has to say where the kubeconfig with the new client certificate is to be written")
	}
	if c.OfflineSecretsKey = v.OfflineSecretsKey; !strings.Contains(v.OfflineSecretsKey, "/") &&
		v.OfflineSecretsKey != "" {
		dir := os.Getenv("CREDENTIALS_DIRECTORY") // systemd.exec(5)
		if dir == "" {
			l.failFlag("offline-secrets-key",
				"%q is to be a credential of the service manager's, which has given none: name a file with its path, "+
					"or LoadCredential=%[1]s:/path in the unit", v.OfflineSecretsKey)
		}
		c.OfflineSecretsKey = filepath.Join(dir, v.OfflineSecretsKey)
	}
	c.OfflineSecretsKey = path("offline-secrets-key", c.OfflineSecretsKey)
	c.HoldPodsFor, c.AwaitDevicePlugins = v.HoldPodsFor, v.AwaitDevicePlugins
	c.KubeletVersion = cmp.Or(v.Version.Reported, buildinfo.Kubernetes+"-deckhand")
	c.LockFile, c.YieldLock = path("lock-file", v.LockFile), v.ExitOnLockContention
	c.RuntimeCgroups = v.RuntimeCgroups
	c.ContainerLogLinksDir = path("container-log-links-dir", v.ContainerLogLinksDir)
	c.Embedded.Bridge, c.Embedded.BinDir = v.EmbeddedBridge, path("embedded-bin-dir", v.EmbeddedBinDir)
	c.CredentialProviders = CredentialProviders{
		Config: path("image-credential-provider-config", v.ImageCredentialProviderConfig),
		BinDir: path("image-credential-provider-bin-dir", v.ImageCredentialProviderBinDir),
	}
	c.DeadContainers = DeadContainers{MinAge: v.MinimumContainerTTL,
		PerContainer: int(v.MaximumDeadContainersPerContainer), Total: int(v.MaximumDeadContainers)}
	c.Watch = v.WatchConfig
	if c.JournalBytes = v.JournalBytes; c.JournalBytes == 0 {
		c.JournalBytes = -1
	}
	c.Flags = l.set.Shown(c.Standalone)
}

// loopback is the default address of APIs without authentication.
const loopback = "127.0.0.1"

// endpoints sets the addresses of the health, read-only and HTTPS servers. The read-only API has no authentication,
// so it isn't served on all addresses by default, unlike the HTTPS server.
func (l *loader) endpoints() {
	c := &l.config.Kubelet
	l.config.Healthz = addrPort(c.HealthzBindAddress, *c.HealthzPort)
	l.config.ReadOnly = addrPort(c.Address, c.ReadOnlyPort)
	if !l.given.Given("address") {
		l.config.ReadOnly = addrPort(loopback, c.ReadOnlyPort)
	}
	if *c.EnableServer && (l.flags.Kubeconfig != "" || l.config.Standalone && judges(c)) {
		l.config.HTTPS = addrPort(c.Address, c.Port)
	}
}

// judges reports whether the HTTPS server can authenticate and authorize clients without an API server.
func judges(c *v1beta1.KubeletConfiguration) bool {
	return c.Authorization.Mode == v1beta1.KubeletAuthorizationModeAlwaysAllow &&
		(ptr.Deref(c.Authentication.Anonymous.Enabled, false) || c.Authentication.X509.ClientCAFile != "")
}

// addrPort returns the address with the port, or the zero AddrPort for values that Validate has rejected.
func addrPort(address string, port int32) netip.AddrPort {
	a, err := netip.ParseAddr(address)
	if err != nil || port < 0 || port > 65535 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(port))
}

// embedded sets the options of the embedded runtime.
func (l *loader) embedded() {
	e := &l.config.Embedded
	e.PodCIDRs, _ = validation.PodCIDRs(&l.config.Kubelet) // Validate has returned the error
	if len(e.PodCIDRs) == 0 {
		e.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(DefaultPodCIDR)}
	}
}

// node sets the node's name and addresses.
func (l *loader) node(ctx context.Context, h host) {
	name, err := nodeName(l.flags.HostnameOverride, h)
	if err != nil {
		l.failFlag("hostname-override", "%v", err)
	}
	wanted, err := parseNodeIPs(l.flags.NodeIP, l.config.Standalone)
	if err != nil {
		l.failFlag("node-ip", "%v", err)
		return
	}
	l.config.NodeName, l.config.NodeLabels = name, nodeLabels(name, l.flags.NodeLabels)
	switch given := len(wanted) > 0 && !wanted[0].IsUnspecified(); {
	case given:
		l.config.NodeIPs = slices.Clone(wanted)
	case !l.config.ExternalCloud:
		preferIPv6 := len(wanted) == 1 && wanted[0].Is6()
		l.config.NodeIPs = []netip.Addr{defaultNodeIP(ctx, h, name, preferIPv6)}
	}
}
