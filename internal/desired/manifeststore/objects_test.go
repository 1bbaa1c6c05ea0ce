package manifeststore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

var settings, token = sourcetest.ConfigMap("settings", "a"), sourcetest.Secret("token", "hunter2")

func checkObjects(t *testing.T, k *manifeststore.Keeper, problems int, list ...string) desired.Report {
	t.Helper()
	r := k.Report()
	if !sourcetest.HasObjects(list...)(r) || len(r.Problems) != problems {
		t.Errorf("want objects %q and %d problems; got %s", list, problems, sourcetest.Describe(r))
	}
	for _, p := range r.Problems {
		if strings.Contains(p.Message, "hunter2") {
			t.Errorf("a problem shows a Secret: %s", p.Message)
		}
	}
	return r
}

func TestBadDocumentsLoseNoObject(t *testing.T) {
	badSettings := strings.Replace(settings, "metadata:", "metadta: {}\nmetadata:", 1)
	for name, test := range map[string]struct {
		next     []byte
		problems int
		objects  []string
		pods     []string
		message  string
	}{
		"an object is invalid": {docs(web, badSettings, token), 1, []string{"settings=a!", "token=hunter2"}, []string{"web-node1=app:1"},
			"ConfigMap default/settings: line 18: metadta: unknown field"},
		"a pod is invalid":     {docs(sourcetest.Invalid("web"), token), 1, []string{"settings=a!", "token=hunter2"}, []string{"web-node1=app:1!"}, "spec.containers[0].image"},
		"an object is removed": {docs(web, token), 0, []string{"token=hunter2"}, []string{"web-node1=app:1"}, ""},
		"an object is twice":   {docs(web, settings, token, sourcetest.ConfigMap("settings", "b")), 1, []string{"settings=a", "token=hunter2"}, []string{"web-node1=app:1"}, "ConfigMap default/settings isn't taken from here: document 2"},
		"cut short":            {[]byte(string(docs(web, settings)) + "---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: token\nstringData: {"), 1, []string{"settings=a", "token=hunter2!"}, []string{"web-node1=app:1"}, "Secret default/token: line"},
		"another kind, the same name": {docs(web, settings, token, sourcetest.Secret("settings", "x"), sourcetest.ConfigMap("web", "y")), 0,
			[]string{"settings=a", "settings=x", "token=hunter2", "web=y"}, []string{"web-node1=app:1"}, ""},
		"without a name": {docs(web, settings, token, "apiVersion: v1\nkind: ConfigMap\n"), 1, []string{"settings=a", "token=hunter2"}, []string{"web-node1=app:1"}, "ConfigMap: line"},
		"several errors": {docs(web, badSettings+"x: y\n", token), 1, []string{"settings=a!", "token=hunter2"}, []string{"web-node1=app:1"},
			"ConfigMap default/settings:\nline 18: metadta: unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper()
			k.Accept("f", docs(web, settings, token), start)
			checkObjects(t, k, 0, "settings=a", "token=hunter2")
			k.Accept("f", test.next, start.Add(time.Hour))
			r := checkObjects(t, k, test.problems, test.objects...)
			if !sourcetest.Has(test.pods...)(r) {
				t.Errorf("want pods %q, got %s", test.pods, sourcetest.Describe(r))
			}
			for _, p := range r.Problems {
				if !strings.Contains(p.Message, test.message) {
					t.Errorf("the problem is %q, want %q in it", p.Message, test.message)
				}
			}
		})
	}
}

// TestObjectsThatCannotBeUsed: pods that miss them say where they are.
func TestObjectsThatCannotBeUsed(t *testing.T) {
	bad := func(text string) string { return strings.Replace(text, "metadata:", "metadta: {}\nmetadata:", 1) }
	k := newKeeper()
	refused := func(want ...string) {
		t.Helper()
		got := k.Report().Refused
		if len(got) != len(want) {
			t.Fatalf("refused %v, want %q", got, want)
		}
		for _, name := range want {
			if got[object.Key{Kind: object.ConfigMap, Namespace: "default", Name: name}] != "f" {
				t.Errorf("refused %v, want %s by f", got, name)
			}
		}
	}
	k.Accept("f", docs(web, bad(settings), token), start)
	refused("settings")
	k.Fail("f", "it can't be read", start)
	refused("settings")
	k.Accept("f", docs(bad(settings), settings), start) // one of them is good
	refused()
	k.Accept("f", docs(bad(settings)), start) // it has an older version
	refused()
	k.Accept("f", docs(bad(settings), bad(sourcetest.ConfigMap("other", "b")), sourcetest.Invalid("web")), start)
	refused("other")
	k.Forget("f")
	refused()
}

func onlyObject(t *testing.T, k *manifeststore.Keeper) desired.ObjectClaim {
	t.Helper()
	r := k.Report()
	if len(r.Objects) != 1 {
		t.Fatal(sourcetest.Describe(r))
	}
	return r.Objects[0]
}

