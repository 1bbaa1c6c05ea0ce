package sourcetest

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Source is the source under test.
type Source interface {
	Run(ctx context.Context) error
}

// Fixture is a source with the location that it reads from.
type Fixture struct {
	Kind pod.Source
	// New returns a source that reads from the location; later sources see the state that earlier ones stored.
	New func(sink desired.Sink) Source
	// Put sets the text at the location; Remove makes the location define no pods.
	Put    func(text string)
	Remove func()
	// Lasting says that the source accepts a bad text, so that the last good pods become stale, and that a new source
	// gets the state that an earlier source stored. If Lasting is false, Put refuses a bad text and changes nothing.
	Lasting bool
}

// Run runs the tests that every source has to pass. fixture is called for each test; everything that it starts must
// end with the test.
func Run(t *testing.T, fixture func(t *testing.T) Fixture) {
	run(t, fixture, map[string]func(*testing.T, Fixture){
		"an empty place is reported":        testEmpty,
		"pods have a static pod's identity": testIdentity,
		"a change makes another pod":        testChange,
		"removal":                           testRemoval,
		"bad text loses nothing":            testBadText,
		"run again":                         testRunAgain,
		"run twice at once":                 testRunTwice,
		"objects have an identity":          testObjects,
		"bad text loses no object":          testBadObject,
		"volumes and their claims":          testVolumes,
	})
}

// RunLasting runs the tests of Run, and those for sources with a Lasting Fixture.
func RunLasting(t *testing.T, fixture func(t *testing.T) Fixture) {
	Run(t, fixture)
	run(t, fixture, map[string]func(*testing.T, Fixture){
		"the same text is the same pod":      testSameText,
		"an edit in place is the same pod":   testInPlace,
		"an edit in place while not looked":  testInPlaceMeanwhile,
		"bad text from the start":            testBadFromStart,
		"a new source knows what was good":   testNewSource,
		"the place empties while not looked": testRemovedMeanwhile,
		"objects without a pod":              testObjectsAlone,
		"an edited object is the same":       testEditedObject,
		"an immutable object":                testImmutable,
		"a new source knows the objects":     testNewSourceObjects,
		"edited volumes are the same":        testEditedVolumes,
	})
}

func run(t *testing.T, fixture func(t *testing.T) Fixture, tests map[string]func(*testing.T, Fixture)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := fixture(t)
			// The fixture's goroutines don't count as leaks.
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
			test(t, f)
		})
	}
}

// start runs a source until the test ends or stop is called.
func start(t *testing.T, s Source) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v after its context had ended, want nil", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func testEmpty(t *testing.T, f Fixture) {
	f.Remove()
	sink := NewRecorder()
	start(t, f.New(sink))
	r := sink.Wait(t, "a report without pods", Has())
	if r.Source != f.Kind || r.Pending {
		t.Errorf("source %q, pending %v; want %q and not pending", r.Source, r.Pending, f.Kind)
	}
}

func testIdentity(t *testing.T, f Fixture) {
	sink := NewRecorder()
	s := f.New(sink)
	start(t, s)
	f.Put(Manifest("web", "app:1") + "---\n" + Manifest("db", "app:2"))
	r := sink.Wait(t, "two pods", Has("web-node1=app:1", "db-node1=app:2"))
	for _, c := range r.Claims {
		p := c.Desired.Pod
		if c.Desired.Source != f.Kind || c.Desired.Origin == "" || c.Since.IsZero() {
			t.Errorf("claim to %s isn't complete: %+v", p.Name, c)
		}
		if p.UID == "" || string(p.UID) != p.Annotations[pod.AnnotationConfigHash] || string(p.UID) != c.Desired.Base ||
			p.Generation != 1 ||
			p.Annotations[pod.AnnotationConfigSource] != string(f.Kind) ||
			p.Annotations[pod.AnnotationConfigSeen] == "" {
			t.Errorf("pod %s: UID %q, base %q, generation %d and annotations %v aren't a static pod's", p.Name, p.UID,
				c.Desired.Base, p.Generation, p.Annotations)
		}
		if p.Spec.NodeName != Node || p.Spec.RestartPolicy == "" {
			t.Errorf("pod %s isn't complete: node %q, restart policy %q", p.Name, p.Spec.NodeName, p.Spec.RestartPolicy)
		}
	}
}

