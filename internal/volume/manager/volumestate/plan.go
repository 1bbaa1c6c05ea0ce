package volumestate

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Claims finds what claims are bound to, and binds those that aren't.
type Claims interface {
	// Bind returns the claim behind a volume of the pod and what it is bound to. The error is a
	// *volume.AwaitsError where it has to wait for either.
	Bind(ctx context.Context, p *v1.Pod, objects object.View, v *v1.Volume) (*v1.PersistentVolumeClaim,
		*v1.PersistentVolume, error)
	// Forget says that the pod is gone: it uses no claim any more, and its ephemeral claims are gone with it.
	Forget(context.Context, types.UID) error
	// Pods lists the pods that use claims, or have claims of their own, and weren't forgotten.
	Pods() []types.UID
}

// Plan returns those volumes of the pod that can be made, and what is wrong with the others. Nothing
// is bound for a pod with a volume that this node can't make (Problem.Permanent).
func Plan(ctx context.Context, plugins []volume.Plugin, claims Claims, p *v1.Pod,
	objects object.View) (wants []*Wanted, problems []Problem) {
	add := func(spec volume.Spec, groups []int64) {
		w, err := plan(plugins, p, spec)
		if err != nil {
			problems = append(problems, Problem{Spec: spec, Err: err})
			return
		}
		w.Objects, w.Groups = objects, groups
		wants = append(wants, w)
	}
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; !isClaim(v) {
			add(volume.Spec{Volume: v}, nil)
		}
	}
	if slices.ContainsFunc(problems, Problem.Permanent) {
		return wants, problems
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if !isClaim(v) {
			continue
		}
		claim, pv, err := claims.Bind(ctx, p, objects, v)
		var groups []int64
		if err == nil {
			groups, err = groupsOf(pv)
		}
		if err != nil {
			problems = append(problems, Problem{Spec: volume.Spec{Volume: v, Claim: claim, Persistent: pv}, Err: err})
			continue
		}
		add(volume.Spec{Volume: v, Claim: claim, Persistent: pv}, groups)
	}
	for _, w := range wants {
		w.Writable = w.Spec.ReadOnly() && slices.ContainsFunc(wants, func(other *Wanted) bool {
			// A hostPath of the pod's own that is called as the PersistentVolume has that place as well.
			return other.Place == w.Place && other.Spec.Persistent != nil && !other.Spec.ReadOnly()
		})
	}
	return wants, problems
}

// groupAnnotation is a PersistentVolume's, with the group that may use it
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-persistent-volume-storage/#access-control).
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// groupsOf is the group that a PersistentVolume is for, if any. One that is no group's number is reported before the
// volume is mounted: what is mounted stays as it is, and an edit wouldn't help.
func groupsOf(pv *v1.PersistentVolume) ([]int64, error) {
	text, ok := pv.Annotations[groupAnnotation]
	if !ok {
		return nil, nil
	}
	gid, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		o := pod.Object{Kind: "PersistentVolume", Name: pv.Name}
		return nil, volume.Awaits(o, "%s: annotation %s %q is no group's number: correct it, or leave it out", o,
			groupAnnotation, text)
	}
	return []int64{int64(gid)}, nil
}

func isClaim(v *v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// plan finds the volume's plugin and place. What it refuses is refused permanently.
func plan(plugins []volume.Plugin, p *v1.Pod, spec volume.Spec) (*Wanted, error) {
	if err := safeopen.Check("volume name", spec.Volume.Name); err != nil {
		return nil, forGood(err)
	}
	if spec.Block() {
		return nil, fmt.Errorf("PersistentVolume %s is a block device (volumeMode Block), which is %w: use one with "+
			"volumeMode Filesystem", spec.Persistent.Name, volume.ErrUnsupported)
	}
	for _, plugin := range plugins {
		if !plugin.Supports(spec) {
			continue
		}
		if c, ok := plugin.(volume.Checker); ok {
			if err := c.Check(p, spec); err != nil {
				return nil, err
			}
		}
		place, err := PlaceOf(p.UID, plugin, spec)
		if err != nil {
			return nil, forGood(err)
		}
		return &Wanted{Pod: p, Spec: spec, Plugin: plugin, Place: place}, nil
	}
	return nil, fmt.Errorf("volumes of the kind %s are %w", spec.Kind(), volume.ErrUnsupported)
}

func forGood(err error) error {
	return &pod.Failure{Reason: pod.ReasonFailedMount, Message: err.Error(), Permanent: true}
}
