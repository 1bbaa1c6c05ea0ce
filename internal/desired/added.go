package desired

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// additions are the containers that were added to each pod. It is replaced as a whole, never changed; each list only
// grows as long as the pod is wanted.
type additions map[types.UID]*addition

// addition is what was added to one pod.
type addition struct {
	to         incarnation
	containers []v1.EphemeralContainer
}

// incarnation distinguishes a pod from others that have its UID: what was made of another text, or of the same after it
// was away. An edit in place leaves both.
type incarnation struct {
	Base string `json:"base"`
	// Seen is when it was first seen.
	Seen string `json:"seen"`
}

func incarnationOf(d *pod.Desired) incarnation {
	return incarnation{d.Base, d.Pod.Annotations[pod.AnnotationConfigSeen]}
}

// to returns what was added to this pod; nil if nothing was, or there is none.
func (a additions) to(d *pod.Desired) *addition {
	if d == nil {
		return nil
	}
	if list := a[d.Pod.UID]; list != nil && list.to == incarnationOf(d) {
		return list
	}
	return nil
}

// with returns what was added beside this to the pod of a UID.
func (a additions) with(uid types.UID, list *addition) additions {
	next := additions{uid: list}
	for other, l := range a {
		if other != uid {
			next[other] = l
		}
	}
	return next
}

// extended is a pod with the containers that were added to it.
type extended struct {
	with *addition
	made *pod.Desired
}

// extend returns the pod with what was added to it. What old has for the very same pod and containers is taken from
// there.
func (s *Set) extend(d *pod.Desired, added additions, old *Set) *pod.Desired {
	with := added.to(d)
	if with == nil {
		return d
	}
	e, known := old.extended[d]
	if !known || e.with != with {
		e = extended{with, with.extend(d)}
	}
	s.extended[d] = e
	return e.made
}

// extend returns a pod with the containers. Each counts as an edit (KEP-5067), also one whose name the manifest has
// taken since: no generation comes twice.
func (a *addition) extend(d *pod.Desired) *pod.Desired {
	next, p := *d, *d.Pod
	p.Generation += int64(len(a.containers))
	p.Spec.EphemeralContainers = slices.Clip(p.Spec.EphemeralContainers)
	for i := range a.containers {
		if pod.ContainerNamed(d.Pod, a.containers[i].Name) == nil {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, a.containers[i])
		}
	}
	next.Pod = &p
	return &next
}

// wanted returns those additions whose pods the set has, also if a person has stopped them (see Forget); all of them
// while local sources may still come to want more.
func (a additions) wanted(s *Set) additions {
	gone := func(uid types.UID, list *addition) bool {
		stopped := slices.ContainsFunc(s.Stopped, func(d *pod.Desired) bool { return a.to(d) == list })
		return s.LocalSynced && a.to(s.Get(uid)) == nil && (!stopped || s.AllStopped)
	}
	left := maps.Clone(a)
	maps.DeleteFunc(left, gone)
	return left
}

// AdditionRules are what makes a container fit for a pod that runs. The functions are given copies only.
type AdditionRules struct {
	// SetDefaults fills in what is left out.
	SetDefaults func(*v1.Pod)
	// Validate returns everything that is wrong with a pod.
	Validate func(*v1.Pod) field.ErrorList
	// Refuses returns why the node doesn't admit a pod; nil if it does.
	Refuses func(*v1.Pod) *pod.Failure
}

// added is one container in the file.
type added struct {
	UID types.UID `json:"uid"`
	incarnation
	Container v1.EphemeralContainer `json:"container"`
}

// addedVersion is the format's version.
const addedVersion = 1

// Additions are the ephemeral containers that a person has added to pods that run (KEP-277): the one writer of what the
// Merger knows of them, and of the file that keeps it. They stay as long as their pods: nobody can change one, or take
// it away, and the manifest knows nothing of it. Safe for concurrent use.
type Additions struct {
	path   string
	merger *Merger
	rules  AdditionRules
	// mu is held while the file is written, so that writes are in order.
	mu sync.Mutex
	// kept is what the file has.
	kept additions
}

// NewAdditions returns what adds containers to pods of the merger, and keeps that in the file path.
func NewAdditions(path string, m *Merger, rules AdditionRules) *Additions {
	return &Additions{path: path, merger: m, rules: rules}
}

