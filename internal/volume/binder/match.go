package binder

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// maxMisfits is the maximum number of unsuitable volumes that a message names.
const maxMisfits = 3

// misfit is a volume that doesn't fit a claim, and the reason (why). The higher its rank, the closer it is to
// fitting: see unfit.
type misfit struct {
	volume string
	rank   int
	why    string
}

// pick returns the volume for a claim. In order of preference, it is: the volume that the claim names; a volume that
// is reserved for the claim; the volume that the claim was bound to before the volume was released; the smallest
// volume that fits and that no other claim was bound to; the smallest other volume that fits. If no volume fits, the
// error names those that are closest to fitting.
func (b *Binder) pick(ctx context.Context, r request, pvs []*v1.PersistentVolume) (*v1.PersistentVolume, error) {
	if len(pvs) == 0 {
		return nil, r.awaits("there is no PersistentVolume for it: no manifest defines any, and nothing here makes " +
			"them; add one")
	}
	list, err := candidates(r, pvs)
	if err != nil {
		return nil, err
	}
	var best *v1.PersistentVolume
	var misfits []misfit
	for _, pv := range list {
		if rank, why := b.unfit(ctx, r, pv); why != "" {
			misfits = append(misfits, misfit{pv.Name, rank, why})
		} else if best == nil || b.better(r, pv, best) {
			best = pv
		}
	}
	if best == nil {
		return nil, r.awaits("no PersistentVolume fits: %s", misfitText(misfits))
	}
	return best, nil
}

// candidates returns the volumes to choose from: the one that the claim names, else those that are reserved for the
// claim, else all.
func candidates(r request, pvs []*v1.PersistentVolume) ([]*v1.PersistentVolume, error) {
	var list []*v1.PersistentVolume
	if name := r.claim.Spec.VolumeName; name != "" {
		i := slices.IndexFunc(pvs, func(pv *v1.PersistentVolume) bool { return pv.Name == name })
		if i < 0 {
			return nil, r.awaits("it asks for PersistentVolume %s (spec.volumeName), which no manifest defines", name)
		}
		return pvs[i : i+1], nil
	}
	for _, pv := range pvs {
		if reserved(pv, r.claim) {
			list = append(list, pv)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	return pvs, nil
}

// better reports whether the claim should rather be bound to pv than to the other volume. Both fit.
func (b *Binder) better(r request, pv, other *v1.PersistentVolume) bool {
	return cmp.Or(cmp.Compare(b.strangeness(r, pv), b.strangeness(r, other)),
		pv.Spec.Capacity.Storage().Cmp(*other.Spec.Capacity.Storage()), cmp.Compare(pv.Name, other.Name)) < 0
}

// strangeness is 0 for a volume that this claim was bound to before, 2 for one that another claim was bound to
// before, and 1 for one that no claim was bound to.
func (b *Binder) strangeness(r request, pv *v1.PersistentVolume) int {
	switch had, known := b.bound[pv.Name]; {
	case !known:
		return 1
	case had.Claim == r.id:
		return 0
	}
	return 2
}

// misfitText lists, for a message, the misfits of the highest ranks with their reasons.
func misfitText(misfits []misfit) string {
	slices.SortFunc(misfits, func(a, b misfit) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.volume, b.volume))
	})
	var words []string
	for _, m := range misfits[:min(len(misfits), maxMisfits)] {
		words = append(words, m.volume+" "+m.why)
	}
	if more := len(misfits) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}

// unfit returns why a claim can't be bound to a volume; "" if it can. rank is the number of rules that the volume
// fulfils before the first rule that it violates.
func (b *Binder) unfit(ctx context.Context, r request, pv *v1.PersistentVolume) (rank int, why string) {
	for i, rule := range []func() string{
		func() string { return otherClass(r.claim, pv) },
		func() string { return otherMode(r.claim, pv) },
		func() string { return otherAccess(r.claim, pv) },
		func() string { return otherLabels(r.claim, pv) },
		func() string { return tooSmall(r.claim, pv) },
		func() string { return b.elsewhere(pv) },
		func() string { return b.taken(ctx, r, pv) },
	} {
		if why := rule(); why != "" {
			return i, why
		}
	}
	return 0, ""
}

// otherClass compares the names of the StorageClasses. The classes needn't exist. A claim without a class only fits
// volumes without a class. The names of the VolumeAttributesClasses have to be equal, too.
func otherClass(c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) string {
	want, is := ptr.Deref(c.Spec.StorageClassName, ""), pv.Spec.StorageClassName
	// API: the deprecated annotation overrides the field.
	if old, given := c.Annotations[v1.BetaStorageClassAnnotation]; given {
		want = old
	}
	if old, given := pv.Annotations[v1.BetaStorageClassAnnotation]; given {
		is = old
	}
	if want != is {
		return fmt.Sprintf("has %s, and the claim %s", orNone("storageClassName", is), orNone("storageClassName", want))
	}
	want, is = ptr.Deref(c.Spec.VolumeAttributesClassName, ""), ptr.Deref(pv.Spec.VolumeAttributesClassName, "")
	if want != is {
		return fmt.Sprintf("has %s, and the claim %s", orNone("volumeAttributesClassName", is),
			orNone("volumeAttributesClassName", want))
	}
	return ""
}

