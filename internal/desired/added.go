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

// additions are the ephemeral containers that users added to pods, by pod UID. The map is never changed, only
// replaced as a whole. A pod's list only grows while the pod is in the set.
type additions map[types.UID]*addition

// addition holds the containers that users added to one pod.
type addition struct {
	to         incarnation
	containers []v1.EphemeralContainer
}

// incarnation distinguishes pods that have the same UID one after the other. A later incarnation was created from
// another text, or from the same text after its manifest was missing for a while. An edit in place keeps the
// incarnation.
type incarnation struct {
	Base string `json:"base"`
	// Seen is the pod's AnnotationConfigSeen: when its source first saw the pod.
	Seen string `json:"seen"`
}

func incarnationOf(d *pod.Desired) incarnation {
	return incarnation{d.Base, d.Pod.Annotations[pod.AnnotationConfigSeen]}
}

// to returns the addition to this pod; nil if there is none or d is nil.
func (a additions) to(d *pod.Desired) *addition {
	if d == nil {
		return nil
	}
	if list := a[d.Pod.UID]; list != nil && list.to == incarnationOf(d) {
		return list
	}
	return nil
}

// with returns a copy of the additions in which list is the addition to the pod with this UID.
func (a additions) with(uid types.UID, list *addition) additions {
	next := additions{uid: list}
	for other, l := range a {
		if other != uid {
			next[other] = l
		}
	}
	return next
}

// extended is the result of adding containers to a pod.
type extended struct {
	with *addition
	made *pod.Desired
}

// extend returns the pod with its added containers. It reuses the result in old for the same pod and containers.
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

// extend returns a pod with the containers. Each container counts as an edit (KEP-5067), even if the manifest meanwhile
// also defines a container of that name, so that no generation is used twice.
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

// wanted returns the additions to pods in the set. Additions to pods that a user has stopped stay until Forget, unless
// all pods are stopped. While some local source hasn't reported yet, wanted returns all additions.
func (a additions) wanted(s *Set) additions {
	gone := func(uid types.UID, list *addition) bool {
		stopped := slices.ContainsFunc(s.Stopped, func(d *pod.Desired) bool { return a.to(d) == list })
		return s.LocalSynced && a.to(s.Get(uid)) == nil && (!stopped || s.AllStopped)
	}
	left := maps.Clone(a)
	maps.DeleteFunc(left, gone)
	return left
}

// AdditionRules complete and validate a container that is added to a running pod. The functions get copies only.
type AdditionRules struct {
	// SetDefaults sets the defaults of a pod.
	SetDefaults func(*v1.Pod)
	// Validate returns all errors in a pod.
	Validate func(*v1.Pod) field.ErrorList
	// Refuses returns why the node doesn't admit a pod; nil if it does.
	Refuses func(*v1.Pod) *pod.Failure
	// Unsupported returns why the node can never start this container of the pod; nil if it may be able to.
	Unsupported func(*v1.Pod, *v1.Container) *pod.Failure
}

// added is the record of one added container in the file.
type added struct {
	UID types.UID `json:"uid"`
	incarnation
	Container v1.EphemeralContainer `json:"container"`
}

// addedVersion is the version of the file's format.
const addedVersion = 1

// Additions are the ephemeral containers that users have added to running pods (KEP-277). It is the only writer of
// the Merger's additions and of their file. A container stays as long as its pod: it can't be changed or removed, and
// the manifest doesn't contain it. It is safe for concurrent use.
type Additions struct {
	path   string
	merger *Merger
	rules  AdditionRules
	// mu is held while the file is written, so that writes are in order.
	mu sync.Mutex
	// stored are the additions in the file.
	stored additions
}

// NewAdditions returns Additions that adds containers to pods of the merger and stores them in the file path.
func NewAdditions(path string, m *Merger, rules AdditionRules) *Additions {
	return &Additions{path: path, merger: m, rules: rules}
}

// Restore loads the additions that an earlier agent saved. It has to be called before sources report. An unreadable
// file is renamed to end in ".corrupt", and the error describes the consequences.
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
	a.stored = all
	a.merger.add(func(additions) additions { return all })
	return nil
}

// ErrNotWanted says that no pod of that UID should run.
var ErrNotWanted = errors.New("the pod isn't wanted any more")

// InvalidError says that a container can't be added to a pod, with all its errors.
type InvalidError struct{ Errors field.ErrorList }

func (e *InvalidError) Error() string { return e.Errors.ToAggregate().Error() }

// Add adds a container to the pod with this UID. The error is an *InvalidError if an API server wouldn't accept the
// container, a *pod.Failure if the node doesn't admit or support it, and ErrNotWanted if there is no such pod.
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
		return nil // the client repeats its request, perhaps because it missed the response
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
		// While the file was written, pods may have been removed, including this one.
		d := a.merger.Current().Get(uid)
		if there = d != nil && incarnationOf(d) == list.to; there {
			return now.with(uid, list)
		}
		return now
	})
	if !there {
		return ErrNotWanted // Tidy removes the container from the file
	}
	return nil
}

// Forget drops the additions to pods of these names that a user has stopped. It is called before these pods run
// again, as other pods with the same UIDs.
func (a *Additions) Forget(names ...types.NamespacedName) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	left := maps.Clone(a.merger.additions())
	for _, d := range a.merger.Current().Stopped {
		if slices.Contains(names, types.NamespacedName{Namespace: d.Pod.Namespace, Name: d.Pod.Name}) {
			delete(left, d.Pod.UID)
		}
	}
	if maps.Equal(left, a.stored) {
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

// check validates an added container. before is the pod without the container; with is the pod that has it as its last
// ephemeral container, at the field path at. check also returns a failure if the node can't start the container, or if
// the node doesn't admit with but admits before.
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
	// A running pod stays admitted, even if the node has changed since.
	if f := a.rules.Refuses(with); f != nil && a.rules.Refuses(before) == nil {
		return f
	}
	last := &with.Spec.EphemeralContainers[len(with.Spec.EphemeralContainers)-1]
	if f := a.rules.Unsupported(with, (*v1.Container)(&last.EphemeralContainerCommon)); f != nil {
		return f
	}
	return nil
}

// Tidy removes from the file the additions to pods that are gone.
func (a *Additions) Tidy() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.tidy()
}

func (a *Additions) tidy() error {
	now := a.merger.additions()
	if maps.Equal(now, a.stored) {
		return nil
	}
	if err := a.write(now); err != nil {
		return fmt.Errorf("containers that were added to pods which are gone can't be removed from disk: %w", err)
	}
	return nil
}

// write replaces the content of the file with all additions. mu is held.
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
	a.stored = all
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
