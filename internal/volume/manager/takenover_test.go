package manager_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// TestWhatIsTakenOverAsItWasIsReported: while no agent ran, a ConfigMap became one that a running pod's volume can't be made
// from, or there is no room for it any more. The pod keeps what it has, people hear why, and what is fixed
// reaches it.
func TestWhatIsTakenOverAsItWasIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile map[string]string
		full      bool // is the disk
		told      string
	}{
		"a key is missing":       {map[string]string{"b": "2"}, false, `has no key "a"`},
		"it is too large":        {map[string]string{"a": strings.Repeat("2", 2<<20)}, false, "no more than 1 MiB"},
		"there is no room":       {map[string]string{"a": strings.Repeat("2", 200<<10)}, true, "no space left"},
		"the object isn't there": {nil, false, "isn't there"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			v := configMap("conf", "web")
			v.ConfigMap.Items = []v1.KeyToPath{{Key: "a", Path: "a"}}
			p := w.want(newPod(v))
			file := contentOf(w, p.UID, "kubernetes.io~configmap", "conf", "a")
			if c.full {
				disk := filepath.Join(w.root, "pods")
				must(t, os.Mkdir(disk, 0o755))
				must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=100k"))
			}
			w.setConfigMap("web", map[string]string{"a": "1"})
			m, stop := w.start(w.config())
			must(t, m.Prepare(t.Context(), p, w))
			w.setRunning(p.UID, true)
			stop()

			w.setConfigMap("web", c.meanwhile)
			m, _ = w.start(w.config())
			must(t, m.Prepare(t.Context(), p, w))
			eventually(t, "it is told of", func() bool {
				return slices.ContainsFunc(w.told(), func(e string) bool { return strings.Contains(e, "FailedMount") && strings.Contains(e, c.told) })
			})
			if !holds(file, "1") {
				t.Error("it doesn't keep what it has")
			}
			w.setConfigMap("web", map[string]string{"a": "3"})
			eventually(t, "what is fixed is seen", func() bool { return holds(file, "3") })
			w.setRunning(p.UID, false)
			must(t, m.Clean(t.Context(), p.UID))
		})
	}
}