func orNone(field, name string) string {
	if name == "" {
		return "no " + field
	}
	return field + " " + name
}

// otherMode compares the volume modes.
func otherMode(c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) string {
	want := ptr.Deref(c.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
	if is := ptr.Deref(pv.Spec.VolumeMode, v1.PersistentVolumeFilesystem); want != is {
		return fmt.Sprintf("has volumeMode %s, and the claim %s", is, want)
	}
	return ""
}

func otherAccess(c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) string {
	for _, want := range c.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, want) {
			return fmt.Sprintf("has accessModes %v, without the claim's %s", pv.Spec.AccessModes, want)
		}
	}
	return ""
}

// otherLabels applies the claim's selector. The selector is ignored if the claim names the volume or the volume
// names the claim ("binding happens regardless of some volume matching criteria", Kubernetes' documentation of
// persistent volumes).
func otherLabels(c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) string {
	if c.Spec.Selector == nil || c.Spec.VolumeName != "" || reserved(pv, c) {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
	if err != nil { // can't happen: the claim was validated
		return fmt.Sprintf("can't be compared with the claim's selector: %v", err)
	}
	if !selector.Matches(labels.Set(pv.Labels)) {
		return "doesn't have the labels of the claim's selector (" + selector.String() + ")"
	}
	return ""
}

func tooSmall(c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) string {
	want, is := c.Spec.Resources.Requests.Storage(), pv.Spec.Capacity.Storage()
	if is.Cmp(*want) < 0 {
		return fmt.Sprintf("has %s, and the claim wants %s", is, want)
	}
	return ""
}

// elsewhere returns why a volume can't be used on this node; "" if it can.
func (b *Binder) elsewhere(pv *v1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	required := pv.Spec.NodeAffinity.Required
	here, err := nodeaffinity.NewLazyErrorNodeSelector(required).Match(
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: b.conf.NodeLabels()}})
	switch {
	case err != nil: // can't happen: the volume was validated
		return fmt.Sprintf("has a nodeAffinity that can't be understood: %v", err)
	case !here:
		return "can't be used on this node by its nodeAffinity (" + b.asked(required) + ")"
	}
	return ""
}

// asked lists, for a message, the node's values of the labels that a node selector refers to.
func (b *Binder) asked(s *v1.NodeSelector) string {
	has, labels := map[string]bool{}, b.conf.NodeLabels()
	for _, term := range s.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if value, there := labels[e.Key]; there {
				has[e.Key+"="+value] = true
			} else {
				has["no "+e.Key] = true
			}
		}
	}
	if len(has) == 0 {
		return "which asks for no label"
	}
	return "the node has " + strings.Join(slices.Sorted(maps.Keys(has)), ", ")
}

// taken describes the other claim that the volume is bound to or reserved for; "" if there is no such claim.
func (b *Binder) taken(ctx context.Context, r request, pv *v1.PersistentVolume) string {
	if had, bound := b.bound[pv.Name]; bound && !had.Former && (had.Claim != r.id || had.Released) {
		switch {
		case !b.released(ctx, had):
			return "is taken by " + had.Claim.String()
		case len(had.Users) > 0:
			return fmt.Sprintf("was released by %s, and pods that used that before use it still", had.Claim)
		}
		return fmt.Sprintf("was released by %s, and is kept with its data; to let others have it, remove its "+
			"manifest for a while", had.Claim)
	}
	if pv.Spec.ClaimRef != nil && !reserved(pv, r.claim) {
		return reservedFor(pv, r.claim)
	}
	return ""
}

// reserved reports whether the volume's claimRef refers to the claim.
func reserved(pv *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && (ref.UID == "" || ref.UID == c.UID)
}

// reservedFor describes the other claim that the volume's claimRef refers to.
func reservedFor(pv *v1.PersistentVolume, c *v1.PersistentVolumeClaim) string {
	ref := pv.Spec.ClaimRef
	if ref.Namespace == c.Namespace && ref.Name == c.Name {
		return "is for a claim of the same name with another UID (spec.claimRef.uid); leave the UID out to give it " +
			"to this one"
	}
	return fmt.Sprintf("is for PersistentVolumeClaim %s/%s (spec.claimRef)", ref.Namespace, ref.Name)
}
