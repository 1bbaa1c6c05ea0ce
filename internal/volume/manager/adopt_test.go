package manager_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// remote is a plugin of iSCSI volumes.
type remote struct{ *stand }

func (remote) Supports(s volume.Spec) bool { return s.Volume.ISCSI != nil }

// instances lists the names of mounted volumes.
func instances(m *manager.Manager) (names []string) {
	for _, i := range m.Instances() {
		names = append(names, i.Spec.Volume.Name)
	}
	return names
}

// TestPrepareAfterRestartWithEphemeralContainer: a volume that only a running ephemeral container uses, and that can't be
// taken over, holds up nobody else. When the cause is gone, it is taken over.
func TestPrepareAfterRestartWithEphemeralContainer(t *testing.T) {
	dir := t.TempDir()
	file, store, away := filepath.Join(dir, "file"), filepath.Join(dir, "store"), filepath.Join(dir, "away")
	disk := v1.Volume{Name: "own", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{}}}
	for name, c := range map[string]struct {
		own         v1.Volume
		fail, mend  func(w *world) error
		told        string
		unsupported bool
	}{
		"unsupported kind": {own: disk, told: "not supported", unsupported: true},
		"missing typed hostPath": {own: typedHostPath("own", file, v1.HostPathFile), told: "file",
			fail: func(*world) error { return os.Remove(file) }, mend: func(*world) error { return os.WriteFile(file, nil, 0o600) }},
		"missing local path": {own: claim("own", "db"), told: "does not exist",
			fail: func(*world) error { return os.Rename(store, away) }, mend: func(*world) error { return os.Rename(away, store) }},
		"unbound claim": {own: claim("own", "db"), told: "claim db isn't there",
			fail: func(w *world) error { delete(w.bound, "db"); return nil }, mend: func(w *world) error { w.bind("db", store); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			must(t, os.MkdirAll(store, 0o755))
			must(t, os.WriteFile(file, nil, 0o600))
			w.bind("db", store)
			first := w.config()
			if c.unsupported { // by the next agent
				first.Plugins = append([]volume.Plugin{remote{newStand()}}, first.Plugins...)
			}
			m, stop := w.start(first)
			p := sparePod(emptyDir("data", v1.StorageMediumMemory), c.own)
			must(t, m.Prepare(t.Context(), w.want(p), w))
			w.setRunning(p.UID, true)
			p, debug := addContainer(p, "debug", "own")
			must(t, m.PrepareContainer(t.Context(), w.want(p), debug, w))
			w.added = []string{"debug"}
			before := mountTable(t, w.root)
			stop()
			if c.fail != nil {
				must(t, c.fail(w))
			}

			m, stop = w.start(w.config())
			must(t, m.Prepare(t.Context(), p, w))
			if got := instances(m); !slices.Equal(got, []string{"data"}) || !maps.Equal(mountTable(t, w.root), before) {
				t.Errorf("taken over: %q; mounted: %v, before: %v", got, mountTable(t, w.root), before)
			}
			if told := w.told(); len(told) != 1 || !strings.Contains(told[0], "FailedMount: ") || !strings.Contains(told[0], `container "debug"`) || !strings.Contains(told[0], c.told) {
				t.Errorf("told: %q", told)
			}
			if c.mend != nil {
				must(t, c.mend(w))
				eventually(t, "it is taken over", func() bool {
					w.wake() // else it would be tried again after half a minute
					return slices.Equal(instances(m), []string{"data", "own"})
				})
			}
			w.setRunning(p.UID, false)
			must(t, m.Clean(t.Context(), p.UID))
			w.clean()
			stop()
		})
	}
}

