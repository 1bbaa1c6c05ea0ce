package preflight

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
)

func listenUnix(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // a server may have closed it
	return l
}

func TestEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		at   func(t *testing.T, path string)
		want []string
	}{
		"nothing there": {func(*testing.T, string) {}, []string{"no such socket", "systemctl start containerd", "--container-runtime-endpoint"}},
		"a file": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{"isn't a socket"}},
		"left behind": {func(t *testing.T, path string) {
			l := listenUnix(t, path)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}, []string{"doesn't run", "systemctl status containerd"}},
		"without CRI": {func(t *testing.T, path string) {
			s := grpc.NewServer()
			served := make(chan error, 1)
			l := listenUnix(t, path)
			go func() { served <- s.Serve(l) }()
			t.Cleanup(func() {
				s.Stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		}, []string{"doesn't speak CRI v1", "disabled_plugins"}},
		"silent": {func(t *testing.T, path string) { listenUnix(t, path) }, []string{"nothing answers within 3s", "journalctl"}},
		"something else": {func(t *testing.T, path string) {
			l := listenUnix(t, path)
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if _, err := c.Write([]byte("220 mail.example.com ESMTP\r\n")); err != nil && !errors.Is(err, unix.EPIPE) {
						t.Error(err)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
			}()
			t.Cleanup(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				<-served
			})
		}, []string{"runtime's log"}},
		"a runtime": {func(t *testing.T, path string) {
			s, err := memcri.New(memcri.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Start(path); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // one waits for an answer
			dir, err := os.MkdirTemp("", "preflight")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			path := filepath.Join(dir, "cri.sock")
			c.at(t, path)
			for _, endpoint := range []string{path, "unix://" + path} {
				want := c.want
				if want != nil {
					want = append([]string{"no container runtime answers at " + endpoint, "the agent goes on asking"}, want...)
				}
				expect(t, checkEndpoint(t.Context(), endpoint), false, want...)
			}
		})
	}
	expect(t, checkEndpoint(t.Context(), "tcp://127.0.0.1:1"), true, "only unix sockets")
}

// With a runtime of the host's own, nothing that only the embedded one needs is missed.
func TestExternalRuntime(t *testing.T) {
	t.Setenv("PATH", "/empty")
	config := Config{RootDir: filepath.Join(mountTmpfs(t, unix.MS_NOEXEC), "root"), Endpoint: filepath.Join(t.TempDir(), "none.sock")}
	expect(t, Check(t.Context(), config), false, "no container runtime answers")

	config.RootDir = mountTmpfs(t, unix.MS_RDONLY)
	config.MinFree = 1
	if f := fatals(Check(t.Context(), config)); len(f) != 1 || !strings.Contains(f[0], "read-only") {
		t.Errorf("problems are %q", f)
	}
}

// Each setting reaches its check.
func TestSettings(t *testing.T) {
	host := files{
		"/proc/mounts": "cgroup /c cgroup rw,cpu,memory,pids 0 0\n",
		"/proc/swaps":  "/dev/sda2 partition 100 0 -2\n",
	}
	sysctls := kernel.Sysctls(t.TempDir()) // this host's may be as they should be, since an agent ran
	now := firstRelease.AddDate(1, 0, 0)
	for _, c := range []struct {
		set  func(c *Config)
		want string
	}{
		{func(c *Config) { c.Swap = Refuse }, "swap is on"},
		{func(c *Config) { c.CgroupV1 = Refuse }, "cgroup v1"},
		{func(c *Config) { c.ProtectKernelDefaults = true }, "protectKernelDefaults"},
		{func(c *Config) { c.BuiltAt = now.AddDate(1, 0, 0) }, "the clock"},
		{func(c *Config) { c.MinFree = 1 << 60 }, "MiB are needed"},
		{func(c *Config) { c.Listen = []string{"203.0.113.1:1"} }, "can't be listened on"},
	} {
		config := Config{RootDir: t.TempDir(), Endpoint: filepath.Join(t.TempDir(), "none.sock")}
		before := check(t.Context(), config, now, host.read, sysctls)
		c.set(&config)
		after := check(t.Context(), config, now, host.read, sysctls)
		if len(before) != 1 || len(after) != 2 || !strings.Contains(after[0].Message+after[1].Message, c.want) {
			t.Errorf("without: %q; with: %q, which doesn't say %q", before, after, c.want)
		}
	}
}