// Restore takes over what an earlier agent kept. It is to be called before sources report. A file that can't be
// understood is renamed to end in ".corrupt", and the error says what that means.
func (a *Additions) Restore() error {
	var list []added
	found, err := checkpoint.ReadFile(a.path, addedVersion, &list)
	if err != nil {
		return fmt.Errorf("which containers were added to pods can't be read from %s, so that those which run aren't "+
			"shown and end with their pods: %w", a.path, err)
	}
	if !found {
		return nil
	}
	all := additions{}
	for i := range list {
		if all[list[i].UID] == nil {
			all[list[i].UID] = &addition{to: list[i].incarnation}
		}
		all[list[i].UID].containers = append(all[list[i].UID].containers, list[i].Container)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = all
	a.merger.add(func(additions) additions { return all })
	return nil
}

// ErrNotWanted is that no pod of that UID should run.
var ErrNotWanted = errors.New("the pod isn't wanted any more")

// InvalidError is that a container can't be added to a pod: everything that is wrong with it.
type InvalidError struct{ Errors field.ErrorList }

func (e *InvalidError) Error() string { return e.Errors.ToAggregate().Error() }

// Add has a container run beside those of the pod with this UID. The error is an *InvalidError if it is none that an
// API server would add, a *pod.Failure if the node doesn't admit it, and ErrNotWanted if there is no such pod.
func (a *Additions) Add(uid types.UID, c v1.EphemeralContainer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.merger.Current().Get(uid)
	if d == nil {
		return ErrNotWanted
	}
	p := d.Pod.DeepCopy()
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, *c.DeepCopy())
	a.rules.SetDefaults(p)
	last := len(p.Spec.EphemeralContainers) - 1
	if before := a.merger.additions().to(d); before != nil &&
		slices.ContainsFunc(before.containers, func(b v1.EphemeralContainer) bool {
			return equality.Semantic.DeepEqual(b, p.Spec.EphemeralContainers[last])
		}) {
		return nil // who asks again may not have heard the answer
	}
	if err := a.check(d.Pod, p, field.NewPath("spec", "ephemeralContainers").Index(last)); err != nil {
		return err
	}
	now, list := a.merger.additions(), &addition{to: incarnationOf(d)}
	if before := now.to(d); before != nil {
		list.containers = slices.Clip(before.containers)
	}
	list.containers = append(list.containers, p.Spec.EphemeralContainers[last])
	if err := a.write(now.with(uid, list)); err != nil {
		return fmt.Errorf("the container can't be kept on disk, and wasn't added: %w", err)
	}
	there := false
	a.merger.add(func(now additions) additions {
		// Meanwhile others may have gone, and this one, too.
		d := a.merger.Current().Get(uid)
		if there = d != nil && incarnationOf(d) == list.to; there {
			return now.with(uid, list)
		}
		return now
	})
	if !there {
		return ErrNotWanted // and Tidy removes it
	}
	return nil
}

// Forget drops what was added to pods of these names that a person has stopped. It is called before they run again, as
// other pods of the same UIDs.
func (a *Additions) Forget(names ...types.NamespacedName) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := maps.Clone(a.merger.additions())
	for _, d := range a.merger.Current().Stopped {
		if slices.Contains(names, types.NamespacedName{Namespace: d.Pod.Namespace, Name: d.Pod.Name}) {
			delete(left, d.Pod.UID)
		}
	}
	if maps.Equal(left, a.kept) {
		return nil
	}
	if err := a.write(left); err != nil {
		return fmt.Errorf("containers that were added to a stopped pod can't be removed from disk, and it isn't "+
			"started: %w", err)
	}
	a.merger.add(func(now additions) additions {
		now = maps.Clone(now)
		maps.DeleteFunc(now, func(uid types.UID, _ *addition) bool { return left[uid] == nil })
		return now
	})
	return nil
}

// check returns what is wrong with the last ephemeral container of a pod, and not with the pod before.
func (a *Additions) check(before, with *v1.Pod, at *field.Path) error {
	var wrong field.ErrorList
	for _, e := range a.rules.Validate(with) {
		if e.Field == at.String() || strings.HasPrefix(e.Field, at.String()+".") {
			wrong = append(wrong, e)
		}
	}
	if len(wrong) > 0 {
		return &InvalidError{wrong}
	}
	// A pod that runs stays admitted, whatever the node is like by now.
	if f := a.rules.Refuses(with); f != nil && a.rules.Refuses(before) == nil {
		return f
	}
	return nil
}

// Tidy removes from the file what was added to pods that have gone since.
func (a *Additions) Tidy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tidy()
}

func (a *Additions) tidy() error {
	now := a.merger.additions()
	if maps.Equal(now, a.kept) {
		return nil
	}
	if err := a.write(now); err != nil {
		return fmt.Errorf("containers that were added to pods which are gone can't be removed from disk: %w", err)
	}
	return nil
}

// write replaces the file. mu is held.
func (a *Additions) write(all additions) error {
	list := []added{}
	for uid, to := range all {
		for i := range to.containers {
			list = append(list, added{uid, to.to, to.containers[i]})
		}
	}
	slices.SortStableFunc(list, func(x, y added) int { return cmp.Compare(x.UID, y.UID) })
	if err := checkpoint.WriteFile(a.path, addedVersion, list); err != nil {
		return err
	}
	a.kept = all
	return nil
}

func (m *Merger) add(change func(additions) additions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.added = change(m.added)
	m.publish()
}

func (m *Merger) additions() additions {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.added
}
