package nodeobject

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

type names = []v1.UniqueVolumeName

// volumeNodes are nodes whose calls take time and fail, and whose watch can be held up.
type volumeNodes struct {
	*fakeNodes

	mu sync.Mutex
	// drops says that lists aren't kept.
	drops bool
	// slow is how long a call for the rest of the status takes, answers how long the answer to a list does.
	slow, answers time.Duration
	// refuse is the error for a list that isn't set, lose that for one that may be.
	refuse, lose func(list names) error
	// lists are those of all calls, times when they were made.
	lists []names
	times []time.Time
	// tell passes the watch's states; held ones wait in states.
	tell   func(*v1.Node)
	held   bool
	states []*v1.Node
}

func (s *volumeNodes) PatchStatus(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	if !strings.Contains(string(body), `"volumesInUse"`) {
		s.mu.Lock()
		slow := s.slow
		s.mu.Unlock()
		time.Sleep(slow)
		return s.fakeNodes.PatchStatus(ctx, name, body)
	}
	var n v1.Node
	if err := json.Unmarshal(body, &n); err != nil {
		return nil, err
	}
	list := n.Status.VolumesInUse
	s.mu.Lock()
	s.lists, s.times = append(s.lists, list), append(s.times, time.Now())
	refuse, lose, answers := s.refuse, s.lose, s.answers
	s.mu.Unlock()
	if refuse != nil {
		if err := refuse(list); err != nil {
			return nil, err
		}
	}
	if s.drops {
		body = []byte("{}")
	}
	o, err := s.call("patch volumes", func() error { return s.apply(name, body) })
	time.Sleep(answers)
	if lose != nil {
		if err := lose(list); err != nil {
			return nil, err
		}
	}
	return o, err
}

func (s *volumeNodes) Watch(ctx context.Context, name string, tell func(*v1.Node)) {
	s.mu.Lock()
	s.tell = tell
	s.mu.Unlock()
	s.fakeNodes.Watch(ctx, name, func(o *v1.Node) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.states = append(s.states, o); !s.held {
			s.pass()
		}
	})
}

// pass passes all states that were held up. mu is held.
func (s *volumeNodes) pass() {
	for _, o := range s.states {
		s.tell(o)
	}
	s.states = nil
}

func (s *volumeNodes) set(change func(*volumeNodes)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *volumeNodes) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held = held; !held {
		s.pass()
	}
}

// volumesRig is a node with volumes.
type volumesRig struct {
	t       *testing.T
	server  *volumeNodes
	board   *nodefacts.Board
	facts   *nodefacts.Writer
	reached wake.Slot
	seen    int
}

func (r *volumesRig) uses(list ...v1.UniqueVolumeName) {
	r.facts.Set(func(f *nodefacts.Facts) { f.InUse = append(names{}, list...) })
}

// attach has the controller list these volumes.
func (r *volumesRig) attach(list ...v1.UniqueVolumeName) {
	r.server.others(func(n *v1.Node) *v1.Node {
		n.Status.VolumesAttached = nil
		for _, name := range list {
			n.Status.VolumesAttached = append(n.Status.VolumesAttached, v1.AttachedVolume{Name: name})
		}
		return n
	})
}

