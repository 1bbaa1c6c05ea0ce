package manager_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/csi"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// A record or a note that can't be read keeps the volumes in use that it may be about: all that the node's object has
// for a note of a pod's volume, one for a record of a device. Other volumes are attached. Once it is gone, so is the
// doubt.
func TestUnreadableRecordOfAnAttachedVolume(t *testing.T) {
	for title, which := range map[string]string{
		"a device's record": "staged/HASH/device",
		"a pod's note":      "pods/gone/volumes/kubernetes.io~csi/pv/vol_data.json",
	} {
		t.Run(title, func(t *testing.T) {
			c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
			other, stray := c.name()+"-other", c.name()+"-stray"
			c.reported, c.damaged = []v1.UniqueVolumeName{other, stray}, true
			path := filepath.Join(c.root, which)
			want := []v1.UniqueVolumeName{c.name(), other}
			if title == "a pod's note" {
				want = append(want, stray)
			} else {
				sum := sha256.Sum256([]byte("kubernetes.io/csi\x00" + attachedDriver + "^" + c.handle + "-other"))
				path = filepath.Join(c.root, "staged", hex.EncodeToString(sum[:]), "device")
				must(t, os.MkdirAll(filepath.Join(filepath.Dir(path), "users/uid-x/pv"), 0o700)) // it isn't swept
				must(t, os.MkdirAll(filepath.Join(c.root, "pods/uid-x"), 0o700))
			}
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must(t, os.WriteFile(path, []byte("{torn"), 0o600))
			m := c.agent()
			p := c.user(1)
			c.waits(m, p, "a controller has to attach it")
			c.change(func() { c.lost = nil }) // the note that can't be read isn't one of this volume
			c.attach("va-1", "one")
			must(t, m.Prepare(t.Context(), p, c))
			if got := c.used(); !slices.Equal(got, want) {
				t.Errorf("in use are %q, want %q", got, want)
			}
			must(t, os.RemoveAll(filepath.Dir(path)))
			eventually(t, "only the mounted volume is in use", func() bool {
				return slices.Equal(c.used(), []v1.UniqueVolumeName{c.name()})
			})
			must(t, m.Clean(t.Context(), p.UID))
			c.wantCalls("Stage one", "Publish one", "Unpublish", "Unstage")
			must(t, os.RemoveAll(filepath.Join(c.root, "pods")))
			c.detach()
			c.finish()
		})
	}
}

// A device that a kubelet has left behind with an empty note is in use until it is unstaged, and no other volume is. The
// node's object and the device's directory say which volume it is of (kubernetes/kubernetes#85476).
func TestDeviceWithUnreadableNote(t *testing.T) {
	for name, forgotten := range map[string]bool{"unstaged": false, "forgotten": true} {
		t.Run(name, func(t *testing.T) {
			c, m, p := mountedInCluster(t)
			rule, err := c.driver.Add(t.Context(), csidriver.Rule{Method: "NodeUnstageVolume", Count: -1, Do: csidriver.Fail,
				Code: codes.Internal})
			must(t, err)
			c.unwant(p.UID)
			must(t, m.Clean(t.Context(), p.UID))
			c.end()
			must(t, os.RemoveAll(filepath.Join(c.root, "staged")))
			notes, _ := filepath.Glob(filepath.Join(c.root, "plugins/kubernetes.io/csi/*/*/vol_data.json"))
			must(t, os.WriteFile(append(notes, "none")[0], nil, 0o600))
			c.reported, c.damaged = []v1.UniqueVolumeName{c.name(), c.name() + "-stray"}, true
			for range 2 {
				next, run := c.prepared(c)
				m = next
				if got := c.used(); !slices.Equal(got, []v1.UniqueVolumeName{c.name()}) {
					t.Errorf("in use are %q", got)
				}
				run()
				eventually(t, "the device is recorded", func() bool {
					held, err := m.Held()
					return err == nil && len(held) == 1 && string(c.name()) == "kubernetes.io/csi/"+held[0].Device
				})
				if !c.isInUse() {
					t.Error("it isn't in use before it is unstaged")
				}
				c.damaged = false // a record makes up for the note
			}
			if forgotten {
				must(t, m.ForgetDevice(t.Context(), attachedDriver+"^"+c.handle))
			} else {
				must(t, c.driver.Release(t.Context(), rule))
			}
			eventually(t, "it can be detached", func() bool { return !c.isInUse() })
			if !forgotten { // else the driver's law is broken
				c.detach()
				c.finish()
			}
		})
	}
}

