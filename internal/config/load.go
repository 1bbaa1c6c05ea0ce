package config

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/config/kubeletconfig"
)

// Load reads the configuration file, lays the flags over it, fills in defaults
// and validates the whole. It asks the host for its name and address where they
// aren't given, which may take up to two seconds on a host without a default
// route. What is wrong comes back together, as an *InvalidError; a file that
// can't be read is the only other error.
func Load(o Options) (*Config, error) {
	return load(context.Background(), o, systemHost{})
}

func load(ctx context.Context, o Options, h host) (*Config, error) {
	l := loader{options: o, host: h, config: &Config{}}
	if err := l.readFile(); err != nil {
		return nil, err
	}
	l.kubelet()
	l.folders()
	l.journal()
	l.credentialProviders()
	l.deadContainers()
	l.endpoints()
	l.embedded()
	l.node(ctx)
	if len(l.problems) > 0 {
		return nil, &InvalidError{Problems: l.problems}
	}
	return l.config, nil
}

// loader carries what the steps of one Load have in common.
type loader struct {
	options  Options
	host     host
	config   *Config
	doc      *kubeletconfig.Document
	fromFlag map[string]string
	problems []string
}

func (l *loader) fail(where, format string, args ...any) {
	l.problems = append(l.problems, where+": "+fmt.Sprintf(format, args...))
}