// An object goes on when its manifest moves, even with an edit; an immutable one that is
// edited does so as another.
func TestMovedObject(t *testing.T) {
	for name, test := range map[string]struct {
		first, second string
		same          bool
	}{
		"as it is":          {settings, settings, true},
		"edited":            {settings, sourcetest.ConfigMap("settings", "b"), true},
		"immutable":         {sourcetest.Immutable(settings), sourcetest.Immutable(settings), true},
		"immutable, edited": {sourcetest.Immutable(settings), sourcetest.Immutable(sourcetest.ConfigMap("settings", "b")), false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper()
			k.Accept("a", []byte(test.first), start)
			before := onlyObject(t, k).Object
			k.Accept("b", []byte(test.second), start.Add(time.Hour))
			k.Forget("a")
			after := onlyObject(t, k).Object
			if same := before.Object().GetUID() == after.Object().GetUID(); same != test.same {
				t.Errorf("the same object: %v, want %v", same, test.same)
			}
			if again := onlyObject(t, k).Object; again != after {
				t.Error("reported again it is another pointer")
			}
			if after.Origin != "b" || before.Origin != "a" {
				t.Errorf("from %s, then %s", before.Origin, after.Origin)
			}
		})
	}
}

func TestGoneObjectIsAnother(t *testing.T) {
	k := newKeeper()
	k.Accept("a", []byte(settings), start)
	before := onlyObject(t, k).Object.Object()
	k.Forget("a")
	checkObjects(t, k, 0)
	k.Accept("a", []byte(settings), start.Add(time.Hour))
	after := onlyObject(t, k).Object.Object()
	if before.GetUID() == after.GetUID() || before.GetResourceVersion() != after.GetResourceVersion() || !after.GetCreationTimestamp().Time.Equal(start.Add(time.Hour)) {
		t.Errorf("UID %s after %s, version %s after %s, created %v", after.GetUID(), before.GetUID(), after.GetResourceVersion(), before.GetResourceVersion(), after.GetCreationTimestamp())
	}
}

func TestRestoreObjects(t *testing.T) {
	k := newKeeper()
	k.Accept("f", docs(web, settings, token, sourcetest.Volume("disk", "1Gi")), start)
	before := k.Report()
	records := k.Records()()

	again := newKeeper()
	unknown := manifeststore.Record{Origin: "f", Kind: "Ingress", Content: []byte("{}")}
	bad := manifeststore.Record{Origin: "f", Kind: object.Secret, Content: []byte(`{"metadata":{"name":"x"},"data":{"a/b":"aHVudGVyMg=="}}`)}
	failed := again.Restore(append(records, unknown, bad), nil)
	if len(failed) != 2 || !strings.Contains(failed[0].Error(), "Ingress") || !strings.Contains(failed[1].Error(), "default/x") || strings.Contains(failed[1].Error(), "hunter2") {
		t.Errorf("errors %v, want one about each bad record", failed)
	}
	after := checkObjects(t, again, 0, "disk=1Gi", "disk=1Gi", "settings=a", "token=hunter2")
	for i, c := range after.Objects {
		x, y := before.Objects[i].Object.Object(), c.Object.Object()
		if x.GetUID() != y.GetUID() || x.GetResourceVersion() != y.GetResourceVersion() {
			t.Errorf("%s is another object", c.Object)
		}
	}

	other := manifeststore.New(reader.New("node2", pod.SourceFile, sourcetest.Rules()))
	if failed := other.Restore(records, nil); len(failed) > 0 {
		t.Fatal(failed)
	}
	if got := other.Report().Objects[0].Object.Object().GetUID(); got == before.Objects[0].Object.Object().GetUID() {
		t.Error("an object has the same UID on another node")
	}
}

// TestImmutableObjectsEditedWhileNoAgentRan are what they were before.
func TestImmutableObjectsEditedWhileNoAgentRan(t *testing.T) {
	fixed := func(setting, value string) []byte {
		return docs(sourcetest.Immutable(sourcetest.ConfigMap("settings", setting)), sourcetest.Immutable(sourcetest.Secret("token", value)))
	}
	k := newKeeper()
	k.Accept("f", fixed("a", "hunter2"), start)
	before := k.Report()

	again := newKeeper()
	if failed := again.Restore(k.Records()(), nil); len(failed) > 0 {
		t.Fatal(failed)
	}
	again.Accept("f", fixed("b", "other"), start.Add(time.Hour))
	after := checkObjects(t, again, 2, "settings=a!", "token=hunter2!")
	for i, p := range after.Problems {
		if want := []string{"ConfigMap default/settings: ", "Secret default/token: "}[i]; !strings.Contains(p.Message, want) || !strings.Contains(p.Message, "data: Forbidden: the object is immutable") {
			t.Errorf("the problem is %q, want that %sit is immutable", p.Message, want)
		}
	}
	for i, c := range after.Objects {
		x, y := before.Objects[i].Object.Object(), c.Object.Object()
		if x.GetUID() != y.GetUID() || x.GetResourceVersion() != y.GetResourceVersion() {
			t.Errorf("%s is another object", c.Object)
		}
	}
	again.Accept("f", fixed("a", "hunter2"), start.Add(2*time.Hour)) // the edit is taken back
	checkObjects(t, again, 0, "settings=a", "token=hunter2")
}
