// Package apisource is the source of the pods that an API server has bound to this node.
package apisource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle/apistatus"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// Objects are the pods of the API server.
type Objects interface {
	// Pods returns the pods that should run, and whether the list is complete.
	Pods() ([]*v1.Pod, bool)
	Subscribe() (changed *wake.Keyed[types.UID], stop func())
}

// Config is the configuration of a Source.
type Config struct {
	Objects Objects
	Sink    desired.Sink
	// Known stores the pods for periods in which the API server is unreachable. The channel of Reach receives when such
	// a period begins or ends.
	Known *lastknown.Store
	Reach func() (changed <-chan struct{}, stop func())
	// NodeUID returns the UID of the node's object, "" if it isn't cached. Ask requests two things from the API server:
	// the UID of the node's object, "" if there is no object, and the UIDs of the pods that the server has at that
	// time.
	NodeUID func() types.UID
	Ask     func(context.Context) (node types.UID, pods []types.UID, err error)
	// Hold is how long pods continue to run after the API server seems to have lost all of them. Event records an event
	// of the node about that.
	Hold  time.Duration
	Event func(pod.Event)
	// Phase is the phase that this node has reported for a pod; empty if none. The same phase in the pod's object
	// isn't a change.
	Phase func(types.UID) v1.PodPhase
	Log   logr.Logger
}

// Source reports the pods that an API server has bound to this node.
type Source struct {
	conf Config
	// seen has the pod objects that update processed last, by UID. claims has the pods to run, bad the errors of pods
	// that can't be run.
	seen   map[types.UID]*v1.Pod
	claims map[types.UID]desired.Claim
	bad    map[types.UID]string
	// restored has an earlier agent's pods, and cluster is the UID of the node's object at the API server from which
	// they came.
	restored map[types.UID]desired.Claim
	cluster  types.UID
	// held are the UIDs of restored pods that were in a hold when the earlier agent ran: the API server already didn't
	// have them any more.
	held []types.UID
	// synced says that a complete list of pods was processed.
	synced bool
	// away says that an earlier agent's pods were reported because there are no newer ones.
	away bool
	// hold is set while pods continue to run although the API server doesn't have them any more. holdChanged says that
	// the beginning or end of a hold hasn't been reported yet.
	hold        *hold
	holdChanged bool
}

// New returns a source; Run starts it.
func New(c Config) *Source {
	return &Source{conf: c, claims: map[types.UID]desired.Claim{}, restored: map[types.UID]desired.Claim{},
		bad: map[types.UID]string{}}
}

// batch is the minimum time between reports: a burst of changes is reported once.
const batch = 20 * time.Millisecond

// Run reports pods until ctx is done. Its first report has no pods and is marked as Pending. While the API server is
// unreachable, the last pods that it had stay desired, even after a restart of the agent. The error is nil.
func (s *Source) Run(ctx context.Context) error {
	changed, stop := s.conf.Objects.Subscribe()
	defer stop()
	stored, stopStored := s.conf.Known.Subscribe()
	defer stopStored()
	s.report()
	s.restore()
	if s.unreachable(ctx, changed) {
		s.goOn()
	}
	again := time.NewTimer(0)
	defer again.Stop()
	for listed := true; ; {
		again.Stop()
		if pods, all := s.conf.Objects.Pods(); all {
			counts, next := s.judge(ctx, pods, listed)
			if !next.IsZero() {
				again.Reset(time.Until(next))
			}
			switch {
			case !counts:
				s.goOn()
			case s.update(pods), !s.synced, s.holdChanged:
				s.synced, s.holdChanged = true, false
				s.report()
			}
			listed = listed && !counts
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(batch):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed.Woken():
			listed = slices.Contains(changed.Drain(), "") || listed
		case <-again.C:
		case <-stored:
			s.report()
		}
	}
}

// unreachable waits until the complete list of pods is available or the API server is unreachable, and reports whether
// it is unreachable.
func (s *Source) unreachable(ctx context.Context, changed *wake.Keyed[types.UID]) bool {
	reach, stop := s.conf.Reach()
	defer stop()
	patience := time.NewTimer(s.conf.Known.Patience())
	defer patience.Stop()
	for {
		if _, all := s.conf.Objects.Pods(); all || s.conf.Known.Away() {
			return !all
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed.Woken():
			changed.Drain()
		case <-reach:
		case <-patience.C:
		}
	}
}

// restore loads the last pods of an earlier agent.
func (s *Source) restore() {
	now := time.Now()
	for _, p := range s.conf.Known.Pods() {
		if err := check(p, true); err != nil { // saved pods may have enum values that this agent doesn't support
			s.conf.Log.Error(err, "A pod that the API server had can't be run", "pod", klog.KObj(p), "podUID", p.UID)
			continue
		}
		s.restored[p.UID] = desired.Claim{Desired: desire(p, deletionOf(nil, p, now)), Since: p.CreationTimestamp.Time}
	}
	s.cluster, s.held = s.conf.Known.NodeUID(), s.conf.Known.Held()
}