// readFile decodes the configuration file, if there is one.
func (l *loader) readFile() error {
	if l.options.ConfigFile == "" {
		return nil
	}
	path, err := filepath.Abs(l.options.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config %s: %w", l.options.ConfigFile, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	// One byte more than any good file has, so that Decode sees that it is too big.
	data, err := io.ReadAll(io.LimitReader(f, kubeletconfig.MaxSize+1))
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	doc, errs := kubeletconfig.Decode(data)
	for _, e := range errs {
		l.fail(path, "%v", e)
	}
	l.doc = doc
	l.config.File = path
	l.config.Kubelet = doc.Config
	l.config.NotActedOn = doc.NotActedOn()
	return nil
}

// kubelet completes and checks the KubeletConfiguration.
func (l *loader) kubelet() {
	c := &l.config.Kubelet
	l.fromFlag = l.options.apply(c)
	kubeletconfig.SetDefaults(c)
	for _, e := range kubeletconfig.Validate(c) {
		l.invalid(e)
	}
	if c.StaticPodPath != "" {
		// As in the kubelet, a relative path in the file counts from the file's
		// folder and one in a flag from the working directory.
		base := ""
		if l.fromFlag["staticPodPath"] == "" {
			base = filepath.Dir(l.config.File)
		}
		c.StaticPodPath = l.absolute("--pod-manifest-path", base, c.StaticPodPath)
	}
}

// invalid tells a validation error by where its value came from.
func (l *loader) invalid(e *field.Error) {
	name, _, _ := strings.Cut(e.Field, "[")
	line := l.doc.LineOf(name)
	switch flag := l.fromFlag[name]; {
	case flag != "":
		l.fail("--"+flag, "%s", e.ErrorBody())
	case line > 0:
		l.fail(l.config.File, "line %d: %s: %s", line, e.Field, e.ErrorBody())
	default:
		l.fail(e.Field, "%s", e.ErrorBody())
	}
}

func (l *loader) absolute(flag, base, path string) string {
	if filepath.IsAbs(path) || base != "" {
		if !filepath.IsAbs(path) {
			path = filepath.Join(base, path)
		}
		return filepath.Clean(path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		l.fail(flag, "%s can't be made absolute: %v", path, err)
	}
	return abs
}

func (l *loader) folders() {
	o := &l.options
	l.config.RootDir = l.absolute("--root-dir", "", cmp.Or(o.RootDir, DefaultRootDir))
	l.config.ContainerLogLinksDir = l.absolute("--container-log-links-dir", "", cmp.Or(o.ContainerLogLinksDir, DefaultContainerLogLinksDir))
	if l.config.RootDir == "/" {
		l.fail("--root-dir", "it can't be / itself; the default is %s", DefaultRootDir)
	}
}

// credentialProviders settles where plugins for credentials are: what they are is
// found out when they are first used, and their configuration read at start.
func (l *loader) credentialProviders() {
	file, dir := l.options.ImageCredentialProviderConfig, l.options.ImageCredentialProviderBinDir
	const fileFlag, dirFlag = "--image-credential-provider-config", "--image-credential-provider-bin-dir"
	switch {
	case file == "" && dir == "":
		return
	case file == "":
		l.fail(fileFlag, "it is needed beside %s: it says which of its programs are asked for which images", dirFlag)
		return
	case dir == "":
		l.fail(dirFlag, "it is needed beside %s: plugins are programs in that folder", fileFlag)
		return
	}
	l.config.CredentialProviders = CredentialProviders{Config: l.absolute(fileFlag, "", file), BinDir: l.absolute(dirFlag, "", dir)}
}

// deadContainers settles what is kept of containers that have ended.
func (l *loader) deadContainers() {
	o := &l.options
	d := DeadContainers{MinAge: o.MinimumContainerTTL, PerContainer: o.MaximumDeadContainersPerContainer, Total: o.MaximumDeadContainers}
	if o.given == nil {
		d.PerContainer, d.Total = cmp.Or(d.PerContainer, DefaultDeadPerContainer), cmp.Or(d.Total, DefaultDeadContainers)
	}
	if d.MinAge < 0 {
		l.fail("--minimum-container-ttl-duration", "%s is in the past: it must be 0 or more", d.MinAge)
	}
	l.config.DeadContainers = d
}

// journal settles how much of each pod is recorded.
func (l *loader) journal() {
	n := l.options.JournalBytes
	switch {
	case n == 0 && l.options.given == nil:
		n = DefaultJournalBytes
	case n == 0:
		n = -1
	case n < minJournalBytes || n > maxJournalBytes:
		l.fail("--journal-bytes", "%d is neither 0, for no journal, nor in the range from %d (4 KiB) to %d (64 MiB)", n, minJournalBytes, maxJournalBytes)
	}
	l.config.JournalBytes = n
}

// endpoints decides where health and the read-only API are served.
func (l *loader) endpoints() {
	c := &l.config.Kubelet
	l.config.Healthz = addrPort(c.HealthzBindAddress, *c.HealthzPort)
	address, port := c.Address, c.ReadOnlyPort
	if !l.doc.Given("readOnlyPort") {
		port = DefaultReadOnlyPort
		if !l.doc.Given("address") {
			address = "127.0.0.1"
		}
	}
	l.config.ReadOnly = addrPort(address, port)
	h, r := l.config.Healthz, l.config.ReadOnly
	clash := h.Addr() == r.Addr() || h.Addr().IsUnspecified() || r.Addr().IsUnspecified()
	if h.Port() != 0 && h.Port() == r.Port() && clash {
		l.fail("healthzPort", "%d is also the read-only port; give one of them (healthzPort, readOnlyPort) another number", h.Port())
	}
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
	e.Bridge = cmp.Or(l.options.EmbeddedBridge, DefaultBridge)
	if !validInterface(e.Bridge) {
		l.fail("--embedded-bridge", "%q is no name for a network interface: 1 to 15 visible ASCII letters without / and :", e.Bridge)
	}
	if dir := l.options.EmbeddedBinDir; dir != "" {
		e.BinDir = l.absolute("--embedded-bin-dir", "", dir)
	}
	e.PodCIDRs, _ = kubeletconfig.PodCIDRs(&l.config.Kubelet) // errors came from Validate
	if len(e.PodCIDRs) == 0 {
		e.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(DefaultPodCIDR)}
	}
}

// validInterface holds to the kernel's rules for interface names (dev_valid_name).
func validInterface(name string) bool {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == ':' }
	return name != "" && len(name) <= 15 && name != "." && name != ".." && !strings.ContainsFunc(name, bad)
}

// node finds the node's name and addresses.
func (l *loader) node(ctx context.Context) {
	name, err := nodeName(l.options.HostnameOverride, l.host)
	if err != nil {
		l.fail("--hostname-override", "%v", err)
	}
	wanted, err := parseNodeIPs(l.options.NodeIP)
	if err != nil {
		l.fail("--node-ip", "%v", err)
		return
	}
	l.config.NodeName = name
	l.config.NodeIPs = slices.Clone(wanted)
	if len(wanted) == 0 || wanted[0].IsUnspecified() {
		preferIPv6 := len(wanted) == 1 && wanted[0].Is6()
		l.config.NodeIPs = []netip.Addr{defaultNodeIP(ctx, l.host, name, preferIPv6)}
	}
}
