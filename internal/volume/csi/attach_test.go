package csi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// The decision table of attachments.
func TestAttaching(t *testing.T) {
	object1 := func(change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
		o := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv")}},
			Status: storagev1.VolumeAttachmentStatus{Attached: true}}
		for _, c := range change {
			c(o)
		}
		return o
	}
	deleted := func(o *storagev1.VolumeAttachment) { o.DeletionTimestamp = &metav1.Time{} }
	failed := func(o *storagev1.VolumeAttachment) {
		o.Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no disk\n" + strings.Repeat("x", 5000)}}
	}
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "volumeattachments"}, "csi-1")
	asked, away := &object.Unknown{Why: "the API server is being asked"}, &object.Unknown{Why: "no route", Away: true}
	for name, c := range map[string]struct {
		attaching
		use  use
		text string
	}{
		"nothing yet":                 {attaching{}, goesOn, "volumesInUse"},
		"not reported, but attached":  {attaching{object: object1()}, goesOn, "volumesInUse"},
		"reported":                    {attaching{reported: true, err: missing}, goesOn, "a controller has to attach it"},
		"reported, asked":             {attaching{reported: true, err: asked}, goesOn, "a controller has to attach it"},
		"attached in the object only": {attaching{reported: true, object: object1()}, goesOn, "volumesAttached"},
		"attached":                    {attaching{reported: true, attached: true, object: object1()}, useObject, ""},
		"attached, held":              {attaching{reported: true, attached: true, held: true, object: object1()}, useObject, ""},
		"the controller fails":        {attaching{reported: true, object: object1(failed)}, wait, "can't attach it: no disk"},
		"listed, the controller fails": {attaching{reported: true, attached: true, object: object1(failed)}, wait,
			"can't attach it: no disk"},
		"being deleted": {attaching{reported: true, attached: true, object: object1(deleted)}, wait, "is being deleted"},
		"being deleted, not listed": {attaching{reported: true, object: object1(deleted)}, wait,
			"is being deleted"},
		"of another attacher": {attaching{reported: true, attached: true, object: object1(func(o *storagev1.VolumeAttachment) {
			o.Spec.Attacher = "e"
		})}, wait, `attacher "e" instead of "d"`},
		"at another node": {attaching{reported: true, attached: true, object: object1(func(o *storagev1.VolumeAttachment) {
			o.Spec.NodeName = "m"
		})}, wait, "another node"},
		// One of an older kind in a pod's spec; or another PersistentVolume with the same handle.
		"of no PersistentVolume": {attaching{reported: true, attached: true, object: object1(func(o *storagev1.VolumeAttachment) {
			o.Spec.Source.PersistentVolumeName = nil
		})}, useObject, ""},
		"listed, no object": {attaching{reported: true, attached: true, err: missing}, wait, "has no VolumeAttachment"},
		"listed, the object says no": {attaching{reported: true, attached: true, object: object1(func(o *storagev1.VolumeAttachment) {
			o.Status.Attached = false
		})}, wait, "doesn't say so"},
		"listed, asked":               {attaching{reported: true, attached: true, err: asked}, wait, "being asked"},
		"listed, asked, held":         {attaching{reported: true, attached: true, held: true, err: asked}, wait, "being asked"},
		"listed, away":                {attaching{reported: true, attached: true, err: away}, wait, "no route"},
		"listed, away, held":          {attaching{reported: true, attached: true, held: true, err: away}, useHeld, ""},
		"nothing known, away, held":   {attaching{held: true, err: away}, useHeld, ""},
		"detached, away, held":        {attaching{reported: true, detached: true, held: true, err: away}, goesOn, "a controller has to attach it"},
		"not reported, held, present": {attaching{held: true, object: object1()}, goesOn, "volumesInUse"},
	} {
		c.driver, c.node = "d", "n"
		use, text := c.next()
		if use != c.use || !strings.Contains(text, c.text) || (use == wait || use == goesOn) != (text != "") || len(text) > 1200 {
			t.Errorf("%s: %d %q", name, use, text)
		}
	}
}

