package manifeststore_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newKeeper() *manifeststore.Keeper {
	return manifeststore.New(sourcetest.NewReader(pod.SourceFile))
}

func docs(texts ...string) []byte { return []byte(strings.Join(texts, "---\n")) }

func check(t *testing.T, k *manifeststore.Keeper, problems int, pods ...string) desired.Report {
	t.Helper()
	r := k.Report()
	if !sourcetest.Has(pods...)(r) || len(r.Problems) != problems {
		t.Errorf("want %q and %d problems; got %s", pods, problems, sourcetest.Describe(r))
	}
	return r
}

var web, db, cron = sourcetest.Manifest("web", "app:1"), sourcetest.Manifest("db", "app:1"), sourcetest.Manifest("cron", "app:1")

func TestBadDocuments(t *testing.T) {
	tests := map[string]struct {
		next     []byte
		problems int
		pods     []string
	}{
		"one is invalid": {docs(sourcetest.Manifest("web", "app:2"), sourcetest.Invalid("db")), 1,
			[]string{"web-node1=app:2", "db-node1=app:1!", "cron-node1=app:1!"}},
		"one has no name that can be read": {docs(web, "kind: Pod\nmetadata: {\n", cron), 1,
			[]string{"web-node1=app:1", "db-node1=app:1!", "cron-node1=app:1"}},
		"one is another kind": {docs(web, "apiVersion: v1\nkind: Service\nmetadata: {name: db}\n"), 1,
			[]string{"web-node1=app:1", "db-node1=app:1!", "cron-node1=app:1!"}},
		"one is removed from a good text": {docs(web, cron), 0,
			[]string{"web-node1=app:1", "cron-node1=app:1"}},
		"all are removed by an empty list": {[]byte(`{"apiVersion": "v1", "kind": "List", "items": []}`), 0, nil},
		"nothing but comments": {[]byte("# gone\n"), 1,
			[]string{"web-node1=app:1!", "db-node1=app:1!", "cron-node1=app:1!"}},
		"truncated to nothing": {nil, 1,
			[]string{"web-node1=app:1!", "db-node1=app:1!", "cron-node1=app:1!"}},
		"one twice": {docs(web, db, cron, sourcetest.Manifest("web", "app:2")), 1,
			[]string{"web-node1=app:1", "db-node1=app:1", "cron-node1=app:1"}},
		"another order": {docs(cron, web, db), 0,
			[]string{"web-node1=app:1", "db-node1=app:1", "cron-node1=app:1"}},
		"one is renamed and bad": {docs(web, db, sourcetest.Invalid("tick")), 1,
			[]string{"web-node1=app:1", "db-node1=app:1", "cron-node1=app:1!"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := newKeeper()
			k.Accept("f", docs(web, db, cron), start)
			check(t, k, 0, "web-node1=app:1", "db-node1=app:1", "cron-node1=app:1")
			k.Accept("f", test.next, start.Add(time.Hour))
			r := check(t, k, test.problems, test.pods...)
			for _, p := range r.Problems {
				if !p.Since.Equal(start.Add(time.Hour)) || p.Message == "" {
					t.Errorf("problem %+v", p)
				}
			}
			k.Accept("f", docs(web, db, cron), start.Add(2*time.Hour))
			check(t, k, 0, "web-node1=app:1", "db-node1=app:1", "cron-node1=app:1")
		})
	}
}

// Thousands of pods may be kept for one bad document, each with the reason: that is short,
// while the problem says everything.
func TestReasonOfWhatIsKeptIsShort(t *testing.T) {
	bad := "apiVersion: v1\nkind: Pod\nmetadata: {name: db}\nspec: {containers: [{name: a, imagee: x}, {name: b, imagee: x}]}\n"
	k := newKeeper()
	k.Accept("f", docs(web, db), start)
	for _, text := range [][]byte{docs(bad, sourcetest.Invalid("tick")), []byte(strings.ReplaceAll(bad, "name: db", "name: tick"))} {
		k.Accept("f", text, start)
		r := check(t, k, strings.Count(string(text), "kind: Pod"), "web-node1=app:1!", "db-node1=app:1!")
		for _, c := range r.Claims {
			if why := c.Desired.Stale; c.Desired.Pod.Name == "web-node1" && (!strings.Contains(why, "containers[0].imagee") || strings.Contains(why, "containers[1]") || !strings.HasSuffix(why, " more")) {
				t.Errorf("stale because %q", why)
			}
		}
		if !strings.Contains(r.Problems[0].Message, "containers[1].imagee") {
			t.Errorf("problem %q", r.Problems[0].Message)
		}
	}
}

