package desired

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// merge builds a set from the reports of the sources. It is a pure function: which claim gets a contested name depends
// only on the claims, not on the order of the reports. Sources are ranked by their position in order. Unchanged parts
// keep their pointers from old, which may be nil.
func merge(order []pod.Source, reports map[pod.Source]Report, held holds, added additions, old *Set) *Set {
	if old == nil {
		old = &Set{}
	}
	claims, problems, synced, local, listed := gather(order, reports)
	defined, more := mergeObjects(order, reports)
	problems = append(problems, more...)
	set := &Set{
		Pods:       make([]*pod.Desired, 0, len(claims)),
		AllStopped: held.all,
		Problems:   problems,
		Objects:    object.NewSet(defined, local).WithRefused(refusals(order, reports)),
		Synced:     synced, LocalSynced: local, Listed: listed,
		byUID:    make(map[types.UID]*pod.Desired, len(claims)),
		admitted: map[*pod.Desired]admission{},
		extended: map[*pod.Desired]extended{},
	}
	for _, source := range order {
		set.Refused = append(set.Refused, reports[source].RefusedPods...)
	}
	if old.Objects != nil && old.Objects.Equal(set.Objects) {
		set.Objects = old.Objects
	}
	holders := make(map[string]Claim, len(claims))
	uids := make(map[types.UID]Claim, len(claims))
	for _, c := range claims {
		name, uid := pod.FullName(c.Desired.Pod), c.Desired.Pod.UID
		if holder, taken := holders[name]; taken {
			set.refuse(c, holder, "the name")
			continue
		}
		if holder, taken := uids[uid]; taken {
			set.refuse(c, holder, "metadata.uid "+string(uid))
			continue
		}
		holders[name], uids[uid] = c, c
		a := set.admit(c.Desired, old)
		if a.conflict != "" {
			set.Problems = append(set.Problems, conflicting(c, a.conflict))
		}
		if held.has(a.made) {
			set.Stopped = append(set.Stopped, set.extend(a.made, added, old)) // its added containers stop, too
			continue
		}
		d := set.extend(a.made, added, old)
		set.byUID[uid] = d
		set.Pods = append(set.Pods, d)
	}
	for _, list := range [][]*pod.Desired{set.Pods, set.Stopped} {
		slices.SortFunc(list, func(a, b *pod.Desired) int {
			return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
		})
	}
	sortProblems(set.Problems)
	return set
}

// refuse records the problem that the name or UID of claim c already belongs to the claim holder. The argument what is
// the word for the problem's text: name or UID.
func (s *Set) refuse(c, holder Claim, what string) {
	p := contested(c, holder, what)
	s.Problems = append(s.Problems, p)
	if d := c.Desired; !d.Source.Local() {
		s.Refused = append(s.Refused, pod.Refusal{UID: d.Pod.UID, Reason: pod.ReasonPodConflict, Message: p.Message})
	}
}

// gather returns all claims, in the order of precedence, and all problems. synced reports whether all sources have
// reported, local whether all local ones have: pods from manifests and their objects don't wait for an API server.
// listed reports whether all sources have reported or can't be reached.
func gather(order []pod.Source,
	reports map[pod.Source]Report) (claims []Claim, problems []pod.Problem, synced, local, listed bool) {
	synced, local, listed = true, true, true
	for _, source := range order {
		r, reported := reports[source]
		if !reported || r.Pending {
			synced, local, listed = false, local && !source.Local(), listed && r.Away
		}
		claims = append(claims, r.Claims...)
		problems = append(problems, r.Problems...)
	}
	sortClaims(claims, order, func(c *Claim) precedence {
		return precedence{c.Since, c.Desired.Source, c.Desired.Origin, c.Document}
	})
	return claims, problems, synced, local, listed
}

// precedence decides which of two claims gets a name or UID: first the local claim, because it is available without an
// API server; then the claim that isn't from a leftover file; then the earlier claim; then by the order of sources,
// origins and documents.
type precedence struct {
	since    time.Time
	source   pod.Source
	origin   string
	document int
}

// sortClaims sorts claims by precedence.
func sortClaims[C any](claims []C, order []pod.Source, of func(*C) precedence) {
	slices.SortFunc(claims, func(x, y C) int {
		a, b := of(&x), of(&y)
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			a.since.Compare(b.since),
			cmp.Compare(slices.Index(order, a.source), slices.Index(order, b.source)),
			cmp.Compare(a.origin, b.origin),
			cmp.Compare(a.document, b.document),
		)
	})
}

// leftover returns the origin's file name extension if editors, package managers or users mark old versions of files
// with it; empty for other extensions. Such a file is a manifest like any other, as for the kubelet, but if another
// file defines the same pod, that other file takes precedence.
func leftover(origin string) string {
	switch end := path.Ext(origin); end {
	case ".bak", ".backup", ".old", ".orig", ".rej", ".save", ".tmp", ".swo", ".swn",
		".dpkg-dist", ".dpkg-new", ".dpkg-old", ".dpkg-tmp", ".ucf-dist", ".ucf-new", ".ucf-old", ".rpmnew", ".rpmorig",
		".rpmsave":
		return end
	default:
		return ""
	}
}

// rank is 0 for local manifests, 1 for local leftovers and 2 for other sources.
func rank(p precedence) int {
	switch {
	case !p.source.Local():
		return 2
	case leftover(p.origin) != "":
		return 1
	}
	return 0
}

// choice is the advice for two definitions of the same pod or object; the definition at origin is ignored.
func choice(origin string) string {
	if end := leftover(origin); end != "" {
		return fmt.Sprintf("a file that ends in %s looks like a leftover of an editor or an upgrade: remove it, or "+
			"move it elsewhere", end)
	}
	return "rename or remove one of them"
}

// contested is the problem of a claim c with a name or UID that belongs to holder.
func contested(c, holder Claim, what string) pod.Problem {
	name := c.Desired.Pod.Namespace + "/" + c.Desired.Pod.Name
	return pod.Problem{
		Source: c.Desired.Source,
		Origin: c.Desired.Origin,
		Pod:    name,
		Message: fmt.Sprintf("pod %s isn't run: %s is already taken by pod %s/%s of %s, which stays; %s",
			name, what, holder.Desired.Pod.Namespace, holder.Desired.Pod.Name, holder.Desired.Origin,
			choice(c.Desired.Origin)),
		Since: latest(c.Since, holder.Since),
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sortProblems(problems []pod.Problem) {
	slices.SortStableFunc(problems, func(a, b pod.Problem) int {
		return cmp.Or(
			cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Origin, b.Origin),
			cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Message, b.Message),
		)
	})
}
