package atomicwriter

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

// TestKilled kills an update between any two of its steps. What is left is either
// the old or the new, whole; and the next try completes it.
func TestKilled(t *testing.T) {
	before := map[string]File{"a": file("A1"), "b/c": file("C1"), "gone": file("G1"), "d": file("D1")}
	after := map[string]File{"a": file("A2"), "b/c": file("C2"), "new": file("N2"), "d/e": {Data: []byte("E2"), Mode: 0o400, UID: ptr.To[int64](7)}}
	group := Options{Group: ptr.To(2000), MountPoints: []string{"mount/point"}}
	complete := filepath.Join(t.TempDir(), "complete")
	must(t, os.Mkdir(complete, 0o755))
	_, err := Write(t.Context(), complete, after, group)
	must(t, err)
	want := listing(t, complete)

	for name, first := range map[string]map[string]File{"the first write": nil, "an update": before} {
		killtest.Run(t, killtest.Case{
			Name: name,
			Fresh: func(t *testing.T, dir string) {
				if first != nil {
					write(t, dir, first, Options{}, true)
				}
			},
			Child: func(dir string) error {
				_, err := Write(t.Context(), dir, after, group)
				return err
			},
			Check: func(t *testing.T, dir string, n int) {
				noDanglingLinks(t, dir)
				if first != nil {
					oneGeneration(t, dir)
				}
				if n%2 == 0 { // the object is gone meanwhile: what is shown is made complete
					recovered(t, dir, first, want)
				}
				_, err := Write(t.Context(), dir, after, group)
				must(t, err)
				write(t, dir, after, group, false)
				check(t, dir, want)
			},
		})
	}
}

func noDanglingLinks(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name())); err != nil && e.Name() != tempLink {
			t.Errorf("%s leads nowhere: %v", e.Name(), err)
		}
	}
}

// oneGeneration looks at the names that are there before and after.
func oneGeneration(t *testing.T, dir string) {
	t.Helper()
	a, err := os.ReadFile(filepath.Join(dir, "a"))
	must(t, err)
	c, err := os.ReadFile(filepath.Join(dir, "b", "c"))
	must(t, err)
	if got := string(a) + string(c); got != "A1C1" && got != "A2C2" {
		t.Errorf("readers see %s", got)
	}
	if target, err := os.Readlink(filepath.Join(dir, "d")); err != nil || target != "..data/d" {
		t.Errorf("d leads to %s, %v", target, err)
	}
}

// recovered brings the volume to the whole of what it shows.
func recovered(t *testing.T, dir string, first map[string]File, after map[string]string) {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	whole, err := Recover(t.Context(), f, Options{})
	must(t, err)
	if !whole {
		if first != nil {
			t.Error("a volume that was complete isn't")
		}
		return
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err == nil && string(data) == "A2" {
		// It knows of no mount points: a volume that is in use has had them since its first Write.
		must(t, os.RemoveAll(filepath.Join(dir, "mount")))
		after = maps.Clone(after)
		maps.DeleteFunc(after, func(path, _ string) bool { return strings.HasPrefix(path, "mount") })
		check(t, dir, after)
		return
	}
	shown := t.TempDir()
	write(t, shown, first, Options{}, true)
	check(t, dir, listing(t, shown))
}
