package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/host/lockfile"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// TestOutlivesItsReaders: with this in its environment it is the process that nobody listens to.
const unheard = "DECKHAND_TEST_UNHEARD"

func TestOutlivesItsReaders(t *testing.T) {
	if os.Getenv(unheard) != "" {
		speakUnheard(t)
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOutlivesItsReaders$")
	cmd.Env, cmd.Stderr = append(os.Environ(), unheard+"=1"), w
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if closed := w.Close(); err != nil || closed != nil || !strings.Contains(string(out), "it goes on: true") {
		t.Errorf("%v: %s", errors.Join(err, closed), out)
	}
}

func speakUnheard(t *testing.T) {
	t.Helper()
	p, err := takeOver(flags.New("/"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	_, err = io.WriteString(os.Stderr, "a line of the log\n")
	fmt.Println("it goes on:", errors.Is(err, syscall.EPIPE))
	// Children have to be as they would have been.
	if signal.Ignored(syscall.SIGPIPE) {
		t.Error("SIGPIPE is ignored: containers would inherit that")
	}
}

func TestUpEndsWithItsTerminal(t *testing.T) {
	hangUp := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	// Whether these tests are to outlive a terminal themselves (nohup) doesn't count.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	ctx, end := untilHangUp(t.Context())
	hangUp()
	<-ctx.Done()
	end()

	signal.Ignore(syscall.SIGHUP) // nohup
	defer func() {
		signal.Notify(heard, syscall.SIGHUP) // Reset wouldn't do
		signal.Stop(heard)
	}()
	ctx, end = untilHangUp(t.Context())
	defer end()
	hangUp()
	if !signal.Ignored(syscall.SIGHUP) || ctx.Err() != nil {
		t.Error("it would end with a terminal that it was to outlive")
	}
}

// TestSaveEndsWithItsTerminal: nothing is left of an archive when the terminal goes away.
func TestSaveEndsWithItsTerminal(t *testing.T) {
	heard := make(chan os.Signal, 1) // these tests may be to outlive a terminal (nohup)
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	agent := localtest.New()
	agent.SetImages([]image.Image{{ID: "sha256:1", Refs: []string{"endless:1"}}})
	deps := Deps{RootDir: localtest.Serve(t, agent), Getenv: func(string) string { return "" }}
	dir := t.TempDir()
	var errs strings.Builder
	ended := make(chan int)
	go func() {
		args := []string{"images", "save", "endless:1", "-o", filepath.Join(dir, "images.tar")}
		ended <- Main(t.Context(), args, "deckhand", nil, io.Discard, &errs, deps)
	}()
	left := func() []os.DirEntry {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	for len(left()) == 0 {
		runtime.Gosched()
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-ended:
		if code == exitOK {
			t.Errorf("it says that it has saved the image: %s", &errs)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it goes on without its terminal")
	}
	if files := left(); len(files) > 0 {
		t.Errorf("there are %v", files)
	}
}

// Who waits for the lock file may wait for days: what is in the configuration by then counts.
func TestTheLockIsWaitedForWithAnOldConfiguration(t *testing.T) {
	dir := t.TempDir()
	file, lock := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "lock")
	write := func(maxPods int) {
		t.Helper()
		text := fmt.Sprintf("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: %d\n", maxPods)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(5)
	set := flags.New(dir)
	fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	set.AddTo(fs)
	if err := fs.Parse([]string{"--config", file, "--lock-file", lock, "--hostname-override", "n", "--node-ip", "192.0.2.1"}); err != nil {
		t.Fatal(err)
	}
	old, err := config.Load(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	holder, err := lockfile.AcquireNamed(t.Context(), lock, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe() // the log
	p := &process{flags: set}
	type outcome struct {
		cfg *config.Config
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		cfg, err := p.awaitLock(t.Context(), old, nil, w)
		done <- outcome{cfg, err}
	}()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || !strings.Contains(line, "release the lock file") {
		t.Fatalf("%v: %s", err, line)
	}
	write(6)
	if err := holder.Release(); err != nil {
		t.Fatal(err)
	}
	o := <-done
	if o.err != nil {
		t.Fatal(o.err)
	}
	if err := p.lock.Release(); err != nil || o.cfg.Kubelet.MaxPods != 6 {
		t.Errorf("maxPods is %d, %v", o.cfg.Kubelet.MaxPods, err)
	}
}

// Two signals end the program at once: nothing may be held back after the first.
func TestNothingIsHeldBackAtTheEnd(t *testing.T) {
	t.Cleanup(klog.CaptureState().Restore)
	cfg := &config.Config{}
	l := &cfg.Kubelet.Logging
	l.Format, l.FlushFrequency.Duration.Duration = "text", time.Hour
	l.Options.Text.SplitStream = true
	if err := l.Options.Text.InfoBufferSize.Set("1Mi"); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	log, err := openLogging(ctx, cfg, w, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.Logger().Info("last words")
	cancel()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || !strings.Contains(line, "last words") {
		t.Errorf("%v: %q", err, line)
	}
}

// An agent on another directory would end the pods of the last one, as `deckhand up` would: it asks, too.
func TestAnAgentOnAnotherDirectoryAsks(t *testing.T) {
	root := t.TempDir()
	cfg := &config.Config{RootDir: root, CertDir: filepath.Join(root, "pki"), Standalone: true}
	cfg.Kubelet.StaticPodPath = "/a"
	err := errors.Join(reset.Record(cfg), os.MkdirAll(filepath.Join(root, "pods", "uid"), 0o750))
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--pod-manifest-path", "/b"}, nil} {
		var stderr strings.Builder
		code := Main(t.Context(), append([]string{"agent", "--root-dir", root}, flags...), "deckhand", strings.NewReader(""), io.Discard, &stderr, Commands("deckhand"))
		for _, want := range []string{"from /a (1 left)", "--yes"} {
			if code != exitUsage || !strings.Contains(stderr.String(), want) {
				t.Errorf("%v: code %d, want %q in %s", flags, code, want, stderr.String())
			}
		}
	}
}

// TestMemoryLimit: nine tenths of the group's limit, unless there is none or the environment has one.
func TestMemoryLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		limit uint64
		env   string
		want  int64
	}{
		"a limit":            {limit: 1000 << 20, want: 900 << 20},
		"no limit":           {limit: counters.Unlimited},
		"of the environment": {limit: 1000 << 20, env: "100MiB"},
	} {
		got, ok := memoryLimit(tree.OwnLimits{Memory: tc.limit}, func(string) string { return tc.env })
		if got != tc.want || ok != (tc.want > 0) {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
}
