package agent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/sealed"
)

func TestANewerAgentsRootFolderIsRefused(t *testing.T) {
	root := t.TempDir()
	cfg := &config.Config{RootDir: root}
	for range 2 {
		if err := writeFootprint(cfg); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := readFootprint(root); err != nil || c.Runtime.PodCIDR != cfg.Kubelet.PodCIDR {
		t.Errorf("%+v, %v", c, err)
	}
	const newer = `{"version": 2, "deckhand": "v9.9.9", "bridge": ["of", "another", "shape"]}`
	if err := os.WriteFile(footprintPath(root), []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	_, readErr := readFootprint(root)
	for what, err := range map[string]error{"preflight": checkFootprint(root), "start": writeFootprint(cfg), "take-down": readErr} {
		if !errors.Is(err, sealed.ErrNewer) || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "install v9.9.9 or newer") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if text, err := os.ReadFile(footprintPath(root)); err != nil || string(text) != newer {
		t.Errorf("it says %s now, %v", text, err)
	}
	// A damaged one is made anew, but a take-down needs what it said.
	if err := os.WriteFile(footprintPath(root), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readFootprint(root); err == nil || errors.Is(err, sealed.ErrNewer) {
		t.Errorf("a damaged one: %v", err)
	}
	if err := writeFootprint(cfg); err != nil {
		t.Error(err)
	}
}
