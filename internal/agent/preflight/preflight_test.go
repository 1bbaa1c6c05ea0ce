package preflight

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// good is a configuration that this host can carry.
func good(t *testing.T) Config {
	in := embeddedtest.Prepare(t)
	return Config{Runtime: in.Config, Listen: []string{"127.0.0.1:0"}}
}

func fatals(problems []Problem) []string {
	var out []string
	for _, p := range problems {
		if p.Fatal {
			out = append(out, p.Message)
		}
	}
	return out
}

func TestGoodHost(t *testing.T) {
	config := good(t)
	before, err := os.ReadDir(config.Runtime.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	if f := fatals(Check(t.Context(), config)); len(f) > 0 {
		t.Errorf("a good host has problems: %q", f)
	}
	after, err := os.ReadDir(config.Runtime.RootDir)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != len(after) {
		t.Errorf("the check left something: %v", after)
	}
	if _, err := netlink.LinkByName(config.Runtime.Bridge); err == nil {
		t.Error("the check made the bridge")
	}
}

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, c *Config)
		want  string
	}{
		"port in use": {func(t *testing.T, c *Config) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			c.Listen = []string{l.Addr().String()}
		}, "can't be listened on"},
		"tools missing": {func(t *testing.T, c *Config) {
			c.Runtime.BinDirs = []string{"/nowhere"}
			t.Setenv("PATH", "/empty")
		}, "containerd-shim-runc-v2: not found in /nowhere or PATH"},
		"pod CIDR in use": {func(t *testing.T, c *Config) { c.Runtime.PodCIDR = ownSubnet(t) }, "overlaps the host's route"},
		"bridge is another's": {func(t *testing.T, c *Config) {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "dhtestother"
			link := &netlink.Bridge{LinkAttrs: attrs}
			if err := netlink.LinkAdd(link); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := netlink.LinkDel(link); err != nil {
					t.Error(err)
				}
			})
			c.Runtime.Bridge = "dhtestother"
		}, "choose another name for the pods' bridge"},
		"bridge is no bridge": {func(_ *testing.T, c *Config) { c.Runtime.Bridge = "lo" }, "not a bridge"},
		"disk full":           {func(_ *testing.T, c *Config) { c.MinFree = 1 << 60 }, "MiB are needed"},
		"root is a file": {func(t *testing.T, c *Config) {
			c.Runtime.RootDir = filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(c.Runtime.RootDir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "isn't a directory"},
		"read-only": {func(t *testing.T, c *Config) { c.Runtime.RootDir = mountTmpfs(t, unix.MS_RDONLY) }, "read-only"},
		"noexec":    {func(t *testing.T, c *Config) { c.Runtime.RootDir = mountTmpfs(t, unix.MS_NOEXEC) }, "noexec"},
	} {
		t.Run(name, func(t *testing.T) {
			config := good(t)
			c.spoil(t, &config)
			found := fatals(Check(t.Context(), config))
			for _, f := range found {
				if strings.Contains(f, c.want) && !strings.Contains(f, "\n") {
					return
				}
			}
			t.Errorf("problems are %q, none says %q", found, c.want)
		})
	}
}

// ownSubnet is a network that this host has a route to.
func ownSubnet(t *testing.T) string {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "dhtestroute"
	link := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(link); err != nil {
			t.Error(err)
		}
	})
	addr, err := netlink.ParseAddr("10.215.7.1/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return "10.215.0.0/16"
}

func mountTmpfs(t *testing.T, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "root")
}

func TestControllers(t *testing.T) {
	v2 := func(list string) func(string) ([]byte, error) {
		return func(path string) ([]byte, error) {
			if path != "/sys/fs/cgroup/cgroup.controllers" {
				return nil, errors.New("no such file")
			}
			return []byte(list), nil
		}
	}
	for name, c := range map[string]struct {
		mounts string
		read   func(string) ([]byte, error)
		want   string
	}{
		"v2":              {"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", v2("cpu io memory pids\n"), ""},
		"v2 without one":  {"cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", v2("cpu pids\n"), "no controller memory:"},
		"v1":              {"cgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /c/m cgroup rw,memory 0 0\ncgroup /c/p cgroup rw,pids 0 0\n", v2(""), ""},
		"v1 without some": {"cgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\n", v2(""), "no controller memory, pids:"},
		"none":            {"proc /proc proc rw 0 0\n", v2(""), "no controller cpu, memory, pids:"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkControllers(c.mounts, c.read)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("says %v, not %q", err, c.want)
			}
		})
	}
}

// Every line of a configuration's error becomes a problem of its own.
func TestBadConfiguration(t *testing.T) {
	problems := Check(t.Context(), Config{Runtime: embedded.Config{RootDir: "relative", LogLevel: "loud"}})
	if len(problems) != 2 || Fatal(problems) == nil {
		t.Errorf("problems are %q", problems)
	}
}

// An agent that comes back to a full disk starts: else nobody would free space there.
func TestAFullDiskIsNoReasonToStayAway(t *testing.T) {
	config := good(t)
	config.RootDir, config.MinFree, config.Again = config.Runtime.RootDir, 1<<60, true
	for _, endpoint := range []string{"", filepath.Join(t.TempDir(), "none.sock")} {
		config.Endpoint = endpoint
		found := Check(t.Context(), config)
		if f := fatals(found); len(f) > 0 || !strings.Contains(fmt.Sprint(found), "MiB are needed") {
			t.Errorf("it stays away for %q: %q", f, found)
		}
	}
}
