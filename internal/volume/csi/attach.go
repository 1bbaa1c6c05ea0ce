package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// attachment is the attachment of a volume to this node. It is zero for a volume that needs none.
type attachment struct {
	// uid is the UID of the VolumeAttachment object.
	uid string
	// context is the driver's publish_context (API: VolumeAttachmentStatus.attachmentMetadata). It may be secret: it
	// isn't logged, and on disk there is only a digest of it.
	context map[string]string
}

// note adds the attachment to a record.
func (a attachment) note(r record) {
	if a.uid == "" {
		return
	}
	r[keyAttachment] = a.uid
	if len(a.context) > 0 {
		r[keyContext] = "true"
	}
}

// shortestContext is the length in bytes from which on a value of a publish_context is hidden in messages: shorter
// values are mostly numbers and names of devices. It replaces the constant shortest for these values.
const shortestContext = 8

// hidden returns the values of the publish_context that must not be in messages.
func (a attachment) hidden() (list []string) {
	for _, value := range a.context {
		if len(value) >= shortestContext {
			list = append(list, value)
		}
	}
	return list
}

// attaches reports whether a controller has to attach the volume. Only a cluster has such controllers. In a cluster,
// the volumes of a driver without a CSIDriver object have to be attached as well (API: CSIDriverSpec.attachRequired).
func attaches(from object.View, d *storagev1.CSIDriver, s *source) bool {
	return !s.inline() && from.Admitted() && ptr.Deref(d.Spec.AttachRequired, true)
}

// Attaches implements volume.Attacher.
func (p Plugin) Attaches(ctx context.Context, from object.View, v volume.Spec) (bool, error) {
	if v.Persistent == nil || p.drivers.conf.NoController {
		return false, nil
	}
	s, err := persistent(v)
	if err != nil {
		return false, err
	}
	d, err := describedBy(ctx, from, &s)
	return err == nil && attaches(from, d, &s), err
}

// attaching is the state of a volume's attachment to this node.
type attaching struct {
	driver, node string
	// See Drivers.attached.
	reported, attached, detached bool
	// object is the VolumeAttachment, and err the error of reading it.
	object *storagev1.VolumeAttachment
	err    error
	// held says that the agent has used an attachment of the volume in this boot and has its publish_context.
	held bool
}

// use is how a volume can be used.
type use int

const (
	// wait: the volume can't be used yet.
	wait use = iota
	// goesOn: the volume can't be used yet, and all that it waits for is the usual course.
	goesOn
	// useObject: the volume is attached, as the VolumeAttachment describes.
	useObject
	// useHeld: the API server can't be reached, and the volume is still attached by the attachment that the agent has
	// used. As long as the node's object lists the volume as in use, no controller detaches it, except by force.
	useHeld
)

// next decides whether the volume can be used, or why it has to wait.
func (a attaching) next() (u use, cause string) {
	o := a.object
	switch {
	case a.held && object.IsAway(a.err) && !a.detached:
		return useHeld, ""
	case !a.reported:
		return goesOn, "the node's status in the API doesn't list the volume in volumesInUse yet"
	case a.err != nil && !apierrors.IsNotFound(a.err) && a.attached:
		return wait, a.err.Error()
	case o != nil && o.DeletionTimestamp != nil:
		return wait, "the VolumeAttachment is being deleted"
	case o != nil && o.Spec.Attacher != a.driver:
		return wait, fmt.Sprintf("the VolumeAttachment is for the attacher %q instead of %q", bounded(o.Spec.Attacher),
			a.driver)
	case o != nil && o.Spec.NodeName != a.node:
		return wait, "the VolumeAttachment is for another node"
	case o != nil && !o.Status.Attached && o.Status.AttachError != nil:
		return wait, "the controller can't attach it: " + bounded(o.Status.AttachError.Message)
	case !a.attached:
		return goesOn, "a controller has to attach it to this node " +
			"(volumesAttached of the node's status doesn't list it)"
	case o == nil:
		return wait, "the node's status lists it as attached, but it has no VolumeAttachment"
	case !o.Status.Attached:
		return wait, "the node's status lists it as attached, but its VolumeAttachment doesn't say so"
	default:
		return useObject, ""
	}
}