// after awaits that all is done within a time, and checks the lists that were sent since, and what is attached.
func (r *volumesRig) after(d time.Duration, when string, attached names, sent ...names) {
	r.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	facts := r.board.Now()
	var got names
	for _, name := range facts.InUse {
		if facts.Attached(name) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, attached) {
		r.t.Errorf("%s: attached are %q, want %q; reported %q", when, got, attached, facts.ReportedInUse)
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if calls := r.server.lists[r.seen:]; !slices.EqualFunc(calls, sent, func(a, b names) bool { return slices.Equal(a, b) }) {
		r.t.Errorf("%s: the lists sent are %q, want %q", when, calls, sent)
	}
	r.seen = len(r.server.lists)
}

// withVolumes runs a test of a node whose object has these volumes at first.
func withVolumes(t *testing.T, inUse, attached names, test func(r *volumesRig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &volumesRig{t: t, server: &volumeNodes{fakeNodes: &fakeNodes{version: 100}}, reached: wake.NewSlot(),
			board: nodefacts.NewBoard(nodefacts.Facts{})}
		facts, err := r.board.Writer("a test", Fields)
		if err != nil {
			t.Fatal(err)
		}
		if r.facts, err = r.board.Writer("volumes", nodefacts.InUse); err != nil {
			t.Fatal(err)
		}
		r.server.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "old", ResourceVersion: "100"},
			Status: v1.NodeStatus{VolumesInUse: inUse}}
		for _, name := range attached {
			r.server.node.Status.VolumesAttached = append(r.server.node.Status.VolumesAttached, v1.AttachedVolume{Name: name})
		}
		changed, stop := r.board.Watch(nodefacts.InUse)
		defer stop()
		n := New(Config{Identity: Identity{Name: "node1"}, Register: true, API: r.server, Every: 1000 * time.Hour,
			Facts: facts, Known: &known{}, Event: func(pod.Event) {}, Log: logr.Discard(),
			Volumes: Volumes{InUse: func() names { return r.board.Now().InUse }, Changed: changed, Reached: r.reached},
			Status: func() v1.NodeStatus {
				return v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		defer func() { cancel(); <-done }()
		r.after(10*time.Second, "at first", nil)
		test(r)
	})
}

// TestVolumesInUse: a change of the list is sent within 25 ms, and a new volume at once unless there was a call just
// before, whatever the interval of statuses. The volume counts as attached once the list was received
// (kubernetes/kubernetes#28141, #72181, #89313, #106853).
func TestVolumesInUse(t *testing.T) {
	a, ab, none := names{"a"}, names{"a", "b"}, names{}
	for title, c := range map[string]struct {
		inUse, attached names
		test            func(r *volumesRig)
	}{
		"reported before it counts as attached": {nil, a, func(r *volumesRig) {
			r.server.set(func(s *volumeNodes) { s.answers = 100 * time.Millisecond })
			r.server.hold(true)
			r.uses("a")
			r.after(25*time.Millisecond, "sent", nil, a)
			r.after(100*time.Millisecond, "answered", a)
			r.server.hold(false)
			r.after(0, "by the watch, too", a)
			r.uses("a", "b")
			r.after(time.Second, "another one", a, ab)
			r.attach("a", "b", "unknown")
			r.after(0, "attached", ab)
			r.attach("unknown")
			r.after(0, "detached", nil)
			r.after(1000*time.Hour, "at rest", nil)
		}},
		"found and kept": {ab, ab, func(r *volumesRig) {
			r.uses("a", "b")
			r.after(time.Second, "no call is needed", ab)
			r.uses()
			r.after(time.Second, "none", nil, none)
			r.uses("b")
			r.after(time.Second, "attached still", names{"b"}, names{"b"})
		}},
		"not determined yet": {names{"a", "b", "c"}, a, func(r *volumesRig) {
			r.attach("a", "b")
			r.after(time.Hour, "nil", nil)
			if got := r.board.Now(); len(got.ReportedInUse) != 3 || !got.Attached("b") || got.Attached("c") {
				r.t.Errorf("the lists found are %q and %v", got.ReportedInUse, got.VolumesAttached)
			}
			if got := r.server.node.Status.VolumesInUse; len(got) != 3 {
				r.t.Errorf("the object's list is %q", got)
			}
			r.uses("a")
			r.after(time.Second, "determined", a, a)
		}},
		"an older state": {a, a, func(r *volumesRig) {
			r.uses("a")
			r.server.hold(true)
			r.server.others(func(n *v1.Node) *v1.Node { return n }) // with both
			r.uses()
			r.after(time.Second, "given up", nil, none)
			r.attach()
			r.uses("a")
			r.after(500*time.Millisecond, "wanted again", nil, a)
			r.server.mu.Lock()
			r.server.tell(r.server.states[0])
			r.server.mu.Unlock()
			r.after(0, "the state with both", nil)
			r.server.hold(false)
			r.after(2*time.Second, "all states", nil)
			r.attach("a")
			r.after(0, "attached again", a)
		}},
		"a newer state before the answer": {nil, ab, func(r *volumesRig) {
			r.server.set(func(s *volumeNodes) { s.answers = 100 * time.Millisecond })
			r.uses("a", "b")
			r.after(30*time.Millisecond, "sent", ab, ab) // by the watch
			r.attach("b")
			r.after(time.Hour, "answered with an older state", names{"b"})
		}},
		"an answer that is lost": {ab, ab, func(r *volumesRig) {
			r.uses("a", "b")
			r.after(time.Second, "as found", ab)
			r.server.hold(true)
			r.server.set(func(s *volumeNodes) { s.lose = func(names) error { return errors.NewTimeoutError("lost", 0) } })
			r.uses("b")
			r.after(30*time.Millisecond, "b stays in any case", names{"b"}, names{"b"})
			r.uses("a", "b")
			r.after(30*time.Millisecond, "a may have been removed", names{"b"})
			r.server.hold(false)
			r.server.hold(true)
			r.after(30*time.Millisecond, "the watch has passed it", names{"b"})
			r.after(500*time.Millisecond, "this answer is lost, too", names{"b"}, ab)
			r.server.hold(false)
			r.server.set(func(s *volumeNodes) { s.lose = nil })
			r.after(2*time.Second, "answered", ab, ab)
		}},
		"calls without an answer": {ab, ab, func(r *volumesRig) {
			r.server.set(func(s *volumeNodes) { s.refuse = func(names) error { return errors.NewTimeoutError("no answer", 0) } })
			r.uses("b")
			r.after(30*time.Millisecond, "a may be removed", names{"b"}, names{"b"})
			r.uses("a", "b")
			r.after(500*time.Millisecond, "it may be so still", names{"b"}, ab)
			r.server.set(func(s *volumeNodes) { s.refuse = nil })
			r.after(2*time.Second, "answered", ab, ab)
		}},
		"removed before the answer": {nil, a, func(r *volumesRig) {
			r.server.set(func(s *volumeNodes) { s.answers = 100 * time.Millisecond })
			r.uses("a")
			r.after(30*time.Millisecond, "sent", a, a)
			r.server.hold(true)
			r.server.others(func(*v1.Node) *v1.Node { return nil })
			r.server.mu.Lock()
			r.server.tell(r.server.states[0])
			r.server.mu.Unlock()
			r.after(200*time.Millisecond, "answered for an object that is gone", nil)
			r.server.hold(false)
			r.after(time.Minute, "made again", nil)
		}},
		"refused": {nil, a, func(r *volumesRig) {
			failures := 3
			r.server.refuse = func(names) error {
				if failures--; failures >= 0 {
					return errors.NewConflict(nodeGroup, "node1", fmt.Errorf("changed"))
				}
				return nil
			}
			r.uses("a")
			r.after(25*time.Millisecond, "refused once", nil, a)
			r.after(8*time.Second, "then", a, a, a, a)
		}},
		"the node made again": {nil, a, func(r *volumesRig) {
			r.uses("a", "b")
			r.after(time.Minute, "attached", a, ab)
			r.server.did()
			r.server.others(func(*v1.Node) *v1.Node { return nil })
			r.after(0, "made again", nil)
			if got := r.server.did(); !slices.Equal(got, []string{"create"}) {
				r.t.Errorf("the calls are %q", got)
			}
			if s := r.server.node.Status; !slices.Equal(s.VolumesInUse, ab) || len(s.Conditions) != 1 {
				r.t.Errorf("the first status is %+v", s)
			}
			r.attach("b")
			r.after(0, "attached again", names{"b"})
		}},
		"emptied by hand": {nil, a, func(r *volumesRig) {
			r.uses("a")
			r.after(time.Minute, "attached", a, a)
			r.server.others(func(n *v1.Node) *v1.Node { n.Status = v1.NodeStatus{}; return n })
			r.after(0, "reported again", nil, a)
			r.attach("a")
			r.after(0, "attached again", a)
		}},
		"another client that insists": {nil, nil, func(r *volumesRig) {
			r.uses("a")
			r.after(time.Minute, "reported", nil, a)
			for range 100 {
				r.server.others(func(n *v1.Node) *v1.Node { n.Status.VolumesInUse = nil; return n })
				time.Sleep(100 * time.Millisecond)
			}
			synctest.Wait()
			if n := len(r.server.lists) - r.seen; n < 9 || n > 11 {
				r.t.Errorf("%d calls in 10s", n)
			}
		}},
		"many changes": {nil, nil, func(r *volumesRig) {
			var list names
			began := time.Now()
			for n := range 50 {
				list = append(list, v1.UniqueVolumeName(fmt.Sprintf("v%02d", n)))
				r.uses(list...)
				time.Sleep(300 * time.Microsecond)
				synctest.Wait()
			}
			r.after(time.Second, "the first one, and all others by one call", nil, names{"v00"}, list)
			r.uses()
			r.after(19*time.Millisecond, "a removal waits", nil)
			r.after(time.Second, "for others", nil, none)
			if first, last := r.server.times[0].Sub(began), r.server.times[1].Sub(began); first > 0 ||
				last > 25*time.Millisecond {
				r.t.Errorf("sent after %v and %v", first, last)
			}
		}},
		"a slow status": {nil, a, func(r *volumesRig) {
			r.server.set(func(s *volumeNodes) { s.slow = 5 * time.Second })
			r.server.others(func(n *v1.Node) *v1.Node { n.Status.Conditions = nil; return n })
			r.after(100*time.Millisecond, "a call for it has begun", nil)
			r.uses("a")
			r.after(25*time.Millisecond, "sent meanwhile", a, a)
		}},
		"a slow list": {nil, nil, func(r *volumesRig) {
			r.server.set(func(s *volumeNodes) { s.answers = 5 * time.Second })
			r.uses("a")
			r.after(100*time.Millisecond, "sent", nil, a)
			r.server.others(func(n *v1.Node) *v1.Node { n.Status.Conditions = nil; return n })
			r.after(time.Second, "the status doesn't wait", nil)
			if r.server.ready() != v1.ConditionTrue {
				r.t.Error("the status isn't sent")
			}
		}},
		"restored from a backup": {nil, nil, func(r *volumesRig) {
			r.uses("a")
			r.after(time.Minute, "reported", nil, a)
			r.server.set(func(s *volumeNodes) { s.answers = 100 * time.Millisecond })
			r.server.fakeNodes.mu.Lock()
			r.server.version = 10
			r.server.fakeNodes.mu.Unlock()
			r.attach("a")
			r.after(50*time.Millisecond, "asked", nil, a)
			r.attach("a", "b")
			r.after(100*time.Millisecond, "versions count from the answer", a)
			if n := len(r.board.Now().VolumesAttached); n != 2 {
				r.t.Errorf("the state during the call isn't seen: %d", n)
			}
			r.attach()
			r.after(0, "detached", nil)
			r.server.others(func(*v1.Node) *v1.Node { return nil })
			r.after(time.Minute, "made again", nil)
			r.server.fakeNodes.mu.Lock()
			r.server.version = 1
			r.server.fakeNodes.mu.Unlock()
			r.server.others(func(*v1.Node) *v1.Node { return nil })
			r.after(time.Minute, "made again after it was restored", nil, a)
			r.attach("a")
			r.after(time.Minute, "attached again", a)
		}},
		"a server that doesn't answer": {nil, a, func(r *volumesRig) {
			r.server.set(func(s *volumeNodes) { s.refuse = func(names) error { return errors.NewServiceUnavailable("down") } })
			r.uses("a")
			time.Sleep(time.Hour)
			synctest.Wait()
			if n := len(r.server.lists); n < 50 || n > 140 {
				r.t.Errorf("%d calls in an hour", n)
			}
			r.seen = len(r.server.lists)
			r.server.set(func(s *volumeNodes) { s.refuse = nil })
			r.reached.Wake()
			r.after(500*time.Millisecond, "recovered", a, a)
		}},
	} {
		t.Run(title, func(t *testing.T) { withVolumes(t, c.inUse, c.attached, c.test) })
	}
}

// TestDroppedVolumes: a server that doesn't keep the list isn't sent it again and again, and nothing counts as attached.
func TestDroppedVolumes(t *testing.T) {
	withVolumes(t, nil, names{"a"}, func(r *volumesRig) {
		r.server.drops = true
		r.uses("a")
		r.after(1000*time.Hour, "sent", nil, names{"a"})
	})
}

// TestCostOfVolumes: a status of a node with 1,000 volumes costs no more than 50 ms of CPU time.
func TestCostOfVolumes(t *testing.T) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	for i := range 1000 {
		name := v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/csi/example.com^%036d", i))
		n.Status.VolumesInUse = append(n.Status.VolumesInUse, name)
		n.Status.VolumesAttached = append(n.Status.VolumesAttached, v1.AttachedVolume{Name: name, DevicePath: "csi-" + string(name)})
	}
	status := v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
	began := cpu(t)
	const times = 20
	for range times {
		heartbeat(&status, time.Now())
		if changed(&n.Status, &status) {
			if body, err := patch(n, withStatus(n, &status, false)); err != nil || len(body) > 1000 {
				t.Fatalf("%d bytes, %v", len(body), err)
			}
		}
	}
	info, _ := debug.ReadBuildInfo()
	slow := slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	if took := (cpu(t) - began) / times; took > 50*time.Millisecond && !slow {
		t.Errorf("it costs %v", took)
	} else {
		t.Logf("it costs %v", took)
	}
}

