package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/volume"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// torn are the ways in which a record can't be read.
var torn = map[string]func(path string) error{
	"empty":     func(p string) error { return os.WriteFile(p, nil, 0o600) },
	"cut":       func(p string) error { return os.WriteFile(p, []byte(`{"driverName":"d`), 0o600) },
	"foreign":   func(p string) error { return os.WriteFile(p, []byte(`{"a":"b"}`), 0o600) },
	"too large": func(p string) error { return os.WriteFile(p, make([]byte, 10<<20), 0o600) },
	"a link": func(p string) error {
		other := filepath.Join(filepath.Dir(filepath.Dir(p)), "other.json")
		return errors.Join(os.Remove(p), os.WriteFile(other, []byte(`{"driverName":"d","volumeHandle":"h"}`), 0o600),
			os.Symlink(other, p))
	},
}

// A volume whose record can't be read is released by what the manager knows of it: its device, or else its source. If
// it knows nothing, the volume stays, and the error names the record and the remedy.
func TestReleaseWithTornRecord(t *testing.T) {
	r := newRig(t, nil, "STAGE_UNSTAGE_VOLUME")
	tear := func(how func(string) error, dir string) {
		t.Helper()
		if err := how(filepath.Join(dir, recordName)); err != nil {
			t.Fatal(err)
		}
	}
	for name, how := range torn {
		t.Run(name, func(t *testing.T) {
			r.T = t
			uid := types.UID(strings.ReplaceAll(name, " ", "-"))
			q := asking(inline(func(p *v1.Pod, _ *v1.CSIVolumeSource) { p.UID = uid }), r.root, seeing(described()))
			r.mount(q)
			tear(how, q.Dir)
			err := r.plugin.Unmount(t.Context(), q.Place, nil)
			if err == nil || !strings.Contains(err.Error(), filepath.Join(q.Dir, recordName)) ||
				!strings.Contains(err.Error(), "`deckhand volumes forget "+string(uid)+"/data`") {
				t.Errorf("released without knowing what: %v", err)
			}
			if !isMount(q.Dir, targetName) {
				t.Error("it was unmounted behind the driver's back")
			}
			at := q.Place
			at.Spec = q.Spec
			r.unmount(at)
			r.wantCalls("Publish OK", "Unpublish OK")

			q = claimed(r.root, uid, seeing())
			g, err := r.stage(q)
			if err != nil {
				t.Fatal(err)
			}
			r.mount(q)
			tear(how, q.Dir)
			tear(how, g.Dir)
			at = q.Place
			at.Device, at.Spec = g.Device, asking(inline(), r.root, nil).Spec // the device is certain
			r.unmount(at)
			if err := r.plugin.Unstage(t.Context(), volume.Staging{Device: g.Device, Dir: g.Dir}); err != nil {
				t.Fatal(err)
			}
			r.empty(g.Dir)
			r.wantCalls("Stage OK", "Publish OK", "Unpublish OK", "Unstage OK")
			r.driver.CheckLaw(t)
			if other, err := os.ReadFile(filepath.Join(filepath.Dir(q.Dir), "other.json")); err == nil && len(other) == 0 {
				t.Error("the file behind a link was written")
			}
		})
	}
}

// What a driver holds that never comes back is forgotten: it is unmounted and its record removed, unless it is busy.
func TestForget(t *testing.T) {
	r := newRig(t, nil, "STAGE_UNSTAGE_VOLUME")
	q := claimed(r.root, "u-1", seeing())
	g, err := r.stage(q)
	if err != nil {
		t.Fatal(err)
	}
	r.mount(q)
	if n, err := r.plugin.Note(q.Dir); n.Program != driverName || n.Handle != "h/1" || err != nil {
		t.Errorf("held: %+v, %v", n, err)
	}
	r.drivers.Gone(r.registration())
	err = r.plugin.Unmount(t.Context(), q.Place, nil)
	if !awaitsDriver(err) || !strings.Contains(err.Error(), "`deckhand volumes forget u-1/pv-1`") {
		t.Errorf("unmounted without a driver: %v", err)
	}
	if err := r.plugin.Unstage(t.Context(), g); !awaitsDriver(err) ||
		!strings.Contains(err.Error(), "`deckhand volumes forget csi.deckhand.test^h/1`") {
		t.Errorf("unstaged without a driver: %v", err)
	}
	busy, err := os.Create(filepath.Join(q.Dir, targetName, "file"))
	if err != nil {
		t.Fatal(err)
	}
	err = r.plugin.Forget(t.Context(), q.Dir, false)
	if !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), filepath.Join(q.Dir, targetName)) {
		t.Errorf("a busy volume: %v", err)
	}
	if _, err := readRecord(q.Dir); err != nil || !isMount(q.Dir, targetName) {
		t.Errorf("it isn't as it was: %v", err)
	}
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(r.plugin.Forget(t.Context(), q.Dir, false), r.plugin.Forget(t.Context(), g.Dir, true)); err != nil {
			t.Error(err)
		}
	}
	r.empty(q.Dir)
	r.empty(g.Dir)
	if _, err := r.plugin.Note(q.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still held: %v", err)
	}
	if left := csidriver.Mounts(t, r.root); len(left) > 0 {
		t.Errorf("left mounted: %v", left)
	}
	if err := r.plugin.Forget(t.Context(), filepath.Join(r.root, "none"), true); err != nil {
		t.Error(err)
	}
}