// A device that can't be recorded at the start, because one pod's volumes can't be listed, is recorded once they can be:
// it is unstaged after its last volume, or when it has no volume any more.
func TestDeviceThatIsRecordedLater(t *testing.T) {
	for name, repaired := range map[string]bool{"while it is used": true, "after its last volume": false} {
		t.Run(name, func(t *testing.T) {
			c, _, p := mountedInCluster(t)
			c.end()
			must(t, os.RemoveAll(filepath.Join(c.root, "staged"))) // a kubelet has no such records
			broken := filepath.Join(c.root, "pods/uid-x/volumes")
			must(t, os.MkdirAll(filepath.Dir(broken), 0o700))
			must(t, os.WriteFile(broken, nil, 0o600))
			c.damaged = true
			m := c.agent()
			repair := func() { must(t, os.RemoveAll(filepath.Dir(broken))) }
			if repaired {
				repair()
				eventually(t, "it is recorded", func() bool {
					records, _ := filepath.Glob(filepath.Join(c.root, "staged/*/device"))
					return len(records) == 1
				})
			}
			must(t, m.Clean(t.Context(), p.UID))
			if !repaired {
				repair()
			}
			eventually(t, "it can be detached", func() bool { return !c.isInUse() })
			c.wantCalls("Stage one", "Publish one", "Unpublish", "Unstage")
			c.detach()
			c.finish()
		})
	}
}

// pausing is a plugin that lists devices for the fourth time only after resume: Run searches for the volumes in use.
type pausing struct {
	csi.Plugin
	calls           *atomic.Int32
	reached, resume chan struct{}
}

func (p pausing) Noted() []string {
	if p.calls.Add(1) == 4 {
		close(p.reached)
		<-p.resume
	}
	return p.Plugin.Noted()
}

// A slow search for the volumes in use blocks no pod, and a volume that is released meanwhile isn't in use.
func TestVolumeThatIsReleasedDuringTheSearch(t *testing.T) {
	c, m, p := mountedInCluster(t)
	broken := filepath.Join(c.root, "pods/uid-x/volumes")
	must(t, os.MkdirAll(filepath.Dir(broken), 0o700))
	must(t, os.WriteFile(broken, nil, 0o600)) // so that Run searches, too
	c.damaged = true
	reached, resume := make(chan struct{}), make(chan struct{})
	c.wrap = func(p csi.Plugin) volume.Plugin { return pausing{p, new(atomic.Int32), reached, resume} }
	m = c.agent()
	<-reached
	cleaned := make(chan error, 1)
	go func() { cleaned <- m.Clean(context.Background(), p.UID) }()
	select {
	case err := <-cleaned:
		must(t, err)
	case <-time.After(20 * time.Second):
		t.Error("the search blocks the manager")
	}
	close(resume)
	must(t, os.RemoveAll(filepath.Dir(broken)))
	eventually(t, "it can be detached", func() bool { return !c.isInUse() })
	c.detach()
	c.end() // the last search has ended
	c.finish()
}

// A record that can be read again later counts from then on.
func TestRecordThatIsReadLater(t *testing.T) {
	c, _, p := mountedInCluster(t)
	records, _ := filepath.Glob(filepath.Join(c.root, "staged/*/device"))
	notes, _ := filepath.Glob(filepath.Join(c.root, "pods/*/volumes/*/*/vol_data.json"))
	text, err := os.ReadFile(append(records, "none")[0])
	must(t, err)
	note, err := os.ReadFile(append(notes, "none")[0])
	must(t, err)
	c.end()
	must(t, os.WriteFile(records[0], []byte("{torn"), 0o600))
	must(t, os.WriteFile(notes[0], []byte("{torn"), 0o600))
	c.damaged = true
	m := c.agent()
	if !c.isInUse() {
		t.Error("a volume that is mounted isn't reported")
	}
	must(t, os.WriteFile(records[0], text, 0o600))
	must(t, os.WriteFile(notes[0], note, 0o600))
	must(t, m.Clean(t.Context(), p.UID))
	eventually(t, "it can be detached", func() bool { return !c.isInUse() })
	c.detach()
	c.finish()
}
