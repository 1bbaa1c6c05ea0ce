package binder_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

func killNode(t errorer, dir string) *node {
	n := newNode(filepath.Join(dir, "checkpoints", "volumes"))
	n.define(t, pv("a", "1Gi")+pv("b", "2Gi")+pv("c", "3Gi")+pvc("one", "1Gi")+pvc("two", "1Gi"))
	n.restart(t)
	return n
}

// TestKilledAtAnyStep: an agent that is killed while it binds, and lets go, has given no volume
// to two claims, and the next one knows what the former used.
func TestKilledAtAnyStep(t *testing.T) {
	killtest.Run(t, killtest.Case{
		Child: func(dir string) error {
			n := killNode(t, dir)
			for _, p := range []string{"one", "two"} {
				if _, err := n.bind(t, user(t, p)); err != nil {
					return err
				}
				// What was bound is used: that is told to those who come later.
				put(t, filepath.Join(dir, p), nil)
			}
			if _, err := n.bind(t, podOf(t, "web", "uid-1", scratch)); err != nil {
				return err
			}
			put(t, filepath.Join(dir, "web"), nil)
			put(t, filepath.Join(dir, "forgetting"), nil)
			if err := n.Forget(t.Context(), "uid-1"); err != nil {
				return err
			}
			put(t, filepath.Join(dir, "forgotten"), nil)
			return nil
		},
		Check: func(t *testing.T, dir string, _ int) {
			n := killNode(t, dir)
			used := func(name string) bool {
				found, err := filepath.Glob(filepath.Join(dir, name))
				return err == nil && len(found) > 0
			}
			// In the other order than before: what was used is known, and nothing else counts.
			if used("forgotten") {
				n.waits(t, podOf(t, "web", "uid-2", scratch), "web-scratch", "c was released by PersistentVolumeClaim default/web-scratch")
			} else if used("web") && !used("forgetting") {
				n.has(t, podOf(t, "web", "uid-1", scratch), "c")
			}
			got := map[string]string{}
			for _, claim := range []string{"two", "one"} {
				name, err := n.bind(t, user(t, claim))
				if err != nil || got[name] != "" {
					t.Errorf("%s has %q, which %q has, %v", claim, name, got[name], err)
				}
				got[name] = claim
			}
			if used("one") && got["a"] != "one" || used("two") && got["b"] != "two" {
				t.Errorf("bound %v", got)
			}
			left, err := filepath.Glob(filepath.Join(n.dir, ".*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left over: %s, %v", strings.Join(left, ", "), err)
			}
		},
	})
}
