// Package node runs the agent as a person does: the real program as a process
// of its own, with its embedded runtime, real containers, and every name on the
// host (bridge, addresses, ports, control groups, log directories) its own, so that
// several nodes live side by side. When the test ends everything is taken down,
// and the test fails if anything is left.
package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/config/configtest"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// Name is what every node is called; static pods' names end in it.
const Name = "node1"

// Image is the image of the test containers: see images/web/main.go for what it can do.
const Image = embeddedtest.WebImage

// Deadline is how long anything awaited may take. It is generous: it only
// matters to a test that fails.
const Deadline = 90 * time.Second

// Options are a node's settings beyond the defaults.
type Options struct {
	// Dir is where the node's directories are made, if not in the one for temporary files.
	Dir string
	// Config is added to the KubeletConfiguration, one "field: value" a line.
	Config string
	// Flags are added to the command line.
	Flags []string
	// FileVerbosity leaves it to the configuration how much is logged.
	FileVerbosity bool
	// Archives are imported beside those of pause and web.
	Archives []string
	// DualStack gives the node and its pods IPv6 addresses, too.
	DualStack bool
}

// Node is one machine with deckhand on it, as far as one test is concerned. Its
// methods fail the test rather than return errors, so they belong on the test's
// own goroutine.
type Node struct {
	// Base is a temporary directory that everything below is in.
	Base string
	// RootDir is the agent's --root-dir.
	RootDir string
	// Manifests is the directory whose pods run.
	Manifests string
	// PodLogs and LogLinks are this node's /var/log/pods and /var/log/containers.
	PodLogs, LogLinks string
	// CgroupRoot is the control group above kubepods, such as "/deckhand-test-3".
	CgroupRoot string

	t       testing.TB
	binary  string
	options Options
	in      *embeddedtest.Instance
	agent   *process
	logged  *os.File
	client  *local.Client
	conn    *cri.Conn
	slot    int
	// network is the file of its network namespace; empty if that is the host's.
	network string
}

// New prepares a node for the program binary. Nothing runs before Start.
func New(t testing.TB, binary string, options Options) *Node {
	t.Helper()
	in := embeddedtest.PrepareIn(t, options.Dir)
	base := filepath.Dir(in.Config.RootDir)
	n := &Node{
		Base: base, RootDir: in.Config.RootDir, Manifests: filepath.Join(base, "manifests"),
		PodLogs: in.PodLogs, LogLinks: in.ContainerLogs, CgroupRoot: in.CgroupRoot,
		t: t, binary: binary, options: options, in: in,
		client: local.NewClient(local.SocketPath(in.Config.RootDir)),
		slot:   int(netip.MustParsePrefix(in.Config.PodCIDR).Addr().As4()[2]),
	}
	if options.DualStack {
		in.Config.PodCIDR += fmt.Sprintf(",fd00:dec:%x::/112", n.slot)
	}
	// Before the instance's own end, so while its names are still ours.
	t.Cleanup(n.finish)
	var err error
	if n.logged, err = os.Create(filepath.Join(base, "agent.log")); err != nil {
		t.Fatal(err)
	}
	if n.conn, err = cri.New(cri.Options{Endpoint: in.Config.RootDir + "/containerd/containerd.sock", Timeout: Deadline}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(n.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	n.write(n.ConfigFile(), n.ConfigText(options.Config))
	for _, archive := range options.Archives {
		if err := os.Symlink(archive, filepath.Join(n.RootDir, "images", filepath.Base(archive))); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// For is the node as a subtest sees it: what fails, fails the subtest. Starting and
// stopping the agent stays with the node's own test.
func (n *Node) For(t testing.TB) *Node {
	sub := *n
	sub.t = t
	return &sub
}

// Port returns one of ten host ports that are this node's alone. 0 and 1 are taken
// by the agent.
func (n *Node) Port(i int) int { return 21000 + 10*n.slot + i }

// HealthURL is where the agent tells its health, and ReadOnlyURL its state.
func (n *Node) HealthURL(path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d/%s", n.Port(0), path)
}

// ReadOnlyURL is an address of the read-only port.
func (n *Node) ReadOnlyURL(path string) string {
	return fmt.Sprintf("http://127.0.0.1:%d/%s", n.Port(1), path)
}

// ConfigFile is the agent's --config.
func (n *Node) ConfigFile() string { return filepath.Join(n.Base, "config.yaml") }

// ConfigText is a KubeletConfiguration that sets what is this node's, and this.
func (n *Node) ConfigText(config string) string {
	n.t.Helper()
	if err := configtest.SparesHost(config); err != nil {
		n.t.Fatal(err)
	}
	if !strings.Contains(config, "evictionHard") {
		config += "\nevictionHard: {memory.available: 100Mi}" // the host's disk may be nearly full
	}
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
healthzPort: %d
readOnlyPort: %d
podCIDR: %s
podLogsDir: %s
cgroupRoot: %s
%s
`, n.Port(0), n.Port(1), n.in.Config.PodCIDR, n.PodLogs, n.CgroupRoot, config)
}

func (n *Node) flags() []string {
	addresses := "127.0.0.1"
	if n.options.DualStack {
		addresses += ",::1"
	}
	flags := []string{"agent",
		"--config", n.ConfigFile(),
		"--root-dir", n.RootDir,
		"--pod-manifest-path", n.Manifests,
		"--hostname-override", Name,
		"--node-ip", addresses,
		"--embedded-bridge", n.in.Config.Bridge,
		"--embedded-bin-dir", strings.Join(n.in.Config.BinDirs, ""),
		"--container-log-links-dir", n.LogLinks,
	}
	if !n.options.FileVerbosity {
		flags = append(flags, "-v", "3")
	}
	return append(flags, n.options.Flags...)
}

// Configure adds this to the KubeletConfiguration in place of what Options or an earlier
// call said, for the next Start.
func (n *Node) Configure(config string) {
	n.t.Helper()
	n.write(n.ConfigFile(), n.ConfigText(config))
}

// AddFlags adds flags for the next Start.
func (n *Node) AddFlags(flags ...string) { n.options.Flags = append(n.options.Flags, flags...) }

// Logged returns what the agent has logged so far, over all its lives.
func (n *Node) Logged() string {
	n.t.Helper()
	text, err := os.ReadFile(n.logged.Name())
	if err != nil {
		n.t.Fatal(err)
	}
	return string(text)
}

// finish ends the node: tells what happened if the test failed, takes all down
// and looks for what is left.
func (n *Node) finish() {
	if n.t.Failed() {
		n.tell()
	}
	if n.agent != nil {
		n.agent.kill()
	}
	n.conn.Close()
	if text := n.Logged(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "\npanic: ") {
		n.t.Errorf("the agent has a data race or panicked:\n%s", tail(text, 200))
	}
	attached := n.Attached()
	n.in.Reset(n.t)
	for _, what := range n.leftovers(attached) {
		n.t.Errorf("left on the host: %s", what)
	}
	if err := n.logged.Close(); err != nil {
		n.t.Error(err)
	}
}
