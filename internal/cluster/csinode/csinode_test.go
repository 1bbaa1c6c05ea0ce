package csinode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/csinode/csinodetest"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

var (
	group = schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}
	kind  = schema.GroupKind{Group: "storage.k8s.io", Kind: "CSINode"}
)

// fakeCSINodes has one object as an API server has it: with versions, and entries that can't be changed.
type fakeCSINodes struct {
	mu      sync.Mutex
	object  *storage.CSINode
	version int
	calls   []string
	// fails returns the error of a call with this name; nil for none.
	fails func(call string, n *storage.CSINode) error
}

func (s *fakeCSINodes) call(name string, n *storage.CSINode, do func() error) (*storage.CSINode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
	if s.fails != nil {
		if err := s.fails(name, n); err != nil {
			return nil, err
		}
	}
	if err := do(); err != nil {
		return nil, err
	}
	return s.object.DeepCopy(), nil
}

func (s *fakeCSINodes) Get(_ context.Context, name string) (*storage.CSINode, error) {
	return s.call("get", nil, func() error {
		if s.object == nil {
			return errors.NewNotFound(group, name)
		}
		return nil
	})
}

func (s *fakeCSINodes) Create(_ context.Context, n *storage.CSINode) (*storage.CSINode, error) {
	return s.call("create", n, func() error {
		if s.object != nil {
			return errors.NewAlreadyExists(group, n.Name)
		}
		s.store(n)
		s.object.UID = types.UID(fmt.Sprint("made", s.version))
		return nil
	})
}

func (s *fakeCSINodes) Update(_ context.Context, n *storage.CSINode) (*storage.CSINode, error) {
	return s.call("update", n, func() error {
		switch {
		case s.object == nil:
			return errors.NewNotFound(group, n.Name)
		case s.object.ResourceVersion != n.ResourceVersion:
			return errors.NewConflict(group, n.Name, fmt.Errorf("it has changed"))
		}
		for _, now := range n.Spec.Drivers {
			for _, was := range s.object.Spec.Drivers {
				if was.Name == now.Name && (was.NodeID != now.NodeID || !slices.Equal(was.TopologyKeys, now.TopologyKeys)) {
					return errors.NewInvalid(kind, n.Name, nil)
				}
			}
			if now.NodeID == "" {
				return errors.NewInvalid(kind, n.Name, nil)
			}
		}
		s.store(n)
		return nil
	})
}

func (s *fakeCSINodes) Delete(_ context.Context, name string, uid types.UID) error {
	_, err := s.call("delete", nil, func() error {
		switch {
		case s.object == nil:
			return errors.NewNotFound(group, name)
		case s.object.UID != uid:
			return errors.NewConflict(group, name, fmt.Errorf("it is another object"))
		}
		s.object = nil
		return nil
	})
	return err
}

func (s *fakeCSINodes) store(n *storage.CSINode) {
	s.version++
	s.object = n.DeepCopy()
	s.object.ResourceVersion = strconv.Itoa(s.version)
}

// others changes the object as another client.
func (s *fakeCSINodes) others(change func(*storage.CSINode)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.object.DeepCopy()
	change(n)
	s.store(n)
}

// TestTheFake: what replaces the API server here behaves as that does. test/cluster runs the same with a real one.
func TestTheFake(t *testing.T) {
	csinodetest.Run(t, "node1", "u", &fakeCSINodes{})
}

// rig is an Object with its API server, in a bubble.
type rig struct {
	*testing.T
	*fakeCSINodes
	board   *nodefacts.Board
	facts   *nodefacts.Writer
	reached wake.Slot
	stop    func()
}