// goOn reports an earlier agent's pods, unless newer ones are available.
func (s *Source) goOn() {
	if s.away || s.synced {
		return
	}
	s.away = true
	if len(s.restored) > 0 {
		s.conf.Log.Info("The API server is away; the pods that it had for this node last are run",
			"pods", len(s.restored))
		s.claims = s.restored
	}
	s.report()
}

// update processes the complete list of pods, and reports whether anything relevant has changed.
func (s *Source) update(pods []*v1.Pod) bool {
	now := time.Now()
	seen, claims, bad, changed := make(map[types.UID]*v1.Pod, len(pods)), make(map[types.UID]desired.Claim, len(pods)),
		map[types.UID]string{}, false
	for _, p := range pods {
		seen[p.UID] = p
		if claim, ok := s.claims[p.UID]; ok && s.seen[p.UID] == p { // usually only one of a thousand pods has changed
			claims[p.UID] = claim
			continue
		}
		_, taken := s.claims[p.UID]
		if err := check(p, taken || s.restored[p.UID].Desired != nil); err != nil {
			bad[p.UID] = fmt.Sprintf("%s can't be run by any node: %v", pod.FullName(p), err)
			if s.bad[p.UID] == "" {
				s.conf.Log.Error(err, "A pod of the API server can't be run", "pod", klog.KObj(p), "podUID", p.UID)
			}
			continue
		}
		old := s.claims[p.UID]
		next := old
		if d := normalise(old.Desired, p, s.conf.Phase, now); d != old.Desired {
			next = desired.Claim{Desired: d, Since: p.CreationTimestamp.Time}
			changed = true
		}
		claims[p.UID] = next
	}
	if s.hold != nil {
		names := make(map[string]bool, len(pods))
		for _, p := range pods {
			names[pod.FullName(p)] = true
		}
		for uid, c := range s.hold.claims {
			if !names[pod.FullName(c.Desired.Pod)] { // no current pod has the name of this one
				claims[uid] = c
			}
		}
	}
	changed = changed || len(claims) != len(s.claims) || !maps.Equal(bad, s.bad)
	s.seen, s.claims, s.bad = seen, claims, bad
	return changed
}

func (s *Source) report() {
	r := desired.Report{Source: pod.SourceAPI, Pending: !s.synced, Away: s.away && !s.synced,
		Claims: slices.Collect(maps.Values(s.claims)), Problems: s.conf.Known.Problems()}
	if s.hold != nil {
		r.Problems = append(r.Problems, s.hold.problem)
	}
	if s.synced { // before the report: then objects can be requested for these pods
		pods := make([]*v1.Pod, 0, len(r.Claims))
		for _, c := range r.Claims {
			pods = append(pods, c.Desired.Pod)
		}
		s.conf.Known.SetPods(pods)
		var held []types.UID
		if s.hold != nil {
			held = slices.Sorted(maps.Keys(s.hold.claims))
		}
		s.conf.Known.SetHeld(held)
	}
	for uid, why := range s.bad {
		r.RefusedPods = append(r.RefusedPods, pod.Refusal{UID: uid, Reason: pod.ReasonInvalidPod, Message: why})
	}
	slices.SortFunc(r.RefusedPods, func(a, b pod.Refusal) int { return cmp.Compare(a.UID, b.UID) })
	s.conf.Sink.Report(r)
}

// normalise converts an object of the API server to a desired pod. It returns old if nothing relevant to the node has
// changed; changes of the status that this node itself wrote don't count. It neither sets defaults nor validates: the
// API server, which may be newer, has already done both.
func normalise(old *pod.Desired, p *v1.Pod, phase func(types.UID) v1.PodPhase, now time.Time) *pod.Desired {
	deletion := deletionOf(old, p, now)
	if old != nil && deletion == old.Deletion && sameSpec(old.Pod, p) && sameStatus(old.Pod, p, phase) {
		return old
	}
	seen := now.Format(time.RFC3339Nano)
	if old != nil {
		seen = old.Pod.Annotations[pod.AnnotationConfigSeen]
	}
	c := *p
	c.Annotations = make(map[string]string, len(p.Annotations)+2)
	maps.Copy(c.Annotations, p.Annotations)
	c.Annotations[pod.AnnotationConfigSource], c.Annotations[pod.AnnotationConfigSeen] = string(pod.SourceAPI), seen
	return desire(&c, deletion)
}

func desire(p *v1.Pod, deletion *pod.Deletion) *pod.Desired {
	return &pod.Desired{Pod: p, Source: pod.SourceAPI, Origin: lastknown.Origin, Base: string(p.UID),
		RequiresTerminalPhase: true, UIDIsIdentity: true, Deletion: deletion}
}