// A driver that died and left its socket is one to wait for, and is tried again though nothing may report its return.
func TestDeadDriver(t *testing.T) {
	r := newRig(t, nil)
	q := asking(inline(), r.root, seeing(described()))
	r.mount(q)
	r.add(csidriver.Rule{Method: "NodeUnpublishVolume", Do: csidriver.Fail, Code: codes.Unavailable, Message: "later"})
	var awaits *volume.AwaitsError
	if err := r.plugin.Unmount(t.Context(), q.Place, nil); err == nil || errors.As(err, &awaits) {
		t.Errorf("a driver that answers is awaited: %v", err)
	}
	r.driver.Kill()
	err := r.plugin.Unmount(t.Context(), q.Place, nil)
	if !awaitsDriver(err) || !errors.As(err, &awaits) || !strings.Contains(err.Error(), "code = Unavailable") {
		t.Fatalf("error %v", err)
	}
	if wait := time.Until(awaits.NotBefore); wait <= 0 || wait > unreachableRetry {
		t.Errorf("the next try is in %s", wait)
	}
	r.driver.Launch(t)
	reg, _ := r.drivers.newest(driverName)
	for state := reg.conn.GetState(); state != connectivity.Ready; state = reg.conn.GetState() {
		if !reg.conn.WaitForStateChange(t.Context(), state) {
			t.Fatal("the driver isn't connected again")
		}
	}
	r.unmount(q.Place)
}

// On a full disk a record can't say that the release has begun. The agent knows all the same, if the driver's answer
// leaves it uncertain.
func TestReleaseOnFullDisk(t *testing.T) {
	r := newRig(t, func(c *Config) { c.BootID = "this" })
	q := asking(inline(), r.root, seeing(described()))
	if err := os.MkdirAll(q.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", q.Dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { csidriver.Unmount(t, q.Dir) })
	r.mount(q)
	// The kubelet's record has no place for the state.
	kubelets, err := readRecord(q.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{keyUncertain, keyBoot, keyArguments} {
		delete(kubelets, key)
	}
	text, err := json.Marshal(kubelets)
	if err := errors.Join(err, os.WriteFile(filepath.Join(q.Dir, recordName), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(q.Dir, "fill")
	for size := 1 << 16; size > 0; size /= 2 {
		f, err := os.OpenFile(fmt.Sprint(fill, size), os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.Write(make([]byte, size))
			_ = f.Close()
		}
		if err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := (record{keyDriver: "d", keyHandle: "h"}).release(q.Dir); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk isn't full: %v", err)
	}
	r.add(csidriver.Rule{Method: "NodeUnpublishVolume", Do: csidriver.Fail, Code: codes.DeadlineExceeded})
	if err := r.plugin.Unmount(t.Context(), q.Place, nil); err == nil {
		t.Error("unmounted")
	}
	if had, err := readRecord(q.Dir); err != nil || !had.certain() {
		t.Fatalf("the record was written: %v, %v", had, err)
	}
	if had, err := r.plugin.read(q.Dir); err != nil || had.certain() {
		t.Errorf("the volume counts as held: %v, %v", had, err)
	}
	q.InUse = true
	if _, err := r.plugin.Mount(t.Context(), q); err == nil {
		t.Error("it is used without a call") // the call's record can't be written
	}
	left, _ := filepath.Glob(fill + "*")
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	r.called()
	r.mount(q)
	r.wantCalls("Publish OK")
	r.mount(q)
	r.wantCalls()
	r.unmount(q.Place)
}
