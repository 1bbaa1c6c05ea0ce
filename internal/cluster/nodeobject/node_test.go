package nodeobject

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject/nodeobjecttest"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// fakeNodes has the object of one node. Of patches it knows as much as these tests need: conditions are merged by type.
type fakeNodes struct {
	mu   sync.Mutex
	node *v1.Node
	made int
	// version is the number of changes.
	version int
	calls   []string
	down    error
	tell    func(*v1.Node)
}

var nodeGroup = schema.GroupResource{Resource: "nodes"}

func (s *fakeNodes) call(name string, do func() error) (*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
	if s.down != nil {
		return nil, s.down
	}
	if err := do(); err != nil {
		return nil, err
	}
	return s.node.DeepCopy(), nil
}

func (s *fakeNodes) Get(_ context.Context, name string) (*v1.Node, error) {
	return s.call("get", func() error {
		if s.node == nil {
			return errors.NewNotFound(nodeGroup, name)
		}
		return nil
	})
}

func (s *fakeNodes) Create(_ context.Context, n *v1.Node) (*v1.Node, error) {
	return s.call("create", func() error {
		if s.node != nil {
			return errors.NewAlreadyExists(nodeGroup, n.Name)
		}
		s.made++
		s.node = n.DeepCopy()
		s.node.UID = types.UID(fmt.Sprint(s.made))
		s.told()
		return nil
	})
}

func (s *fakeNodes) Patch(_ context.Context, name string, body []byte) (*v1.Node, error) {
	return s.call("patch", func() error { return s.apply(name, body) })
}

func (s *fakeNodes) PatchStatus(_ context.Context, name string, body []byte) (*v1.Node, error) {
	return s.call("patch status", func() error { return s.apply(name, body) })
}

func (s *fakeNodes) apply(name string, body []byte) error {
	if s.node == nil {
		return errors.NewNotFound(nodeGroup, name)
	}
	var p v1.Node
	conditions := s.node.Status.Conditions
	if err := json.Unmarshal(body, &p); err != nil {
		return err
	}
	s.node.Status.Conditions = nil
	if err := json.Unmarshal(body, s.node); err != nil { // into what is there: a merge
		return err
	}
	var removed struct {
		Metadata struct{ Annotations map[string]*string }
	}
	if err := json.Unmarshal(body, &removed); err != nil {
		return err
	}
	for key, value := range removed.Metadata.Annotations {
		if value == nil {
			delete(s.node.Annotations, key)
		}
	}
	s.node.Status.Conditions = conditions
	for _, c := range p.Status.Conditions {
		if was := condition(&s.node.Status, c.Type); was != nil {
			*was = c
		} else {
			s.node.Status.Conditions = append(s.node.Status.Conditions, c)
		}
	}
	s.told()
	return nil
}

// told tells of a change.
func (s *fakeNodes) told() {
	s.version++
	if s.node != nil {
		s.node.ResourceVersion = fmt.Sprint(s.version)
	}
	if s.tell != nil {
		s.tell(s.node.DeepCopy())
	}
}

func (s *fakeNodes) Watch(ctx context.Context, _ string, tell func(*v1.Node)) {
	s.mu.Lock()
	s.tell = tell
	tell(s.node.DeepCopy())
	s.mu.Unlock()
	<-ctx.Done()
}

// others has somebody else change the object, nil for removed.
func (s *fakeNodes) others(change func(*v1.Node) *v1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = change(s.node)
	s.told()
}

func (s *fakeNodes) did() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *fakeNodes) ready() v1.ConditionStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return readiness(&s.node.Status)
}

// TestTheFakes: what stands in the API server's place here does as the server does. test/cluster holds that to the same.
func TestTheFakes(t *testing.T) {
	nodes := &fakeNodes{}
	nodeobjecttest.Run(t, "node1", nodes, &fakeLeases{}, func() { nodes.others(func(*v1.Node) *v1.Node { return nil }) })
}

