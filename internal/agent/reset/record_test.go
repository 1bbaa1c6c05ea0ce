package reset

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
)

func TestANewerAgentsRootDirIsRefused(t *testing.T) {
	root := t.TempDir()
	cfg := &config.Config{RootDir: root}
	for range 2 {
		if err := Record(cfg); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := RecordedConfig(root); err != nil || c.Runtime.PodCIDR != cfg.Kubelet.PodCIDR {
		t.Errorf("%+v, %v", c, err)
	}
	const newer = `{"version": 2, "deckhand": "v9.9.9", "bridge": ["of", "another", "shape"]}`
	if err := os.WriteFile(recordPath(root), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	_, readErr := RecordedConfig(root)
	for what, err := range map[string]error{"preflight": CheckRecord(root), "start": Record(cfg), "reset": readErr} {
		if !errors.Is(err, checkpoint.ErrNewer) || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "install v9.9.9 or newer") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text, err := os.ReadFile(recordPath(root)); err != nil || string(text) != newer {
		t.Errorf("it says %s now, %v", text, err)
	}
	// A damaged one is made again, but a reset needs what it said.
	if err := os.WriteFile(recordPath(root), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := RecordedConfig(root); err == nil || errors.Is(err, checkpoint.ErrNewer) {
		t.Errorf("a damaged one: %v", err)
	}
	if err := Record(cfg); err != nil {
		t.Error(err)
	}
}

// An agent that comes back to a full disk has no space to write what is there.
func TestARecordThatIsThereIsNotWritten(t *testing.T) {
	cfg := &config.Config{RootDir: t.TempDir()}
	inode := func() os.FileInfo {
		if err := Record(cfg); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(recordPath(cfg.RootDir))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := inode()
	if !os.SameFile(first, inode()) {
		t.Error("it was replaced by the same")
	}
	cfg.Kubelet.PodLogsDir = "/elsewhere"
	if os.SameFile(first, inode()) {
		t.Error("a change isn't written")
	}
}

// An agent that takes its manifests from elsewhere than the last one would end that one's pods.
func TestReplaced(t *testing.T) {
	root := t.TempDir()
	at := func(manifests string) *config.Config {
		cfg := &config.Config{RootDir: root, CertDir: filepath.Join(root, "pki")}
		cfg.Kubelet.StaticPodPath = manifests
		return cfg
	}
	check := func(when, manifests, wantFrom string, want int) {
		t.Helper()
		if from, pods := Replaced(at(manifests)); from != wantFrom || pods != want {
			t.Errorf("%s, from %s: %d pods of %q, want %d of %q", when, manifests, pods, from, want, wantFrom)
		}
	}
	check("before any agent", "/b", "", 0)
	if err := Record(at("/a")); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"1", "2"} {
		if err := os.MkdirAll(filepath.Join(root, "pods", uid), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	check("the same directory", "/a/", "", 0)
	check("another or renamed one", "/b", "/a", 2)
	if err := os.RemoveAll(filepath.Join(root, "pods")); err != nil {
		t.Fatal(err)
	}
	check("after down", "/b", "", 0)
}
