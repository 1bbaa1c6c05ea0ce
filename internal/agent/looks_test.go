package agent_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// TestLooksOpenNothing: an agent that observes the node's resources opens no directory of pods while no threshold is
// met.
func TestLooksOpenNothing(t *testing.T) {
	t.Parallel()
	const settings = "evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, nodefs.inodesFree: '1', " +
		"pid.available: '%d'}\n"
	r := newReloads(t, fmt.Sprintf(settings, 1))
	r.want("a", momentSpec)
	r.up()
	r.awaitPod("a", ready)
	data := r.mount("a/main", "/data")
	if err := os.MkdirAll(filepath.Join(data, "deep/er"), 0o755); err != nil {
		t.Fatal(err)
	}
	var dirs []string
	err := filepath.WalkDir(filepath.Dir(r.volumesOf("a/main")), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	observed := func(least int64) func() string {
		return func() string {
			n, err := r.client.Node(t.Context())
			if err != nil || n.Evictions == nil {
				return fmt.Sprint(n.Evictions, err)
			}
			for _, e := range n.Evictions.Thresholds {
				if e.Signal == "pid.available" && e.Least == least && e.Available != nil {
					return ""
				}
			}
			return fmt.Sprintf("%+v", n.Evictions.Thresholds)
		}
	}
	opens := mounttest.WatchOpens(t, dirs...)
	for least := range int64(3) {
		r.reload(fmt.Sprintf(settings, least+2), v1.EventTypeNormal, "ConfigurationReloaded", "pid.available")
		r.await("observed again", observed(least+2))
	}
	if d, f := opens.Since(); d+f > 0 {
		t.Errorf("with %d directories watched, %d directories and %d files were opened", len(dirs), d, f)
	}
	if _, err := os.ReadDir(data); err != nil {
		t.Fatal(err)
	}
	if d, _ := opens.Since(); d != 1 {
		t.Errorf("the test opened a directory, and %d were seen", d)
	}
}