// user is a pod's use of a volume.
type user struct {
	// node is the name of the pod's node, and dir the device's directory.
	node, dir string
	// inUse says that containers of the pod use the volume.
	inUse bool
}

// attachment returns the attachment of a volume. The error is a *volume.AwaitsError while there is none: changes of the
// VolumeAttachment and of the node's lists wake the pods that wait.
//
// While the API server can't be reached, other pods can use a volume whose VolumeAttachment this agent has read before.
// After a restart of the agent, they can use only a staged volume whose record says that its publish_context is empty:
// the record doesn't contain a publish_context, which may be secret.
func (p Plugin) attachment(ctx context.Context, from object.View, d *storagev1.CSIDriver, s *source,
	by user) (attachment, error) {
	if !attaches(from, d, s) {
		return attachment{}, nil
	}
	o := pod.Object{Kind: string(object.VolumeAttachment), Name: object.AttachmentName(s.driver, s.handle, by.node)}
	failed := func(err error) *volume.AwaitsError {
		return &volume.AwaitsError{Object: o, Err: err, Step: "WaitForAttach"}
	}
	if p.drivers.conf.NoController {
		return attachment{}, failed(errors.New("it has to be attached to this node, which controllers may not do " +
			"(enableControllerAttachDetach is false): set it to true"))
	}
	was, held := p.held(s, by.dir)
	a := attaching{driver: s.driver, node: by.node, held: held}
	a.reported, a.attached, a.detached = p.drivers.attached(volume.UniqueName(p, s.key()))
	if by.inUse && held && a.attached {
		return was, nil
	}
	if a.reported || held {
		a.object, a.err = from.VolumeAttachment(ctx, o.Name)
		if a.err != nil {
			a.object = nil
		}
	}
	use, cause := a.next()
	switch {
	case use == useHeld:
		return was, nil
	case use == useObject:
		is := attachment{string(a.object.UID), a.object.Status.AttachmentMetadata}
		p.drivers.setAttachment(s.key(), is)
		return is, nil
	case a.attached && object.IsUnknown(a.err):
		return attachment{}, failed(fmt.Errorf("%s: %w", o, a.err)) // the error contains the time of the next try
	default:
		err := failed(fmt.Errorf("%s: %s", o, cause))
		err.Expected = use == goesOn
		return attachment{}, err
	}
}

// held returns the attachment that the agent has used for the volume in this boot.
func (p Plugin) held(s *source, dir string) (attachment, bool) {
	p.drivers.mu.Lock()
	at, ok := p.drivers.attachments[s.key()]
	p.drivers.mu.Unlock()
	if ok {
		return at, true
	}
	had, err := readRecord(dir)
	boot := p.drivers.conf.BootID
	ok = err == nil && had.certain() && had[keyHandle] == s.handle && boot != "" && had[keyBoot] == boot &&
		had[keyAttachment] != "" && had[keyContext] == ""
	return attachment{uid: had[keyAttachment]}, ok
}

// setAttachment stores the attachment of a volume by the volume's key, until forgetAttachment is called.
func (d *Drivers) setAttachment(key string, at attachment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attachments[key] = at
}

func (d *Drivers) forgetAttachment(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.attachments, key)
}

// attached returns three values. reported: the node's object lists the volume as in use; an entry of an earlier agent
// counts only if this agent also reports the volume as in use. attached: reported is true, and the object lists the
// volume as attached, too. detached: the object lists the volume as in use, but not as attached.
func (d *Drivers) attached(name v1.UniqueVolumeName) (reported, attached, detached bool) {
	if d.conf.Board == nil {
		return false, false, false
	}
	f := d.conf.Board.Now()
	listed := slices.Contains(f.ReportedInUse, name)
	reported = listed && slices.Contains(f.InUse, name)
	return reported, reported && f.Attached(name), f.Detached(name)
}