// cpu is the CPU time that this process has used.
func cpu(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A list that is outdated before it is sent isn't sent: a pod may rely on a name that only the next one has.
func TestOutdatedList(t *testing.T) {
	b := nodefacts.NewBoard(nodefacts.Facts{})
	facts, err := b.Writer("a test", Fields)
	if err != nil {
		t.Fatal(err)
	}
	server := &volumeNodes{fakeNodes: &fakeNodes{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", ResourceVersion: "1"}}}}
	lists := []names{{"a"}, {"a", "b"}} // then the last one
	v := &volumesInUse{woken: wake.NewSlot(), conf: Config{Identity: Identity{Name: "node1"}, API: server, Facts: facts, Log: logr.Discard(),
		Volumes: Volumes{InUse: func() names {
			list := lists[0]
			lists = lists[min(1, len(lists)-1):]
			return list
		}}}}
	v.observe(&v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, Status: v1.NodeStatus{VolumesInUse: names{"a", "b", "c"}}})
	v.report(t.Context())
	if due, needed := v.due(names{"a", "b"}); len(server.lists) > 0 || !needed || time.Now().Before(due) {
		t.Errorf("sent %q, the next one is needed: %v, due %v", server.lists, needed, due) // Volumes.Changed receives
	}
	if got := b.Now().ReportedInUse; !slices.Equal(got, names{"a"}) {
		t.Errorf("reported are %q", got) // those of the list that might have been sent
	}
	if due := v.report(t.Context()); !due.IsZero() || len(server.lists) != 1 || !slices.Equal(server.lists[0], names{"a", "b"}) {
		t.Errorf("sent %q, due %v", server.lists, due)
	}
}