func start(t *testing.T, server *fakeCSINodes, first nodefacts.Facts) *rig {
	t.Helper()
	r := &rig{T: t, fakeCSINodes: server, board: nodefacts.NewBoard(first), reached: wake.NewSlot()}
	var err error
	if r.facts, err = r.board.Writer("a test", nodefacts.UID|nodefacts.CSIDrivers|nodefacts.CSILabels); err != nil {
		t.Fatal(err)
	}
	own, err := r.board.Writer("csinode", Fields)
	if err != nil {
		t.Fatal(err)
	}
	o := New(Config{Node: "node1", Board: r.board, Facts: own, API: server, Settled: time.Minute, Reached: r.reached,
		Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- o.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return r
}

// has sets the drivers, whose labels are on the node.
func (r *rig) has(drivers ...nodefacts.CSIDriver) {
	labels := map[string]nodefacts.CSIEntry{}
	for _, d := range drivers {
		labels[d.Name] = nodefacts.CSIEntry{Generation: d.Generation}
	}
	r.facts.Set(func(f *nodefacts.Facts) { f.CSIDrivers, f.CSILabels = drivers, labels })
}

// want checks the calls since the last time.
func (r *rig) want(when string, calls ...string) {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, calls) {
		r.Errorf("%s: the calls are %q, want %q", when, r.calls, calls)
	}
	r.calls = nil
}

// is checks the object's drivers, and whether they were published.
func (r *rig) is(when, want string) {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
	if r.object == nil {
		r.Errorf("%s: there is no object", when)
		return
	}
	var list []string
	for _, d := range r.object.Spec.Drivers {
		text := d.Name + "=" + d.NodeID + fmt.Sprint(d.TopologyKeys)
		if d.Allocatable != nil {
			text += fmt.Sprint(*d.Allocatable.Count)
		}
		list = append(list, text)
	}
	uid, owners := r.board.Now().UID, r.object.OwnerReferences
	if got := strings.Join(list, " "); got != want || len(owners) != 1 || owners[0].UID != uid ||
		owners[0].Kind != "Node" || owners[0].APIVersion != "v1" || owners[0].Controller != nil {
		r.Errorf("%s: it has %s, owners %+v; want %s", when, got, owners, want)
	}
	const migrated = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
		"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"
	if got := r.object.Annotations["storage.alpha.kubernetes.io/migrated-plugins"]; got != migrated {
		r.Errorf("%s: the migrated plugins are %s", when, got)
	}
	if why := r.board.Now().CSINodeMissing; why != "" {
		r.Errorf("%s: it is still missing: %s", when, why)
	}
}

// published checks the entries, as driver:generation, and ! for those that are refused.
func (r *rig) published(when string, want ...string) {
	r.Helper()
	synctest.Wait()
	entries := r.board.Now().CSINode
	var got []string
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := fmt.Sprintf("%s:%d", name, entries[name].Generation)
		if entries[name].Refused != "" {
			e += "!"
		}
		got = append(got, e)
	}
	if !slices.Equal(got, want) {
		r.Errorf("%s: published is %q, want %q", when, got, want)
	}
}

func driver(name, id string, generation uint64, topology ...string) nodefacts.CSIDriver {
	d := nodefacts.CSIDriver{Name: name, NodeID: id, Generation: generation, Topology: map[string]string{}}
	for _, key := range topology {
		d.Topology[key] = "x"
	}
	return d
}

func TestDriversComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fakeCSINodes{}, nodefacts.Facts{})
		defer r.stop()
		r.want("without a node's object")
		if f := r.board.Now(); f.CSINode != nil || f.CSINodeMissing != "CSINode is not yet initialized" {
			t.Errorf("before the first call: %+v, %q", f.CSINode, f.CSINodeMissing)
		}
		r.facts.Set(func(f *nodefacts.Facts) { f.UID = "u1" })
		r.want("registered", "get", "create")
		r.is("without drivers", "")
		if f := r.board.Now(); f.CSINode == nil {
			t.Error("it isn't published that the object is there")
		}
		a, b := driver("a", "1", 1, "zone", "rack"), driver("b", "1", 2)
		b.Limit = 39
		r.facts.Set(func(f *nodefacts.Facts) { f.CSIDrivers = []nodefacts.CSIDriver{a} })
		r.want("its labels aren't on the node yet")
		r.published("its labels aren't on the node yet")
		r.has(a)
		r.want("a driver", "get", "update")
		r.is("a driver", "a=1[rack zone]")
		r.published("a driver", "a:1")
		r.has(a, b)
		r.want("two drivers", "get", "update")
		r.is("two drivers", "a=1[rack zone] b=1[]39")
		b.Limit, b.Generation = 10, 3
		r.has(a, b)
		r.want("another limit", "get", "update")
		r.is("another limit", "a=1[rack zone] b=1[]10")
		b.NodeID, b.Generation = "2", 4
		r.has(a, b)
		r.want("another ID", "get", "update", "update")
		r.is("another ID", "a=1[rack zone] b=2[]10")
		r.published("another ID", "a:1", "b:4")
		r.has(b)
		r.want("gone in the first minute")
		r.published("gone in the first minute", "b:4")
		time.Sleep(61 * time.Second)
		r.want("gone for a minute", "update")
		r.is("gone for a minute", "b=2[]10")
		r.has(a, b)
		r.want("again", "get", "update")
		r.has(b)
		r.want("gone later", "update")
		time.Sleep(24 * time.Hour)
		r.want("at rest")
		r.facts.Set(func(f *nodefacts.Facts) { f.UID = "" })
		r.facts.Set(func(f *nodefacts.Facts) { f.UID = "u2" })
		r.want("another object of the node", "delete", "create", "update")
		r.is("another object of the node", "b=2[]10")
	})
}