func testChange(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(Manifest("web", "app:1"))
	first := sink.Wait(t, "the pod", Has("web-node1=app:1"))
	f.Put(Otherwise(Manifest("web", "app:2")))
	second := sink.Wait(t, "the changed pod", Has("web-node1=app:2"))
	a, b := first.Claims[0].Desired, second.Claims[0].Desired
	if a.Pod.UID == b.Pod.UID || a.Base == b.Base {
		t.Error("the UID or the base is the same after a change that can't be applied in place")
	}
	if b.Pod.Generation != 1 {
		t.Errorf("the new pod has generation %d, want 1", b.Pod.Generation)
	}
}

// edited checks that b equals a after one edit in place.
func edited(t *testing.T, a, b desired.Claim) {
	t.Helper()
	x, y := a.Desired.Pod, b.Desired.Pod
	if x.UID != y.UID || a.Desired.Base != b.Desired.Base || !a.Since.Equal(b.Since) ||
		x.Annotations[pod.AnnotationConfigSeen] != y.Annotations[pod.AnnotationConfigSeen] {
		t.Error("it has another UID, base, seen or since after an edit that is applied in place")
	}
	if y.Generation != x.Generation+1 {
		t.Errorf("generation %d came after %d", y.Generation, x.Generation)
	}
	if x.Annotations[pod.AnnotationConfigHash] == y.Annotations[pod.AnnotationConfigHash] {
		t.Error("it has the same hash after an edit")
	}
}

func testInPlace(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(Manifest("web", "app:1"))
	first := sink.Wait(t, "the pod", Has("web-node1=app:1")).Claims[0]
	f.Put(Manifest("web", "app:2"))
	second := sink.Wait(t, "the edited pod", Has("web-node1=app:2")).Claims[0]
	edited(t, first, second)
	f.Put(Broken)
	sink.Wait(t, "a stale pod", Has("web-node1=app:2!"))
	f.Put(Manifest("web", "app:3"))
	third := sink.Wait(t, "the pod edited again", Has("web-node1=app:3")).Claims[0]
	edited(t, second, third)
}

func testInPlaceMeanwhile(t *testing.T, f Fixture) {
	var before desired.Claim
	for i, image := range []string{"app:1", "app:2", "app:3"} {
		f.Put(Manifest("web", image))
		sink := NewRecorder()
		stop := start(t, f.New(sink))
		now := sink.Wait(t, "the pod", Has("web-node1="+image)).Claims[0]
		if i > 0 {
			edited(t, before, now)
		}
		before = now
		stop()
	}
}

func testSameText(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(Manifest("web", "app:1"))
	first := sink.Wait(t, "the pod", Has("web-node1=app:1"))
	f.Put("# a comment\n" + Manifest("web", "app:1") + "---\n" + Manifest("db", "app:1"))
	second := sink.Wait(t, "both pods", Has("web-node1=app:1", "db-node1=app:1"))
	for _, c := range second.Claims {
		if c.Desired.Pod.Name == "web-node1" && c.Desired != first.Claims[0].Desired {
			t.Error("a pod about which nothing changed isn't the same pointer")
		}
	}
}

func testRemoval(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(Manifest("web", "app:1"))
	sink.Wait(t, "the pod", Has("web-node1=app:1"))
	f.Remove()
	sink.Wait(t, "no pod", Has())
	f.Put(Manifest("web", "app:1"))
	sink.Wait(t, "the pod again", Has("web-node1=app:1"))
}