func TestUnchangedPodsKeepTheirPointer(t *testing.T) {
	k := newKeeper()
	k.Accept("f", docs(web, db), start)
	before := map[string]*pod.Desired{}
	for _, c := range k.Report().Claims {
		before[c.Desired.Pod.Name] = c.Desired
	}
	k.Accept("f", docs(db, "# reformatted\n"+web, sourcetest.Manifest("cron", "app:1")), start.Add(time.Hour))
	for _, c := range k.Report().Claims {
		if was := before[c.Desired.Pod.Name]; was != nil && was != c.Desired {
			t.Errorf("%s is another pointer", c.Desired.Pod.Name)
		}
	}
}

// TestDefaultsAreSetOnce: each version of a pod gets its defaults once. An edited pod is also compared with its earlier
// version: that sets the defaults of three copies.
func TestDefaultsAreSetOnce(t *testing.T) {
	rules, n := sourcetest.Rules(), 0
	set := rules.SetDefaults
	rules.SetDefaults = func(p *v1.Pod) {
		n++
		set(p)
	}
	k := manifeststore.New(reader.New(sourcetest.Node, pod.SourceFile, rules))
	for i, step := range []struct {
		text []byte
		want int
	}{
		{docs(web, db, cron), 3},
		{docs(web, db, cron), 0},
		{docs(web, sourcetest.Manifest("db", "app:2"), cron), 1 + 3},
		{docs(cron, web), 0},
	} {
		n = 0
		k.Accept("a", step.text, start)
		k.Report()
		if n != step.want {
			t.Errorf("step %d: defaults were set %d times, want %d", i, n, step.want)
		}
	}
}

func TestSameProblemKeepsItsTime(t *testing.T) {
	k := newKeeper()
	for i := range 3 {
		k.Accept("f", docs(web, sourcetest.Invalid("db")), start.Add(time.Duration(i)*time.Hour))
		k.Fail("g", "it is a directory", start.Add(time.Duration(i)*time.Hour))
		k.Note("watch", "dir", "exhausted", start.Add(time.Duration(i)*time.Hour))
	}
	r := k.Report()
	if len(r.Problems) != 3 {
		t.Fatal(sourcetest.Describe(r))
	}
	for _, p := range r.Problems {
		if !p.Since.Equal(start) {
			t.Errorf("problem of %s is since %v, want %v", p.Origin, p.Since, start)
		}
	}
	if got := r.Problems[1]; got.Origin != "f, document 2" || got.Pod != "default/db" {
		t.Errorf("problem %+v, want document 2 and the pod's name", got)
	}
}

func TestStaleSaysWhy(t *testing.T) {
	k := newKeeper()
	k.Accept("f", docs(web, db), start)
	k.Accept("f", docs(sourcetest.Invalid("web")+"---\nkind: [\n"), start)
	for _, c := range k.Report().Claims {
		why := map[string]string{"web-node1": "spec.containers[0].image", "db-node1": "document 1"}[c.Desired.Pod.Name]
		if !strings.Contains(c.Desired.Stale, why) {
			t.Errorf("%s is stale because %q, want %q in it", c.Desired.Pod.Name, c.Desired.Stale, why)
		}
	}
}

func TestMovedManifestIsTheSamePod(t *testing.T) {
	k := newKeeper()
	k.Accept("a", []byte(web), start)
	check(t, k, 0, "web-node1=app:1")
	k.Accept("b", []byte(web), start.Add(time.Hour))
	k.Forget("a")
	r := check(t, k, 0, "web-node1=app:1")
	if got := r.Claims[0].Desired.Pod.Annotations[pod.AnnotationConfigSeen]; got != start.Format(time.RFC3339Nano) {
		t.Errorf("seen at %s, want %v", got, start)
	}
	// Gone and back is new, once that it is gone was reported.
	k.Forget("b")
	check(t, k, 0)
	k.Accept("a", []byte(web), start.Add(2*time.Hour))
	if got := k.Report().Claims[0].Desired.Pod.Annotations[pod.AnnotationConfigSeen]; got != start.Add(2*time.Hour).Format(time.RFC3339Nano) {
		t.Errorf("seen at %s after it was gone, want the new time", got)
	}
}

// The incumbent keeps its name: over changes, restarts and a clock set back.
func TestSince(t *testing.T) {
	k := newKeeper()
	k.Accept("z", []byte(web), start)
	k.Accept("z", []byte(sourcetest.Manifest("web", "app:2")), start.Add(time.Hour))
	again := newKeeper()
	if err := again.Restore(k.Records()(), nil); err != nil {
		t.Fatal(err)
	}
	again.Accept("a", []byte(web), start.Add(-24*time.Hour))
	r := again.Report()
	since := map[string]time.Time{}
	for _, c := range r.Claims {
		since[c.Desired.Origin] = c.Since
	}
	if !since["z"].Equal(start) || !since["a"].After(since["z"]) {
		t.Errorf("claims are since %v; want that of z at %v and that of a later", since, start)
	}
}

