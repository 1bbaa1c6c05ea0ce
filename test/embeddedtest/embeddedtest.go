// Package embeddedtest gives tests a real containerd of their own, and takes it
// down with everything in it when the test ends, however it ends.
package embeddedtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// The images that every instance has.
const (
	PauseImage = "deckhand.local/pause:1"
	WebImage   = "deckhand.local/web:1"
)

// Instance is one running containerd with root directory, bridge, pod CIDR and
// cgroup root of its own.
type Instance struct {
	// Runtime is started and being supervised; stop that with StopRun.
	Runtime *embedded.Runtime
	// Config is what Runtime was made from: a second Runtime of it adopts containerd.
	Config embedded.Config
	// Endpoint is the CRI's, as a URL.
	Endpoint string
	// CgroupRoot is the cgroup under which pods have to be ("/deckhand-test-3"), so
	// that a pod's cgroup parent is CgroupRoot + "/kubepods/pod" + UID.
	CgroupRoot string
	// PodLogs and ContainerLogs are empty directories for logs.
	PodLogs, ContainerLogs string

	stop context.CancelFunc
	done chan error
	log  logr.Logger
}

// Start starts an instance with both images imported, or fails the test. It
// needs root. What is missing in bin/ is built first.
func Start(t testing.TB) *Instance {
	t.Helper()
	in := Prepare(t)
	in.Launch(t)
	return in
}

// Prepare is Start without starting containerd, for tests that want to change
// the Config or do the starting themselves. It takes everything down at the
// test's end like Start does.
func Prepare(t testing.TB) *Instance {
	t.Helper()
	return PrepareIn(t, "")
}

// PrepareIn is Prepare with everything below this directory, which has a file system of its own.
func PrepareIn(t testing.TB, dir string) *Instance {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test runs real containers and needs root")
	}
	bin := Bin(t)
	root, err := os.MkdirTemp(dir, "deckhand-test-")
	if err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(root, "logs")
	s, err := takeSlot(root)
	if err != nil {
		t.Fatal(err)
	}
	in := &Instance{
		Config: embedded.Config{
			RootDir: filepath.Join(root, "root"),
			BinDirs: []string{bin},
			PodCIDR: s.cidr(),
			Bridge:  s.bridge(),
		},
		CgroupRoot: s.cgroup(),
		PodLogs:    filepath.Join(logs, "pods"), ContainerLogs: filepath.Join(logs, "containers"),
		log: testLogger(t),
	}
	t.Cleanup(func() {
		in.StopRun(t)
		in.Reset(t)
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
		if err := s.release(); err != nil {
			t.Error(err)
		}
	})
	// Before anything is in it, so that the teardown may remove it.
	if err := in.Config.Claim(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{in.PodLogs, in.ContainerLogs, filepath.Join(in.Config.RootDir, "images")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pause.tar", "web.tar"} {
		// The same disk or not, an archive is only read.
		if err := os.Symlink(filepath.Join(bin, "images", name), filepath.Join(in.Config.RootDir, "images", name)); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// Launch starts containerd with Config and supervises it until StopRun. It is
// also how a test brings up "the agent started again".
func (in *Instance) Launch(t testing.TB) {
	t.Helper()
	runtime, err := embedded.New(in.Config, in.log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := runtime.Start(ctx); err != nil {
		t.Fatal(err)
	}
	in.Runtime, in.Endpoint = runtime, runtime.Endpoint()
	run, stop := context.WithCancel(context.Background())
	in.stop, in.done = stop, make(chan error, 1)
	go func(done chan<- error) { done <- runtime.Run(run) }(in.done)
}

// StopRun ends the supervision, as the agent's stop does: containerd and its pods
// go on. It may be called again.
func (in *Instance) StopRun(t testing.TB) {
	t.Helper()
	if in.stop == nil {
		return
	}
	in.stop()
	if err := <-in.done; err != nil {
		t.Errorf("the embedded runtime's Run: %v", err)
	}
	in.stop = nil
}

// Reset removes everything, as `deckhand reset --force` does, killing containers at once.
func (in *Instance) Reset(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := reset.Run(ctx, in.ResetConfig(), in.log); err != nil {
		t.Error(err)
	}
}

// ResetConfig is the configuration for the reset of this instance.
func (in *Instance) ResetConfig() reset.Config {
	// The kubelet's default podLogsDir ends in a slash as well.
	return reset.Config{Runtime: in.Config, CgroupRoot: in.CgroupRoot, PodLogs: in.PodLogs + "/", ContainerLogs: in.ContainerLogs}
}

// Bin is the directory bin/ of the checkout with the runtime tools and images; what
// is missing is built.
func Bin(t testing.TB) string {
	t.Helper()
	dir, err := checkout()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := lockFile(filepath.Join(os.TempDir(), "deckhand-test-build.lock"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	cmd := exec.Command("make", "--silent", "-C", dir, "tools", "images")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the runtime tools: %v\n%s", err, out)
	}
	return filepath.Join(dir, "bin")
}

// checkout finds the module's root above the test's directory.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
}

func testLogger(t testing.TB) logr.Logger {
	return funcr.New(func(prefix, args string) { t.Log(prefix, args) }, funcr.Options{Verbosity: 2})
}
