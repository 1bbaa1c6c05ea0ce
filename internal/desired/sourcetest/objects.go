package sourcetest

import (
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// both is a manifest of a pod, a ConfigMap and a Secret.
func both(value string) string {
	return Manifest("web", "app:1") + "---\n" + ConfigMap("settings", value) + "---\n" + Secret("token", "hunter2")
}

func testObjects(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(both("a"))
	r := sink.Wait(t, "two objects", HasObjects("settings=a", "token=hunter2"))
	if !Has("web-node1=app:1")(r) {
		t.Errorf("objects came without their pod: %s", Describe(r))
	}
	for _, c := range r.Objects {
		o := c.Object.Object()
		if c.Object.Source != f.Kind || c.Object.Origin == "" || c.Since.IsZero() || c.Document == 0 {
			t.Errorf("claim to %s isn't complete: %+v", c.Object, c)
		}
		if o.GetUID() == "" || o.GetResourceVersion() == "" || o.GetCreationTimestamp().Year() < 2026 ||
			o.GetNamespace() != "default" ||
			o.GetObjectKind().GroupVersionKind() != c.Object.Key().Kind.GroupVersionKind() {
			t.Errorf("%s isn't complete: %s %s %v %v", c.Object, o.GetUID(), o.GetResourceVersion(),
				o.GetCreationTimestamp(), o.GetObjectKind())
		}
	}
	f.Remove()
	sink.Wait(t, "no object", func(r desired.Report) bool { return HasObjects()(r) && Has()(r) })
}

func testBadObject(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(both("a"))
	good := map[object.Key]object.Object{}
	for _, c := range sink.Wait(t, "the objects", HasObjects("settings=a", "token=hunter2")).Objects {
		good[c.Object.Key()] = c.Object.Object()
	}
	for _, bad := range []string{Broken, strings.Replace(both("b"), "key: \"b\"", "key: 5", 1),
		strings.Replace(both("b"), "key:", "k e y:", 1), both("a")[:len(both("a"))-20]} {
		f.Put(bad)
		if !f.Lasting {
			if r, _ := sink.Last(); !HasObjects("settings=a", "token=hunter2")(r) {
				t.Fatalf("after %q: %s", bad, Describe(r))
			}
			continue
		}
		r := sink.Wait(t, "a problem, and all objects", func(r desired.Report) bool {
			return len(r.Problems) == 1 && len(r.Objects) == 2 && strings.Contains(strings.Join(Objects(r), " "), "!")
		})
		for _, c := range r.Objects {
			if c.Object.Object() != good[c.Object.Key()] {
				t.Errorf("after %q %s is another object", bad, c.Object)
			}
		}
		if strings.Contains(r.Problems[0].Message, "hunter2") {
			t.Errorf("after %q the problem shows the Secret: %s", bad, r.Problems[0].Message)
		}
		f.Put(both("a"))
		sink.Wait(t, "the objects, no longer stale", func(r desired.Report) bool {
			return HasObjects("settings=a", "token=hunter2")(r) && len(r.Problems) == 0
		})
	}
}

func testObjectsAlone(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(ConfigMap("settings", "a"))
	r := sink.Wait(t, "the object", HasObjects("settings=a"))
	if len(r.Claims)+len(r.Problems) > 0 || r.Pending {
		t.Error(Describe(r))
	}
}

// same checks that b equals a except for its content.
func same(t *testing.T, a, b desired.ObjectClaim) {
	t.Helper()
	x, y := a.Object.Object(), b.Object.Object()
	if x.GetUID() != y.GetUID() || x.GetCreationTimestamp().UTC() != y.GetCreationTimestamp().UTC() ||
		!a.Since.Equal(b.Since) {
		t.Errorf("%s has another UID, creation or since: %s %v %v, then %s %v %v", a.Object,
			x.GetUID(), x.GetCreationTimestamp(), a.Since, y.GetUID(), y.GetCreationTimestamp(), b.Since)
	}
	if x.GetResourceVersion() == y.GetResourceVersion() {
		t.Errorf("%s has the resource version %s still", a.Object, x.GetResourceVersion())
	}
}

func testEditedObject(t *testing.T, f Fixture) {
	sink := NewRecorder()
	stop := start(t, f.New(sink))
	f.Put(ConfigMap("settings", "a") + "---\n" + Secret("token", "x"))
	first := sink.Wait(t, "the objects", HasObjects("settings=a", "token=x"))
	f.Put("# moved\n" + Secret("token", "x") + "---\n" + ConfigMap("settings", "b"))
	second := sink.Wait(t, "the edited object", HasObjects("settings=b", "token=x"))
	same(t, first.Objects[0], second.Objects[1])
	if first.Objects[1].Object != second.Objects[0].Object {
		t.Error("an object about which nothing changed isn't the same pointer")
	}
	stop()

	f.Put(ConfigMap("settings", "c") + "---\n" + Secret("token", "x"))
	sink = NewRecorder()
	start(t, f.New(sink))
	third := sink.Wait(t, "the object edited while not looked", HasObjects("settings=c", "token=x"))
	same(t, second.Objects[1], third.Objects[0])
	f.Remove()
	sink.Wait(t, "no object", HasObjects())
	f.Put(ConfigMap("settings", "c"))
	again := sink.Wait(t, "the object again", HasObjects("settings=c"))
	if again.Objects[0].Object.Object().GetUID() == third.Objects[0].Object.Object().GetUID() {
		t.Error("an object that was gone has its old UID")
	}
}

func testImmutable(t *testing.T, f Fixture) {
	sink := NewRecorder()
	stop := start(t, f.New(sink))
	f.Put(Immutable(ConfigMap("settings", "a")))
	sink.Wait(t, "the object", HasObjects("settings=a"))
	refused := func(r desired.Report) bool {
		return HasObjects("settings=a!")(r) && len(r.Problems) == 1 &&
			strings.Contains(r.Problems[0].Message, "immutable")
	}
	f.Put(Immutable(ConfigMap("settings", "b")))
	sink.Wait(t, "a refusal", refused)
	f.Put(ConfigMap("settings", "a"))
	sink.Wait(t, "a refusal to thaw it", refused)
	stop()

	f.Put(Immutable(ConfigMap("settings", "b")))
	sink = NewRecorder()
	start(t, f.New(sink))
	sink.Wait(t, "a refusal after a restart", refused)
	f.Put(ConfigMap("other", "x"))
	sink.Wait(t, "no such object", HasObjects("other=x"))
	f.Put(ConfigMap("other", "x") + "---\n" + Immutable(ConfigMap("settings", "b")))
	sink.Wait(t, "the object anew", func(r desired.Report) bool {
		return HasObjects("other=x", "settings=b")(r) && len(r.Problems) == 0
	})
}

func testNewSourceObjects(t *testing.T, f Fixture) {
	first := NewRecorder()
	stop := start(t, f.New(first))
	f.Put(ConfigMap("settings", "a") + "---\n" + Secret("token", "hunter2"))
	before := first.Wait(t, "the objects", HasObjects("settings=a", "token=hunter2"))
	stop()
	f.Put(Broken)

	second := NewRecorder()
	start(t, f.New(second))
	after := second.Wait(t, "the last good objects", HasObjects("settings=a!", "token=hunter2!"))
	if after.Pending {
		t.Error("a source that knows its last good objects is pending")
	}
	for i, c := range after.Objects {
		x, y := before.Objects[i].Object.Object(), c.Object.Object()
		if x.GetUID() != y.GetUID() || x.GetResourceVersion() != y.GetResourceVersion() ||
			!c.Since.Equal(before.Objects[i].Since) {
			t.Errorf("%s has another UID, version or since after a restart", c.Object)
		}
	}
	if kind := after.Objects[1].Object.Key().Kind; kind != object.Secret {
		t.Errorf("the second is a %s", kind)
	}
}

func testVolumes(t *testing.T, f Fixture) {
	sink := NewRecorder()
	start(t, f.New(sink))
	f.Put(Manifest("web", "app:1") + "---\n" + Volume("disk", "1Gi"))
	r := sink.Wait(t, "the volume and its claim", HasObjects("disk=1Gi", "disk=1Gi"))
	for _, c := range r.Objects {
		o, key := c.Object.Object(), c.Object.Key()
		if o.GetUID() == "" || o.GetNamespace() != key.Namespace ||
			(key.Namespace != "") != (key.Kind == object.PersistentVolumeClaim) {
			t.Errorf("%s isn't complete: UID %q, namespace %q", c.Object, o.GetUID(), o.GetNamespace())
		}
	}
	f.Remove()
	sink.Wait(t, "no object", HasObjects())
}

func testEditedVolumes(t *testing.T, f Fixture) {
	sink := NewRecorder()
	stop := start(t, f.New(sink))
	f.Put(Volume("disk", "1Gi"))
	before := sink.Wait(t, "the volume and its claim", HasObjects("disk=1Gi", "disk=1Gi"))
	stop()

	f.Put(Volume("disk", "2Gi"))
	sink = NewRecorder()
	start(t, f.New(sink))
	after := sink.Wait(t, "both after an edit that nobody saw", HasObjects("disk=2Gi", "disk=2Gi"))
	for i, c := range after.Objects {
		same(t, before.Objects[i], c)
	}
	f.Put(Volume("disk", "0"))
	sink.Wait(t, "two problems, and both as they were", func(r desired.Report) bool {
		return HasObjects("disk=2Gi!", "disk=2Gi!")(r) && len(r.Problems) == 2
	})
}