// A driver whose labels the node's object refuses has no entry; one that it had stays.
func TestRefusedLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fakeCSINodes{}, nodefacts.Facts{UID: "u"})
		defer r.stop()
		a, b := driver("a", "1", 1), driver("b", "1", 2)
		r.has(a)
		synctest.Wait()
		a.Generation, a.NodeID = 3, "2"
		r.facts.Set(func(f *nodefacts.Facts) {
			f.CSIDrivers = []nodefacts.CSIDriver{a, b}
			f.CSILabels = map[string]nodefacts.CSIEntry{"a": {Generation: 3, Refused: "no"},
				"b": {Generation: 2, Refused: "never"}}
		})
		r.published("refused", "a:3!", "b:2!")
		if got := r.board.Now().CSINode["b"].Refused; got != "never" {
			t.Errorf("refused because of %q", got)
		}
		r.is("refused", "a=1[]")
	})
}

// What an earlier agent or another client left becomes what it has to be within a second.
func TestFound(t *testing.T) {
	owner := func(uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node1", UID: uid}}
	}
	full := initialized(nil, "node1", "u")
	full.UID = "old"
	known := driver("a", "1", 1, "zone")
	full, _ = with(full, &known)
	for name, c := range map[string]struct {
		found  func(*storage.CSINode)
		calls  []string
		isSame bool
	}{
		"the same": {func(*storage.CSINode) {}, []string{"get"}, true},
		"of another UID": {func(n *storage.CSINode) { n.OwnerReferences = owner("other") },
			[]string{"get", "delete", "create", "update"}, false},
		"without an owner":      {func(n *storage.CSINode) { n.OwnerReferences = nil }, []string{"get", "update"}, true},
		"without an annotation": {func(n *storage.CSINode) { n.Annotations = nil }, []string{"get", "update"}, true},
		"a foreign annotation":  {func(n *storage.CSINode) { n.Annotations["theirs"] = "x" }, []string{"get"}, true},
		"another node ID": {func(n *storage.CSINode) { n.Spec.Drivers[0].NodeID = "9" },
			[]string{"get", "update", "update"}, true},
		"no drivers": {func(n *storage.CSINode) { n.Spec.Drivers = nil }, []string{"get", "update"}, true},
		"other topology": {func(n *storage.CSINode) { n.Spec.Drivers[0].TopologyKeys = []string{"rack"} },
			[]string{"get", "update", "update"}, true},
		"another limit": {func(n *storage.CSINode) {
			n.Spec.Drivers[0].Allocatable = &storage.VolumeNodeResources{}
		}, []string{"get", "update"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &fakeCSINodes{}
				found := full.DeepCopy()
				c.found(found)
				server.store(found)
				r := start(t, server, nodefacts.Facts{UID: "u", CSIDrivers: []nodefacts.CSIDriver{known},
					CSILabels: map[string]nodefacts.CSIEntry{"a": {Generation: 1}}})
				defer r.stop()
				r.want("at the start", c.calls...)
				r.is("at the start", "a=1[zone]")
				r.published("at the start", "a:1")
				if (server.object.UID == "old") != c.isSame || server.object.Annotations["theirs"] != found.Annotations["theirs"] {
					t.Errorf("it is %+v", server.object)
				}
				time.Sleep(2 * time.Hour)
				r.want("at rest")
			})
		})
	}
}

// What others do to the object is undone when it is written next, when a driver registers, and when the API server has
// been away.
func TestChangedByHand(t *testing.T) {
	for name, change := range map[string]func(*fakeCSINodes){
		"deleted": func(s *fakeCSINodes) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.object = nil
		},
		"edited": func(s *fakeCSINodes) {
			s.others(func(n *storage.CSINode) { n.Spec.Drivers[0].NodeID, n.Annotations, n.OwnerReferences = "9", nil, nil })
		},
	} {
		for next, act := range map[string]func(*rig) (want string){
			"written": func(r *rig) string {
				time.Sleep(time.Hour)
				r.has(driver("a", "1", 1), driver("b", "1", 1))
				return "a=1[] b=1[]"
			},
			"a driver removed": func(r *rig) string { time.Sleep(time.Hour); r.has(); return "" },
			"registered again": func(r *rig) string { r.has(driver("a", "1", 2)); return "a=1[]" },
			"API server back":  func(r *rig) string { r.reached.Wake(); time.Sleep(time.Second); return "a=1[]" },
		} {
			t.Run(name+", "+next, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := start(t, &fakeCSINodes{}, nodefacts.Facts{UID: "u"})
					defer r.stop()
					r.has(driver("a", "1", 1))
					synctest.Wait()
					change(r.fakeCSINodes)
					r.is(next, act(r))
				})
			})
		}
	}
}