func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := nodefacts.NewBoard(nodefacts.Facts{})
		facts, err := board.Writer("a test", Fields)
		if err != nil {
			t.Fatal(err)
		}
		server, changed := &fakeNodes{}, wake.NewSlot()
		var mu sync.Mutex
		status := v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}}
		becomes := func(change func(*v1.NodeStatus)) {
			mu.Lock()
			defer mu.Unlock()
			change(&status)
			changed.Wake()
		}
		n := New(Config{Identity: Identity{Name: "node1", Arch: "amd64"}, Register: true, API: server, Every: 5 * time.Minute, Facts: facts, Known: &known{}, Event: func(pod.Event) {}, Changed: changed, Log: logr.Discard(),
			Status: func() v1.NodeStatus {
				mu.Lock()
				defer mu.Unlock()
				return *status.DeepCopy()
			}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		server.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "old", Labels: map[string]string{"team": "a"}}, Spec: v1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}}}
		go func() { done <- n.Run(ctx) }()
		defer func() { cancel(); <-done }()
		want := func(when string, calls ...string) {
			t.Helper()
			synctest.Wait()
			if got := server.did(); !slices.Equal(got, calls) {
				t.Errorf("%s: the calls are %q, want %q", when, got, calls)
			}
		}
		synctest.Wait()
		if now := board.Now(); now.UID != "old" || now.Labels["team"] != "a" || now.Labels[v1.LabelArchStable] != "amd64" || len(now.PodCIDRs) != 1 || server.ready() != v1.ConditionFalse {
			t.Errorf("an existing object is taken over as %+v, ready %q", now, server.ready())
		}
		server.did() // whether the watch or a call is first isn't said
		becomes(func(s *v1.NodeStatus) { s.Conditions[0].Status = v1.ConditionTrue })
		want("ready", "patch status")
		becomes(func(s *v1.NodeStatus) { s.Capacity = amounts("cpu", "2") })
		becomes(func(s *v1.NodeStatus) { s.Capacity = amounts("cpu", "4") })
		want("capacity changes, at first")
		time.Sleep(2 * time.Second)
		want("capacity changes, then", "patch status")
		time.Sleep(4 * time.Minute)
		want("at rest")
		time.Sleep(4 * time.Minute)
		want("after the time of a report", "patch status")
		server.others(func(n *v1.Node) *v1.Node {
			condition(&n.Status, v1.NodeReady).Status = v1.ConditionUnknown
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "Theirs", Status: v1.ConditionTrue})
			return n
		})
		want("taken for lost", "patch status")
		if server.ready() != v1.ConditionTrue || condition(&server.node.Status, "Theirs") == nil {
			t.Errorf("after that the conditions are %+v", server.node.Status.Conditions)
		}
		server.others(func(*v1.Node) *v1.Node { return nil })
		want("removed", "create")
		if now := board.Now(); now.UID != "1" || server.ready() != v1.ConditionTrue {
			t.Errorf("made again, its UID is %s, ready %s", now.UID, server.ready())
		}
		server.mu.Lock()
		server.down = errors.NewTooManyRequests("slowly", 1)
		server.mu.Unlock()
		for i := range 100 {
			becomes(func(s *v1.NodeStatus) { s.Capacity = amounts("cpu", fmt.Sprint(i+10)) })
			time.Sleep(6 * time.Second)
		}
		synctest.Wait()
		if calls := len(server.did()); calls < 8 || calls > 30 { // waits from 0.5 s to 60 s, or half of that
			t.Errorf("%d calls in ten minutes to a server that refuses them", calls)
		}
		server.mu.Lock()
		server.down = errors.NewTooManyRequests("in two minutes", 120)
		server.mu.Unlock()
		time.Sleep(2 * time.Minute) // it is told so by the call that is due
		server.did()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if calls := len(server.did()); calls < 4 || calls > 5 {
			t.Errorf("%d calls in ten minutes to a server that asks for two minutes between them", calls)
		}
	})
}

// oddNodes don't do all that is asked of them.
type oddNodes struct {
	*fakeNodes
	// drops says that a field is unknown there, missing that statuses are.
	drops, missing bool
}

func (s *oddNodes) PatchStatus(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	if s.missing {
		return s.call("patch status", func() error { return errors.NewNotFound(nodeGroup, name) })
	}
	return s.call("patch status", func() error {
		err := s.apply(name, body)
		if s.drops && err == nil {
			s.node.Status.DeclaredFeatures = nil
			s.told()
		}
		return err
	})
}