// TestPrepareWithFailingMainAdoptsEphemeral: what a main container waits for holds up no ephemeral container's volume, and
// is the only failure.
func TestPrepareWithFailingMainAdoptsEphemeral(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p, _ := addContainer(sparePod(configMap("conf", "missing"), emptyDir("dump", ""), claim("db", "missing")), "debug", "dump")
	p, _ = addContainer(p, "other", "db")
	p, _ = addContainer(p, "third", "conf")
	w.setRunning(p.UID, true)
	w.added = []string{"debug", "other", "third"}
	f := failure(t, m.Prepare(t.Context(), w.want(p), w))
	if f.Awaits.Name != "missing" || f.Awaits.Kind != "ConfigMap" || strings.Contains(f.Message, "db") {
		t.Errorf("got %+v", f)
	}
	if got := instances(m); !slices.Equal(got, []string{"dump"}) {
		t.Errorf("taken over: %q", got)
	}
	if told := w.told(); len(told) != 1 || !strings.Contains(told[0], `"other"`) {
		t.Errorf("told: %q", told)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// TestPrepareWaitsBrieflyForEphemeralContainer, every time, if its file system hangs; and for two not longer than for one.
func TestPrepareWaitsBrieflyForEphemeralContainer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p, _ := addContainer(sparePod(emptyDir("data", ""), hostPath("nfs", "stand:"), hostPath("other", "stand:")), "debug", "nfs")
		p, _ = addContainer(p, "second", "other")
		w.setRunning(p.UID, true)
		w.added = []string{"debug", "second"}
		resume, resumeOther := s.hang(t, "mount nfs"), s.hang(t, "mount other")
		defer resume()
		defer resumeOther()
		for range 3 {
			start := time.Now()
			must(t, m.Prepare(t.Context(), w.want(p), w))
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		if told := w.told(); len(told) < 6 || !strings.Contains(told[2], "not mounted after 10s") {
			t.Errorf("told: %q", told)
		}
		resume()
		resumeOther()
		must(t, m.Prepare(t.Context(), p, w))
		if got := instances(m); !slices.Equal(got, []string{"data", "nfs", "other"}) {
			t.Errorf("taken over: %q", got)
		}
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

// TestVolumesOfEndedEphemeralContainers: after a restart of the agent or the node, what they have left in an emptyDir counts
// as before. Nothing is made for them.
func TestVolumesOfEndedEphemeralContainers(t *testing.T) {
	for name, running := range map[string]bool{"the pod runs": true, "after a reboot": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.setConfigMap("web", map[string]string{"a": "1"})
			m, stop := w.start(w.config())
			p := sparePod(emptyDir("data", ""), emptyDir("dump", ""), emptyDir("unmade", ""), configMap("conf", "web"))
			must(t, m.Prepare(t.Context(), w.want(p), w))
			w.setRunning(p.UID, true)
			for _, v := range []string{"dump", "conf"} {
				next, c := addContainer(p, "debug-"+v, v)
				p = next
				must(t, m.PrepareContainer(t.Context(), w.want(p), c, w))
			}
			p, _ = addContainer(p, "debug", "unmade") // it was never started
			dump := contentOf(w, p.UID, "kubernetes.io~empty-dir", "dump", "core")
			must(t, os.WriteFile(dump, []byte("x"), 0o600))
			stop()

			w.setRunning(p.UID, running)
			m, stop = w.start(w.config())
			must(t, m.Prepare(t.Context(), w.want(p), w))
			if got := instances(m); !slices.Equal(got, []string{"data", "dump"}) || !holds(dump, "x") {
				t.Errorf("taken over: %q, of %q", got, directories(t, w.root))
			}
			if told := w.told(); len(told) > 0 {
				t.Errorf("told: %q", told)
			}
			w.setRunning(p.UID, false)
			must(t, m.Clean(t.Context(), p.UID))
			w.clean()
			stop()
		})
	}
}

// TestSweepOfAVolumeThatHasAnotherSource: it is stale where an earlier agent made it, whatever its name.
func TestSweepOfAVolumeThatHasAnotherSource(t *testing.T) {
	w := newWorld(t)
	p := w.want(newPod(emptyDir("data", "")))
	stale := filepath.Join(w.root, "pods", string(p.UID), "volumes", "kubernetes.io~configmap", "data")
	must(t, os.MkdirAll(stale, 0o755))
	m, _ := w.start(w.config())
	must(t, m.Prepare(t.Context(), p, w))
	if _, err := os.Stat(stale); err == nil {
		t.Error("it is still there")
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// TestPrepareListsNothingOutside the pods' directory for a UID that is a path.
func TestPrepareListsNothingOutside(t *testing.T) {
	w := newWorld(t)
	outside := filepath.Join(w.root, "out", "volumes", "kubernetes.io~empty-dir", "dump")
	must(t, os.MkdirAll(outside, 0o755))
	m, _ := w.start(w.config())
	p, _ := addContainer(sparePod(emptyDir("data", ""), emptyDir("dump", "")), "debug", "dump")
	p.UID = "../out"
	if f := failure(t, m.Prepare(t.Context(), p, w)); !f.Permanent || f.Reason != pod.ReasonFailedMount {
		t.Errorf("got %+v", f)
	}
	if told := w.told(); len(told) > 0 {
		t.Errorf("told: %q", told)
	}
}