// Another client changes or deletes the object before each update, for a minute.
func TestConflicts(t *testing.T) {
	for name, err := range map[string]error{"changed": errors.NewConflict(group, "node1", fmt.Errorf("it has changed")),
		"deleted": errors.NewNotFound(group, "node1")} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { conflicts(t, err) }) })
	}
}

func conflicts(t *testing.T, err error) {
	server := &fakeCSINodes{}
	until := time.Now().Add(time.Minute)
	server.fails = func(call string, _ *storage.CSINode) error {
		if call == "update" && time.Now().Before(until) {
			return err
		}
		return nil
	}
	r := start(t, server, nodefacts.Facts{UID: "u"})
	defer r.stop()
	r.has(driver("a", "1", 1))
	synctest.Wait()
	r.published("another client changes it")
	time.Sleep(time.Minute)
	server.mu.Lock()
	if calls := len(server.calls); calls > 4*60*2*tries {
		t.Errorf("%d calls in a minute", calls)
	}
	server.mu.Unlock()
	time.Sleep(time.Second)
	r.is("a second after the last conflict", "a=1[]")
	r.published("a second after the last conflict", "a:1")
}

// The API server is away when the agent starts, and longer than a minute.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeCSINodes{}
		away := errors.NewServiceUnavailable("it is starting")
		server.fails = func(string, *storage.CSINode) error { return away }
		r := start(t, server, nodefacts.Facts{UID: "u"})
		defer r.stop()
		r.has(driver("a", "1", 1))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if f := r.board.Now(); f.CSINode != nil || f.CSINodeMissing != uninitialized {
			t.Errorf("while it is away: %+v, %q", f.CSINode, f.CSINodeMissing)
		}
		server.mu.Lock()
		if calls := len(server.calls); calls < 8 || calls > 30 {
			t.Errorf("%d calls in ten minutes", calls)
		}
		server.fails = nil
		server.mu.Unlock()
		r.reached.Wake()
		time.Sleep(time.Second)
		r.is("a second after it is back", "a=1[]")
		r.published("a second after it is back", "a:1")
		time.Sleep(24 * time.Hour)
		r.want("at rest")
	})
}

// The reason why an API server forbids the object is in the node's condition, and is the answer to drivers.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeCSINodes{}
		server.fails = func(call string, _ *storage.CSINode) error {
			if call == "get" {
				return nil
			}
			return errors.NewForbidden(group, "node1", fmt.Errorf("no rule allows it"))
		}
		r := start(t, server, nodefacts.Facts{UID: "u"})
		defer r.stop()
		for _, part := range []string{"CSINode is not yet initialized: create CSINode node1: ", "no rule allows it",
			"allow the node's user"} {
			if why := r.board.Now().CSINodeMissing; !strings.Contains(why, part) {
				t.Errorf("%q doesn't contain %q", why, part)
			}
		}
		r.has(driver("a", "1", 1))
		r.published("forbidden", "a:1!")
		server.mu.Lock()
		server.fails = nil
		server.mu.Unlock()
		time.Sleep(time.Minute)
		r.is("allowed", "a=1[]")
		r.published("allowed", "a:1")
		server.mu.Lock()
		server.fails = func(string, *storage.CSINode) error {
			return errors.NewForbidden(group, "node1", fmt.Errorf("no rule allows it"))
		}
		server.mu.Unlock()
		r.has(driver("a", "1", 1), driver("b", "1", 2))
		r.published("forbidden again", "a:1", "b:2!")
		r.is("forbidden again", "a=1[]")
	})
}

// The API server rejects a driver's entry: other drivers aren't affected.
func TestOneIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fakeCSINodes{}, nodefacts.Facts{UID: "u"})
		defer r.stop()
		r.has(driver("a", "1", 1), driver("b", "", 2), driver("c", "1", 3))
		r.published("one is rejected", "a:1", "b:2!", "c:3")
		r.is("one is rejected", "a=1[] c=1[]")
		time.Sleep(time.Hour)
		synctest.Wait()
		r.mu.Lock()
		if calls := len(r.calls); calls < 50 || calls > 150 { // once a minute, or twice
			t.Errorf("%d calls in an hour", calls)
		}
		r.mu.Unlock()
		r.has(driver("a", "1", 1), driver("b", "5", 4), driver("c", "1", 3))
		r.is("it has an ID", "a=1[] c=1[] b=5[]")
		r.published("it has an ID", "a:1", "b:4", "c:3")
	})
}