// TestOddServer: a server that doesn't keep what is sent, or has no statuses, isn't asked again and again.
func TestOddServer(t *testing.T) {
	for name, server := range map[string]*oddNodes{"drops a field": {drops: true}, "no statuses": {missing: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server.fakeNodes = &fakeNodes{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "old"}}}
				facts, err := nodefacts.NewBoard(nodefacts.Facts{}).Writer("a test", Fields)
				if err != nil {
					t.Fatal(err)
				}
				n := New(Config{Identity: Identity{Name: "node1"}, Register: true, API: server, Every: 5 * time.Minute, Facts: facts, Known: &known{}, Event: func(pod.Event) {}, Log: logr.Discard(),
					Status: func() v1.NodeStatus {
						return v1.NodeStatus{DeclaredFeatures: []string{"A"}, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
					}})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := n.Run(ctx); err != nil {
					t.Error(err)
				}
				patches := 0
				for _, c := range server.did() {
					if c == "patch status" {
						patches++
					}
				}
				if patches < 2 || patches > 30 {
					t.Errorf("%d patches of the status in ten minutes", patches)
				}
			})
		})
	}
}

// TestASecondAgent: a node that is ready stays so while a new agent finds out how it is, for some seconds.
func TestASecondAgent(t *testing.T) {
	for name, up := range map[string]bool{"the runtime runs on": true, "the runtime is down": false, "the API server was away": true} {
		synctest.Test(t, func(t *testing.T) {
			board := nodefacts.NewBoard(nodefacts.Facts{})
			facts, err := board.Writer("a test", Fields)
			if err != nil {
				t.Fatal(err)
			}
			server, changed := &fakeNodes{}, wake.NewSlot()
			var ready atomic.Bool
			n := New(Config{Identity: Identity{Name: "node1", Arch: "amd64"}, Register: true, API: server, Every: 5 * time.Minute, Facts: facts, Known: &known{}, Event: func(pod.Event) {}, Changed: changed, Log: logr.Discard(),
				Status: func() v1.NodeStatus {
					s := v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionFalse}}}
					if ready.Load() {
						s.Conditions[0].Status = v1.ConditionTrue
					}
					return s
				}})
			server.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "old"}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			if name == "the API server was away" {
				later := server.node
				server.node, server.down = nil, errors.NewServiceUnavailable("down")
				time.AfterFunc(time.Minute, func() {
					server.mu.Lock()
					server.down = nil
					server.mu.Unlock()
					server.others(func(*v1.Node) *v1.Node { return later })
				})
			}
			go func() { done <- n.Run(ctx) }()
			defer func() { cancel(); <-done }()
			for board.Now().UID == "" {
				time.Sleep(time.Second)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if server.ready() != v1.ConditionTrue {
				t.Errorf("%s: 4s after it was found it is not ready", name)
			}
			ready.Store(up)
			changed.Wake()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if got := server.ready(); (got == v1.ConditionTrue) != up {
				t.Errorf("%s: after 7s it is %s", name, got)
			}
		})
	}
}

// known is what was known of the node's object before.
type known struct{ node *v1.Node }

func (k *known) Node() *v1.Node { return k.node }

func (k *known) SetNode(n *v1.Node) { k.node = n }

// TestRestore: before the API server is asked, the node has the labels, taints and addresses that it had last, and no object.
func TestRestore(t *testing.T) {
	board := nodefacts.NewBoard(nodefacts.Facts{HostIPs: []string{"10.0.0.1"}})
	facts, err := board.Writer("test", Fields|nodefacts.HostIPs)
	if err != nil {
		t.Fatal(err)
	}
	k := &known{}
	n := New(Config{Facts: facts, Known: k, Event: func(pod.Event) {}})
	n.Restore()
	if f := board.Now(); len(f.Labels) > 0 || f.HostIPs[0] != "10.0.0.1" {
		t.Errorf("of nothing: %+v", f)
	}
	object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "u", Labels: map[string]string{"team": "a"}}, Spec: v1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24"}, Taints: []v1.Taint{{Key: "k"}}},
		Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}}}}
	n.setObject(object)
	if k.node != object {
		t.Errorf("kept: %+v", k.node)
	}
	n.setObject(nil)
	if k.node != object {
		t.Error("an object that is gone is nothing to keep")
	}
	n.Restore()
	if f := board.Now(); f.Labels["team"] != "a" || f.Taints[0].Key != "k" || f.PodCIDRs[0] != "10.1.0.0/24" || f.HostIPs[0] != "10.0.0.2" || f.UID != "" {
		t.Errorf("%+v", f)
	}
}