func testBadText(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(Manifest("web", "app:1"))
	good := sink.Wait(t, "the pod", Has("web-node1=app:1")).Claims[0].Desired
	for _, bad := range []string{Broken, Invalid("web"), "", "\x00\x00\x00\x00",
		"<html>no</html>", Manifest("web", "app:2")[:20]} {
		f.Put(bad)
		if !f.Lasting {
			if r, _ := sink.Last(); !Has("web-node1=app:1")(r) {
				t.Fatalf("after %q: %s", bad, Describe(r))
			}
			continue
		}
		r := sink.Wait(t, "a stale pod and a problem", func(r desired.Report) bool {
			return Has("web-node1=app:1!")(r) && len(r.Problems) == 1
		})
		if kept := r.Claims[0].Desired; kept.Pod != good.Pod {
			t.Errorf("after %q another pod is kept", bad)
		}
		if r.Problems[0].Origin == "" || strings.TrimSpace(r.Problems[0].Message) == "" {
			t.Errorf("after %q the problem says nothing: %+v", bad, r.Problems[0])
		}
		f.Put(Manifest("web", "app:1"))
		r = sink.Wait(t, "the pod, no longer stale", func(r desired.Report) bool {
			return Has("web-node1=app:1")(r) && len(r.Problems) == 0
		})
		if r.Claims[0].Desired.Pod != good.Pod {
			t.Errorf("after %q was fixed it is another pod", bad)
		}
	}
}

func testBadFromStart(t *testing.T, f Fixture) {
	f.Put(Manifest("web", "app:1") + "---\n" + Invalid("db"))
	sink := NewRecorder()
	start(t, f.New(sink))
	sink.Wait(t, "the good pod, and a problem", func(r desired.Report) bool {
		return Has("web-node1=app:1")(r) && len(r.Problems) == 1 && r.Problems[0].Pod == "default/db"
	})
}

func testRunAgain(t *testing.T, f Fixture) {
	sink := NewRecorder()
	s := f.New(sink)
	stop := start(t, s)
	f.Put(Manifest("web", "app:1"))
	before := sink.Wait(t, "the pod", Has("web-node1=app:1"))
	stop()
	sink.Clear()
	start(t, s)
	after := sink.Wait(t, "the pod again", Has("web-node1=app:1"))
	if before.Claims[0].Desired != after.Claims[0].Desired {
		t.Error("the pod isn't the same pointer when the source is run again")
	}
}

func testRunTwice(t *testing.T, f Fixture) {
	sink := NewRecorder()
	s := f.New(sink)
	start(t, s)
	f.Remove()
	sink.Wait(t, "the first report", Has())
	if err := s.Run(context.Background()); err == nil {
		t.Error("a second Run at the same time is let in")
	}
}

func testNewSource(t *testing.T, f Fixture) {
	first := NewRecorder()
	stop := start(t, f.New(first))
	f.Put(Manifest("web", "app:1") + "---\n" + Manifest("db", "app:1"))
	before := first.Wait(t, "the pods", Has("web-node1=app:1", "db-node1=app:1"))
	stop()
	f.Put(Broken)

	second := NewRecorder()
	start(t, f.New(second))
	after := second.Wait(t, "the last good pods", Has("web-node1=app:1!", "db-node1=app:1!"))
	if after.Pending {
		t.Error("a source that knows its last good pods is pending")
	}
	for i, c := range after.Claims {
		was := before.Claims[i]
		if c.Desired.Pod.UID != was.Desired.Pod.UID || !c.Since.Equal(was.Since) ||
			c.Desired.Pod.Annotations[pod.AnnotationConfigSeen] != was.Desired.Pod.Annotations[pod.AnnotationConfigSeen] {
			t.Errorf("pod %s has another UID, seen or since after a restart", c.Desired.Pod.Name)
		}
	}
	for _, r := range second.All() {
		if len(r.Claims) != 2 {
			t.Errorf("a report came without all pods: %s", Describe(r))
		}
	}
}

func testRemovedMeanwhile(t *testing.T, f Fixture) {
	first := NewRecorder()
	stop := start(t, f.New(first))
	f.Put(Manifest("web", "app:1"))
	first.Wait(t, "the pod", Has("web-node1=app:1"))
	stop()
	f.Remove()
	second := NewRecorder()
	start(t, f.New(second))
	second.Wait(t, "no pod", Has())
	for _, r := range second.All() {
		if len(r.Claims) != 0 {
			t.Errorf("a pod that was removed meanwhile was reported: %s", Describe(r))
		}
	}
}
