package config

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/config/defaults"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/config/validation"
)

// Load reads the configuration files, lays the flags over them, fills in defaults
// and validates the whole. It asks the host for its name and address where they
// aren't given, which may take up to two seconds on a host without a default
// route. What is wrong comes back together, as an *InvalidError; a file that
// can't be read is the only other error.
func Load(ctx context.Context, s *flags.Set) (*Config, error) {
	return load(ctx, s, systemHost{})
}

// Reload is Load for an agent that runs: what it was told of the host, and by flags
// that no file can say, stays as it is in c.
func (c *Config) Reload(ctx context.Context, s *flags.Set) (*Config, error) {
	read, err := load(ctx, s, noHost{})
	if err != nil {
		return nil, err
	}
	next := *c
	next.Kubelet, next.Gates, next.NotActedOn, next.Deprecated, next.merged = read.Kubelet, read.Gates, read.NotActedOn, read.Deprecated, read.merged
	return &next, nil
}

// Check is Load without a host: it says what is wrong, and tells in notes what is set
// without effect, or deprecated.
func Check(ctx context.Context, s *flags.Set) (notes []string, err error) {
	c, err := load(ctx, s, noHost{})
	if err != nil {
		return nil, err
	}
	return append(c.NotActedOn, c.Deprecated...), nil
}

func load(ctx context.Context, s *flags.Set, h host) (*Config, error) {
	l := loader{set: s, flags: s.Values(), config: &Config{merged: document.NewMerged()}, given: document.NewMerged()}
	if err := l.readFiles(); err != nil {
		return nil, err
	}
	for _, p := range s.Check() {
		l.fail("--"+p.Flag, "%s", p.Message)
	}
	l.kubelet()
	l.ofFlags()
	l.endpoints()
	l.embedded()
	l.notes()
	l.node(ctx, h)
	if len(l.problems) > 0 {
		return nil, &InvalidError{Problems: l.problems}
	}
	return l.config, nil
}

// loader carries what the steps of one load have in common.
type loader struct {
	set    *flags.Set
	flags  flags.Values
	config *Config
	// given is what files and flags say, without any default.
	given    *document.Merged
	problems []string
}

func (l *loader) fail(where, format string, args ...any) {
	l.problems = append(l.problems, where+": "+fmt.Sprintf(format, args...))
}

// readFiles reads the file and the drop-ins, if there are any. The documented defaults
// come between them, so that a drop-in which names one threshold of eviction changes
// that one of the defaults ("Kubelet Configuration Directory Merging").
func (l *loader) readFiles() error {
	file, err := l.readFile()
	dropIns, dirErr := l.readDropIns()
	if err := errors.Join(err, dirErr); err != nil {
		return err
	}
	merged := l.config.merged
	if l.flags.ConfigFile == "" {
		flags.DefaultsWithoutFile(merged.Config())
	}
	l.lay(document.File, file)
	defaults.Set(merged.Config())
	for _, f := range dropIns {
		l.lay(document.DropIn, f)
	}
	return nil
}

func (l *loader) readFile() (document.DropInFile, error) {
	if l.flags.ConfigFile == "" {
		return document.DropInFile{}, nil
	}
	path, err := filepath.Abs(l.flags.ConfigFile)
	if err != nil {
		return document.DropInFile{}, fmt.Errorf("--config %s: %w", l.flags.ConfigFile, err)
	}
	l.config.Sources = append(l.config.Sources, path)
	data, err := document.ReadFile(path)
	if err != nil {
		return document.DropInFile{}, fmt.Errorf("--config: %w", err)
	}
	return document.DropInFile{Path: path, Data: data}, nil
}

func (l *loader) readDropIns() ([]document.DropInFile, error) {
	if l.flags.ConfigDir == "" {
		return nil, nil
	}
	dir, err := filepath.Abs(l.flags.ConfigDir)
	if err != nil {
		return nil, fmt.Errorf("--config-dir %s: %w", l.flags.ConfigDir, err)
	}
	l.config.Sources = append(l.config.Sources, dir)
	files, err := document.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("--config-dir: %w", err)
	}
	return files, nil
}

// lay lays a file over what is there.
func (l *loader) lay(kind document.Kind, f document.DropInFile) {
	if f.Path == "" {
		return
	}
	doc, errs := document.Decode(f.Data)
	for _, e := range errs {
		where := document.Origin{Kind: kind, Name: f.Path, Line: e.Line}.String()
		if e.Path != "" {
			where += ": " + e.Path
		}
		l.fail(where, "%s", e.Message)
	}
	l.config.merged.Lay(kind, f.Path, doc)
	l.given.Lay(kind, f.Path, doc)
}

// kubelet completes and checks the KubeletConfiguration.
func (l *loader) kubelet() {
	merged := l.config.merged
	c := merged.Config()
	for _, m := range []*document.Merged{merged, l.given} {
		for path, flag := range l.set.Overlay(m.Config()) {
			m.Mark(path, document.Origin{Kind: document.Flag, Name: "--" + flag})
		}
	}
	l.config.Standalone = l.flags.Kubeconfig == "" && l.flags.BootstrapKubeconfig == ""
	if l.config.Standalone {
		l.standalone(c)
	}
	defaults.Set(c)
	var problems []gates.Problem
	l.config.Gates, problems = gates.Resolve(c.FeatureGates)
	for _, p := range problems {
		l.fail(l.where("featureGates["+p.Gate+"]"), "%s", p.Message)
	}
	for _, e := range validation.Validate(c, l.config.Gates) {
		l.fail(l.where(e.Field), "%s", e.ErrorBody())
	}
	l.relative(c)
	l.config.Kubelet = *c
}