// What a note says about volumes that may be in use.
func TestNote(t *testing.T) {
	p := Plugin{drivers: &Drivers{conf: Config{BootID: "this"}}}
	for name, c := range map[string]struct {
		note string
		key  string
		held bool
	}{
		"none":                     {"", "", false},
		"damaged":                  {"{", "", false},
		"of a kubelet's pod":       {`{"driverName":"d","volumeHandle":"h","volumeLifecycleMode":"Persistent"}`, "d^h", true},
		"of a kubelet's device":    {`{"driverName":"d","volumeHandle":"h"}`, "d^h", true},
		"inline, of a kubelet":     {`{"driverName":"d","volumeHandle":"h","volumeLifecycleMode":"Ephemeral"}`, "", false},
		"not attached":             {`{"driverName":"d","volumeHandle":"h","deckhand.io/arguments":"1","deckhand.io/boot":"this"}`, "d^h", false},
		"attached":                 {`{"driverName":"d","volumeHandle":"h","deckhand.io/arguments":"1","deckhand.io/attachment":"u","deckhand.io/boot":"this"}`, "d^h", true},
		"attached in another boot": {`{"driverName":"d","volumeHandle":"h","deckhand.io/arguments":"1","deckhand.io/attachment":"u","deckhand.io/boot":"that"}`, "d^h", false},
		"uncertain":                {`{"driverName":"d","volumeHandle":"h","deckhand.io/arguments":"1","deckhand.io/attachment":"u","deckhand.io/uncertain":"true"}`, "d^h", true},
	} {
		dir := t.TempDir()
		if c.note != "" {
			if err := os.WriteFile(filepath.Join(dir, recordName), []byte(c.note), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n, err := p.Note(dir)
		if n.Attached != c.held || n.Device != c.key || (err != nil) != (len(c.note) < 2) ||
			errors.Is(err, os.ErrNotExist) != (c.note == "") {
			t.Errorf("%s: %+v %v", name, n, err)
		}
	}
}

// A volume that was detached and attached again isn't used by other pods while pods have its old mounts.
func TestNextAttachment(t *testing.T) {
	had := record{keyDriver: "d", keyHandle: "h", keyAttachment: "old", keyBoot: "this"}
	for name, c := range map[string]struct {
		found
		want string
		step step
	}{
		"the same":                       {found{had: had, mounted: true}, "old", keep},
		"the same, shared":               {found{had: had, mounted: true, shared: true, used: true}, "old", keep},
		"another":                        {found{had: had, mounted: true}, "new", undo},
		"another, staged":                {found{had: had, mounted: true, shared: true}, "new", undo},
		"another, staged, in use":        {found{had: had, shared: true, used: true}, "new", blocked},
		"another, published, in use":     {found{had: had, mounted: true, used: true}, "new", blocked},
		"another, not mounted, in use":   {found{had: had, used: true}, "new", undo},
		"containers use it, not asked":   {found{had: had, mounted: true, used: true}, "", keep},
		"staged by a kubelet":            {found{had: record{keyDriver: "d", keyHandle: "h"}, mounted: true, shared: true}, "new", keep},
		"unstaged, device in use":        {found{had: record{keyDriver: "d", keyHandle: "h", keyAttachment: "old", keyBoot: "this", keyUncertain: released}, shared: true, used: true}, "new", begin},
		"no record":                      {found{err: os.ErrNotExist}, "new", begin},
		"a record that can't be read":    {found{err: errors.New("torn")}, "new", repeat},
		"another, in an earlier boot":    {found{had: record{keyDriver: "d", keyHandle: "h", keyAttachment: "old", keyBoot: "that"}, shared: true}, "new", undo},
		"the same, in an earlier boot":   {found{had: record{keyDriver: "d", keyHandle: "h", keyAttachment: "old", keyBoot: "that"}, shared: true}, "old", repeat},
		"the same, uncertain":            {found{had: record{keyDriver: "d", keyHandle: "h", keyAttachment: "old", keyUncertain: "true", keyBoot: "this"}}, "old", repeat},
		"another, uncertain, not in use": {found{had: record{keyDriver: "d", keyHandle: "h", keyAttachment: "old", keyUncertain: "true", keyBoot: "this"}}, "new", undo},
	} {
		want := record{keyDriver: "d", keyHandle: "h"}
		attachment{uid: c.want}.note(want)
		if got := c.next(want, "this"); got != c.step {
			t.Errorf("%s: step %d, want %d", name, got, c.step)
		}
	}
}
