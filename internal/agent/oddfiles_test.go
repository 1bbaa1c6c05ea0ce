package agent_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/room"
)

// TestOddStateFiles: a directory, a link or another user's file in place of each file of the agent's state doesn't keep
// the next agent from starting. The pod that runs is left alone, and so is what a link points to.
func TestOddStateFiles(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	const kept = `{"kept":"by somebody else"}`
	replace := func(with func(path string) error) func(string) error {
		return func(path string) error {
			return errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o700), with(path))
		}
	}
	for name, odd := range map[string]func(path string) error{
		"a directory": replace(func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "file"), []byte("text"), 0o600))
		}),
		"a link":         replace(func(path string) error { return os.Symlink(outside, path) }),
		"a broken link":  replace(func(path string) error { return os.Symlink(outside+".none", path) }),
		"another user's": func(path string) error { return os.Chown(path, 12345, 12345) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if err := os.WriteFile(outside, []byte(kept), 0o600); err != nil {
				t.Fatal(err)
			}
			r.put("objects", r.volume("kept")+claim("kept"))
			spec := func(claim, mount string) string {
				return "  terminationGracePeriodSeconds: 1\n  volumes: [{name: v, emptyDir: {}}" + claim +
					"]\n  containers:\n  - {name: main, image: IMAGE, resources: {limits: {memory: 16Mi}}, " +
					"volumeMounts: [{name: v, mountPath: /v}" + mount + "]}\n"
			}
			r.want("a", spec(", {name: kept, persistentVolumeClaim: {claimName: kept}}", ", {name: kept, mountPath: /kept}"))
			r.up()
			r.await("a pod runs", r.running("a/main"))
			before := r.newest("a/main").Id
			r.stop()
			files := r.stateFiles()
			for _, file := range files {
				if err := odd(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			r.up()
			r.client()
			r.want("b", spec("", ""))
			r.await("the next agent has read the manifests", func() string {
				if s, err := r.client().Snapshot(t.Context()); err != nil || len(s.Pods) < 2 {
					return "it hasn't"
				}
				return ""
			})
			if p := r.newest("a/main"); p == nil || p.Id != before || p.FinishedAt != 0 {
				t.Errorf("the pod's container was replaced: %s", r.describe())
			}
			r.stop()
			for _, file := range files {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
			}
			r.up()
			r.await("both pods run", r.running("a/main", "b/main"))
			if text, err := os.ReadFile(outside); err != nil || string(text) != kept {
				t.Errorf("what the links point to is %q, %v", text, err)
			}
			if _, err := os.Lstat(outside + ".none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what the broken links point to: %v", err)
			}
		})
	}
}

// stateFiles are the paths of all state that an agent alone keeps over restarts, whether it is there or not.
func (r *rig) stateFiles() []string {
	found := map[string]bool{}
	for _, use := range room.Uses() {
		top, _, _ := strings.Cut(use.Path, "/")
		if !slices.Contains([]string{"checkpoints", "journal", "image_manager", "device-plugins"}, top) ||
			strings.HasSuffix(use.Path, ".sock") {
			continue
		}
		if !strings.Contains(use.Path, "*") {
			found[r.path("root/"+use.Path)] = true
		}
		paths, err := filepath.Glob(r.path("root/" + use.Path))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, path := range paths {
			found[path] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