// deletionOf returns the pod's deletion if it was requested. Its grace period begins when this agent sees it.
func deletionOf(old *pod.Desired, p *v1.Pod, now time.Time) *pod.Deletion {
	if p.DeletionTimestamp == nil {
		return nil
	}
	var grace time.Duration
	if s := p.DeletionGracePeriodSeconds; s != nil {
		grace = pod.Seconds(max(*s, 0))
	}
	if old != nil && old.Deletion != nil && old.Deletion.Grace == grace {
		return old.Deletion
	}
	return &pod.Deletion{At: now, Grace: grace}
}

func sameSpec(old, p *v1.Pod) bool {
	return old.Generation == p.Generation && maps.Equal(old.Labels, p.Labels) &&
		sameAnnotations(old.Annotations, p.Annotations) &&
		equality.Semantic.DeepEqual(&old.Spec, &p.Spec)
}

// sameAnnotations reports whether two sets of annotations are equal, apart from those that this source adds.
func sameAnnotations(ours, api map[string]string) bool {
	n := 0
	for key, value := range ours {
		if key == pod.AnnotationConfigSource || key == pod.AnnotationConfigSeen {
			continue
		}
		n++
		if other, ok := api[key]; !ok || other != value {
			return false
		}
	}
	for key := range api {
		if key == pod.AnnotationConfigSource || key == pod.AnnotationConfigSeen {
			n++
		}
	}
	return n == len(api)
}

// sameStatus reports whether two versions of a pod have the same status, apart from the parts that this node writes.
// It compares the conditions that the node doesn't own, and whether the phase is terminal; a terminal phase that this
// node has reported isn't a difference.
func sameStatus(old, p *v1.Pod, phase func(types.UID) v1.PodPhase) bool {
	if over := pod.Terminal(p.Status.Phase); over != pod.Terminal(old.Status.Phase) && over != phase(p.UID) {
		return false
	}
	return equality.Semantic.DeepEqual(others(&old.Status), others(&p.Status))
}

func others(s *v1.PodStatus) []v1.PodCondition {
	var list []v1.PodCondition
	for _, c := range s.Conditions {
		if !apistatus.Ours(c.Type) && c.Reason != v1.PodReasonTerminationByKubelet {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b v1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
	return list
}

// maxUID is the maximum length of a UID in bytes, the same as in manifests.
const maxUID = 128

// maxName is the API's maximum length of names: that of DNS subdomains.
const maxName = 253

// check refuses pods that would harm this node: names that become part of a path or a log line, containers that can't
// be distinguished, and field values that the node doesn't support and would treat as other values. The last check is
// skipped if taken is true, for pods that were accepted before: a pod that an earlier agent ran isn't ended because
// this agent supports fewer field values.
func check(p *v1.Pod, taken bool) error {
	for _, field := range [...][2]string{{"metadata.uid", string(p.UID)}, {
		"metadata.namespace", p.Namespace}, {"metadata.name", p.Name}} {
		if err := element(field[0], field[1]); err != nil {
			return err
		}
	}
	// UIDs from API servers have 36 characters. Longer ones don't fit in names that contain the UID: cgroups, logs.
	if len(p.UID) > maxUID {
		return fmt.Errorf("metadata.uid has %d characters, and may have %d at most", len(p.UID), maxUID)
	}
	if len(p.Spec.Containers) == 0 {
		return fmt.Errorf("spec.containers is empty")
	}
	names := map[string]bool{}
	for name := range pod.ContainerNames(p) {
		if err := element("container name", name); err != nil {
			return err
		}
		if names[name] {
			return fmt.Errorf("two containers have the name %q", name)
		}
		names[name] = true
	}
	volumes := map[string]bool{}
	for i := range p.Spec.Volumes {
		name := p.Spec.Volumes[i].Name
		if err := element("volume name", name); err != nil {
			return err
		}
		if volumes[name] {
			return fmt.Errorf("two volumes have the name %q", name)
		}
		volumes[name] = true
	}
	if taken {
		return nil
	}
	if wrong := spec.Refusal(spec.UnknownValues(p)); wrong != "" {
		return errors.New(wrong)
	}
	return nil
}

// element refuses a name that can't be one element of a path. It refuses "_" because log directories join names with
// it.
func element(what, name string) error {
	if err := safeopen.Check(what, name); err != nil {
		return err
	}
	if len(name) > maxName {
		return fmt.Errorf("%s %q... has %d characters, and may have %d at most", what, name[:60], len(name), maxName)
	}
	if strings.Contains(name, "_") || !terminal.Is(name) {
		return fmt.Errorf("%s %q has a character that no API server allows", what, name)
	}
	return nil
}
