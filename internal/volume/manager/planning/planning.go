// Package planning finds out what each volume of a pod is made from, and by which plugin.
package planning

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pathelement"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/places"
	"github.com/deckhand-node/deckhand/internal/volume/manager/trouble"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumeset"
)

// Claims finds what claims are bound to, and binds those that aren't.
type Claims interface {
	// Bind returns the claim behind a volume of the pod and what it is bound to. The error is a
	// *volume.AwaitsError where it has to wait for either.
	Bind(ctx context.Context, p *v1.Pod, v *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error)
	// Forget says that the pod is gone: it uses no claim any more, and its ephemeral claims are gone with it.
	Forget(context.Context, types.UID) error
}

// Volumes returns those volumes of the pod that can be made, and what is wrong with the others. Nothing
// is bound for a pod with a volume that this node can't make (trouble.Problem.Permanent).
func Volumes(ctx context.Context, plugins []volume.Plugin, claims Claims, p *v1.Pod) (wants []*volumeset.Wanted, problems []trouble.Problem) {
	add := func(spec volume.Spec, groups []int64) {
		w, err := plan(plugins, p, spec)
		if err != nil {
			problems = append(problems, trouble.Problem{Volume: spec.Volume, Err: err})
			return
		}
		w.Groups = groups
		wants = append(wants, w)
	}
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; !isClaim(v) {
			add(volume.Spec{Volume: v}, nil)
		}
	}
	if slices.ContainsFunc(problems, trouble.Problem.Permanent) {
		return wants, problems
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if !isClaim(v) {
			continue
		}
		claim, pv, err := claims.Bind(ctx, p, v)
		var groups []int64
		if err == nil {
			groups, err = groupsOf(pv)
		}
		if err != nil {
			problems = append(problems, trouble.Problem{Volume: v, Err: err})
			continue
		}
		add(volume.Spec{Volume: v, Claim: claim, Persistent: pv}, groups)
	}
	for _, w := range wants {
		w.Writable = w.Spec.ReadOnly() && slices.ContainsFunc(wants, func(other *volumeset.Wanted) bool {
			// A hostPath of the pod's own that is called as the PersistentVolume has that place as well.
			return other.Place == w.Place && other.Spec.Persistent != nil && !other.Spec.ReadOnly()
		})
	}
	return wants, problems
}

// groupAnnotation is a PersistentVolume's, with the group that may use it
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-persistent-volume-storage/#access-control).
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// groupsOf is the group that a PersistentVolume is for, if any. One that is no group's number is told before the volume
// is mounted: what is mounted stays as it is, and an edit wouldn't help.
func groupsOf(pv *v1.PersistentVolume) ([]int64, error) {
	text, ok := pv.Annotations[groupAnnotation]
	if !ok {
		return nil, nil
	}
	gid, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		name := "PersistentVolume " + pv.Name
		return nil, volume.Awaits(name, "%s: annotation %s %q is no group's number: correct it, or leave it out", name, groupAnnotation, text)
	}
	return []int64{int64(gid)}, nil
}

func isClaim(v *v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// plan finds the volume's plugin and place. What it refuses is refused for good.
func plan(plugins []volume.Plugin, p *v1.Pod, spec volume.Spec) (*volumeset.Wanted, error) {
	if err := pathelement.Check("volume name", spec.Volume.Name); err != nil {
		return nil, forGood(err)
	}
	if spec.Block() {
		return nil, fmt.Errorf("PersistentVolume %s is a block device (volumeMode Block), which is %w: use one with volumeMode Filesystem", spec.Persistent.Name, volume.ErrUnsupported)
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
		place, err := places.Of(p.UID, plugin, spec)
		if err != nil {
			return nil, forGood(err)
		}
		return &volumeset.Wanted{Pod: p, Spec: spec, Plugin: plugin, Place: place}, nil
	}
	return nil, fmt.Errorf("volumes of this kind are %w", volume.ErrUnsupported)
}

func forGood(err error) error {
	return &pod.Failure{Reason: trouble.Reason, Message: err.Error(), Permanent: true}
}