func TestRestore(t *testing.T) {
	k := newKeeper()
	k.Accept("f", docs(web, db), start)
	k.Fail("f", "unreadable", start)
	records := k.Records()()

	again := newKeeper()
	again.Accept("g", []byte(cron), start)
	bad := manifeststore.Record{Origin: "f", Content: json.RawMessage(`{"metadata":{"name":"x"}}`)}
	other := records[0]
	other.Origin = "g"
	if failed := again.Restore(append(records, bad, other), nil); len(failed) != 1 || !strings.Contains(failed[0].Error(), "default/x") {
		t.Errorf("errors %v, want one about the invalid pod", failed)
	}
	check(t, again, 0, "web-node1=app:1!", "db-node1=app:1!", "cron-node1=app:1")
	again.Accept("f", docs(web, db), start.Add(time.Hour))
	r := check(t, again, 0, "web-node1=app:1", "db-node1=app:1", "cron-node1=app:1")
	for i, c := range r.Claims[:2] {
		if was := k.Report().Claims[i].Desired.Pod; c.Desired.Pod.UID != was.UID || c.Desired.Pod.Annotations[pod.AnnotationConfigSeen] != was.Annotations[pod.AnnotationConfigSeen] {
			t.Errorf("%s isn't the pod it was", c.Desired.Pod.Name)
		}
	}
}

// Whatever half of whatever text is there at any time: no pod goes away but by a text
// that can be used in full and doesn't have it.
func TestHalfWrittenTextsLoseNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newKeeper()
		running := map[string]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "writes") {
			names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 4, rapid.ID[string]).Draw(t, "pods")
			var parts []string
			for _, name := range names {
				parts = append(parts, sourcetest.Manifest(name, fmt.Sprintf("app:%d", rapid.IntRange(1, 3).Draw(t, "version"))))
			}
			text := docs(parts...)
			cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
			half := slices.Clone(text[:cut])
			if rapid.Bool().Draw(t, "zeros") { // as after a crash of the host
				half = append(half, make([]byte, len(text)-cut)...)
			}
			k.Accept("f", half, start)
			wanted := map[string]bool{}
			for _, c := range k.Report().Claims {
				wanted[c.Desired.Pod.Name] = true
				if k.Good("f") != (c.Desired.Stale == "") && c.Desired.Stale != "" {
					t.Fatalf("pod %s is stale (%s) though the text is good", c.Desired.Pod.Name, c.Desired.Stale)
				}
			}
			if !k.Good("f") {
				if len(k.Report().Problems) == 0 {
					t.Fatal("a bad text without a problem")
				}
				for name := range running {
					if !wanted[name] {
						t.Fatalf("pod %s went away by\n%s", name, half)
					}
				}
			}
			if len(running) > 0 && len(wanted) == 0 {
				t.Fatalf("all pods went away by\n%s", half)
			}
			running = wanted
		}
	})
}

func FuzzAccept(f *testing.F) {
	f.Add(docs(web, db))
	f.Add([]byte(sourcetest.Broken))
	f.Add(docs(sourcetest.Invalid("web"), db))
	f.Add(docs(web, db, settings, token, sourcetest.Immutable(sourcetest.ConfigMap("settings", "b"))))
	f.Add(docs(db, sourcetest.Volume("disk", "1Gi"), settings))
	f.Fuzz(func(t *testing.T, text []byte) {
		k := newKeeper()
		k.Accept("f", docs(web, db, settings), start)
		k.Accept("f", text, start)
		if r := k.Report(); !k.Good("f") && (len(r.Claims) < 2 || len(r.Objects) == 0 || len(r.Problems) == 0) {
			t.Errorf("a bad text left %s", sourcetest.Describe(r))
		}
	})
}

// TestRefusedSinceTheLastAgent: what was taken before, and isn't any more, runs on until it is removed, and is a problem.
func TestRefusedSinceTheLastAgent(t *testing.T) {
	refuse := false
	rules := sourcetest.Rules()
	rules.Refuse = func(*v1.Pod) field.ErrorList {
		if refuse {
			return field.ErrorList{field.Forbidden(field.NewPath("spec"), "no")}
		}
		return nil
	}
	k := manifeststore.New(reader.New(sourcetest.Node, pod.SourceFile, rules))
	k.Accept("f", docs(web), start)
	check(t, k, 0, "web-node1=app:1")
	refuse = true
	k.Accept("f", docs(web), start)
	check(t, k, 1, "web-node1=app:1!")
	k.Delete("f")
	check(t, k, 0)
	k.Accept("f", docs(web), start)
	check(t, k, 1)
}