// standalone sets what a standalone agent does otherwise unless it is told.
func (l *loader) standalone(c *v1beta1.KubeletConfiguration) {
	unset := func(path string) bool { return !l.given.Given(path) }
	if unset("readOnlyPort") {
		c.ReadOnlyPort = DefaultReadOnlyPort
		if unset("address") {
			c.Address = "127.0.0.1"
		}
	}
	if unset("failSwapOn") {
		c.FailSwapOn = ptr.To(false)
	}
	if unset("failCgroupV1") {
		c.FailCgroupV1 = ptr.To(false)
	}
}

// where names a setting, and the place that a person has to go to.
func (l *loader) where(path string) string {
	switch o := l.config.merged.Nearest(path); o.Kind {
	case document.Flag:
		return o.Name
	case document.Default:
		return path
	default:
		return o.String() + ": " + path
	}
}

// relative makes paths absolute: those in a file count from the file's folder, those
// in a flag from the working directory, as in the kubelet.
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
		*value = l.absolute(o.String(), base, *value)
	}
}

func (l *loader) absolute(where, base, path string) string {
	if base != "" && !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		l.fail(where, "%s can't be made absolute: %v", path, err)
	}
	return abs
}

// ofFlags takes over what only flags say, which the set has checked.
func (l *loader) ofFlags() {
	c, v := l.config, &l.flags
	path := func(flag, value string) string {
		if value == "" {
			return ""
		}
		return l.absolute("--"+flag, "", value)
	}
	c.RootDir, c.CertDir = path("root-dir", v.RootDir), path("cert-dir", v.CertDir)
	c.LockFile, c.YieldLock = path("lock-file", v.LockFile), v.ExitOnLockContention
	c.ContainerLogLinksDir = path("container-log-links-dir", v.ContainerLogLinksDir)
	c.Embedded.Bridge, c.Embedded.BinDir = v.EmbeddedBridge, path("embedded-bin-dir", v.EmbeddedBinDir)
	c.CredentialProviders = CredentialProviders{
		Config: path("image-credential-provider-config", v.ImageCredentialProviderConfig),
		BinDir: path("image-credential-provider-bin-dir", v.ImageCredentialProviderBinDir),
	}
	c.DeadContainers = DeadContainers{MinAge: v.MinimumContainerTTL, PerContainer: int(v.MaximumDeadContainersPerContainer), Total: int(v.MaximumDeadContainers)}
	c.Watch = v.WatchConfig
	if c.JournalBytes = v.JournalBytes; c.JournalBytes == 0 {
		c.JournalBytes = -1
	}
	c.Flags = l.set.Shown()
}

// endpoints decides where health and the read-only API are served.
func (l *loader) endpoints() {
	c := &l.config.Kubelet
	l.config.Healthz = addrPort(c.HealthzBindAddress, *c.HealthzPort)
	l.config.ReadOnly = addrPort(c.Address, c.ReadOnlyPort)
}

// addrPort is the zero AddrPort for values that Validate has refused.
func addrPort(address string, port int32) netip.AddrPort {
	a, err := netip.ParseAddr(address)
	if err != nil || port < 0 || port > 65535 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(port))
}

// embedded settles what only the embedded runtime needs.
func (l *loader) embedded() {
	e := &l.config.Embedded
	e.PodCIDRs, _ = validation.PodCIDRs(&l.config.Kubelet) // errors came from Validate
	if len(e.PodCIDRs) == 0 {
		e.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(DefaultPodCIDR)}
	}
}

// node finds the node's name and addresses.
func (l *loader) node(ctx context.Context, h host) {
	name, err := nodeName(l.flags.HostnameOverride, h)
	if err != nil {
		l.fail("--hostname-override", "%v", err)
	}
	wanted, err := parseNodeIPs(l.flags.NodeIP, l.config.Standalone)
	if err != nil {
		l.fail("--node-ip", "%v", err)
		return
	}
	l.config.NodeName = name
	l.config.NodeIPs = slices.Clone(wanted)
	if len(wanted) == 0 || wanted[0].IsUnspecified() {
		preferIPv6 := len(wanted) == 1 && wanted[0].Is6()
		l.config.NodeIPs = []netip.Addr{defaultNodeIP(ctx, h, name, preferIPv6)}
	}
}

// InvalidError is a configuration that can't be used, with everything that is
// wrong about it. Each problem names the file and line, or the flag, and the
// field.
type InvalidError struct {
	Problems []string
}

// Error renders one problem on one line, and several on a line each below a heading.
func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return "invalid configuration: " + e.Problems[0]
	}
	return fmt.Sprintf("invalid configuration, %d problems:\n  %s", len(e.Problems), strings.Join(e.Problems, "\n  "))
}
