package volumestate

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Claims finds the PersistentVolumes of pods' claims, and binds claims that aren't bound yet.
type Claims interface {
	// Bind returns the claim of a pod's volume and its PersistentVolume. The error is a *volume.AwaitsError if the
	// claim or the PersistentVolume doesn't exist or isn't usable yet.
	Bind(ctx context.Context, p *v1.Pod, objects object.View, v *v1.Volume) (*v1.PersistentVolumeClaim,
		*v1.PersistentVolume, error)
	// Forget releases the claims of a removed pod, and deletes its ephemeral claims.
	Forget(context.Context, types.UID) error
	// Pods lists the pods that use claims or own ephemeral claims, and for which Forget hasn't succeeded yet.
	Pods() []types.UID
}

// Plan considers the volumes of the pod that these containers use. It returns those that can be mounted, and the
// problems of the others. If a volume that isn't a claim has a permanent problem, no claim is bound.
func Plan(ctx context.Context, plugins []volume.Plugin, claims Claims, p *v1.Pod, containers []*v1.Container,
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
	var claimed []*v1.Volume
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case !slices.ContainsFunc(containers, func(c *v1.Container) bool { return Uses(p, c, v) }):
		case isClaim(v):
			claimed = append(claimed, v)
		default:
			add(volume.Spec{Volume: v}, nil)
		}
	}
	if slices.ContainsFunc(problems, Problem.Permanent) {
		return wants, problems
	}
	for _, v := range claimed {
		if ctx.Err() != nil {
			return wants, problems
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
		claim := w.Spec.Volume.PersistentVolumeClaim != nil
		w.Writable = claim && w.Spec.ReadOnly() && slices.ContainsFunc(wants, func(other *Wanted) bool {
			// A hostPath volume of the pod may have the same place as a PersistentVolume of the type hostPath, if it
			// has the same name.
			return other.Place == w.Place && other.Spec.Persistent != nil && !other.Spec.ReadOnly()
		})
	}
	return wants, problems
}

// Apart refuses volumes of wants that clash with another volume of wants or of earlier, the volumes that were planned
// before. Two volumes clash if they have the same place, and only one of them is a PersistentVolume: they have the same
// plugin, and the name of the pod's own volume is that of the PersistentVolume. Apart refuses them only if the plugin
// keeps notes about volumes at their places, because both would have the same note.
func Apart(wants, earlier []*Wanted) (apart []*Wanted, problems []Problem) {
	for _, w := range wants {
		clashes := func(other *Wanted) bool {
			return other.Place == w.Place && other.Name() != w.Name() &&
				(other.Spec.Claim == nil) != (w.Spec.Claim == nil)
		}
		_, notes := w.Plugin.(volume.Stager)
		if notes && (slices.ContainsFunc(apart, clashes) || slices.ContainsFunc(earlier, clashes)) {
			problems = append(problems, Problem{Spec: w.Spec, Err: fmt.Errorf("the pod has a volume of its own and a "+
				"PersistentVolume that are both called %q, and would be at one place: rename the volume in the pod's "+
				"spec", w.Place.Name)})
			continue
		}
		apart = append(apart, w)
	}
	return apart, problems
}

// Uses reports whether the container uses this volume of the pod, or another volume with the same claim. Volumes with
// the same claim have the same place, and how the place is mounted depends on all of them (Wanted.Writable).
func Uses(p *v1.Pod, c *v1.Container, v *v1.Volume) bool {
	if pod.UsesVolume(c, v.Name) {
		return true
	}
	claim := v.PersistentVolumeClaim
	return claim != nil && slices.ContainsFunc(p.Spec.Volumes, func(o v1.Volume) bool {
		return o.PersistentVolumeClaim != nil && o.PersistentVolumeClaim.ClaimName == claim.ClaimName &&
			pod.UsesVolume(c, o.Name)
	})
}

// UsedByAny reports whether a container of the pod uses this volume, see Uses.
func UsedByAny(p *v1.Pod, v *v1.Volume) bool {
	for name := range pod.ContainerNames(p) {
		if Uses(p, pod.ContainerNamed(p, name), v) {
			return true
		}
	}
	return false
}

// Unsupported returns the permanent problems of the pod's volumes that the container uses, except of claims: whether
// these are supported depends on their PersistentVolumes.
func Unsupported(plugins []volume.Plugin, p *v1.Pod, c *v1.Container) []Problem {
	var problems []Problem
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if isClaim(v) || !pod.UsesVolume(c, v.Name) {
			continue
		}
		spec := volume.Spec{Volume: v}
		if _, err := plan(plugins, p, spec); err != nil && (Problem{Spec: spec, Err: err}).Permanent() {
			problems = append(problems, Problem{Spec: spec, Err: err})
		}
	}
	return problems
}

// groupAnnotation is the annotation of a PersistentVolume that contains the ID of the group that may access the
// volume
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-persistent-volume-storage/#access-control).
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// groupsOf returns the group ID in the PersistentVolume's annotation, if any. An invalid annotation is an error
// before the volume is mounted, because a correction afterwards would have no effect on the mounted volume.
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

// plan returns the volume with its plugin and its place. A retry can't resolve its errors.
func plan(plugins []volume.Plugin, p *v1.Pod, spec volume.Spec) (*Wanted, error) {
	if err := safeopen.Check("volume name", spec.Volume.Name); err != nil {
		return nil, forGood(err)
	}
	spec, err := migrate(p, spec)
	if err != nil {
		return nil, err
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

// migrate returns the spec of the CSI volume that replaces the volume, if one does.
func migrate(p *v1.Pod, spec volume.Spec) (volume.Spec, error) {
	next, err := spec.Migrate(p.Namespace)
	switch {
	case err != nil && spec.Persistent != nil:
		return spec, volume.Awaits(pod.Object{Kind: "PersistentVolume", Name: spec.Persistent.Name}, "%w", err)
	case err != nil:
		return spec, forGood(err)
	case next.Claim != nil || !next.Migrated:
		return next, nil
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Name == spec.Volume.Name {
			break
		}
		other, err := volume.Spec{Volume: v}.Migrate(p.Namespace)
		if err == nil && other.Migrated && other.Name() == next.Name() &&
			!reflect.DeepEqual(other.Persistent, next.Persistent) {
			return spec, forGood(fmt.Errorf("volume %q of the pod is the same disk with other parameters, and a disk "+
				"is mounted once per pod: mount that volume instead", v.Name))
		}
	}
	return next, nil
}

func forGood(err error) error {
	return &pod.Failure{Reason: pod.ReasonFailedMount, Message: err.Error(), Permanent: true}
}
