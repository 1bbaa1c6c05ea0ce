package manifeststore_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

var (
	web1, web2, web3 = sourcetest.Manifest("web", "app:1"), sourcetest.Manifest("web", "app:2"), sourcetest.Manifest("web", "app:3")
	otherWeb         = sourcetest.Otherwise(web1)
	// plainWeb can become limitedWeb while it runs, but not the other way round.
	plainWeb   = strings.Replace(web1, "limits: {cpu: 100m, memory: 64Mi}", "limits: {memory: 64Mi}\n      requests: {cpu: 10m}", 1)
	limitedWeb = strings.Replace(plainWeb, "limits: {", "limits: {cpu: 1, ", 1)
)

func given(text string) string {
	if strings.Contains(text, "uid: given") {
		return text
	}
	return strings.Replace(text, "metadata:\n", "metadata:\n  uid: given\n", 1)
}

func TestEdits(t *testing.T) {
	for name, steps := range map[string]func(n *node, first *pod.Desired){
		"in place": func(n *node, first *pod.Desired) {
			n.put("a", web2)
			n.is(first, 2)
			n.put("a", web3)
			n.is(first, 3)
			n.put("a", web1) // back where it was
			n.is(first, 4)
		},
		"in place while the agent is down": func(n *node, first *pod.Desired) {
			for i, text := range []string{web2, web3, web1} {
				n.restart()
				n.put("a", text)
				n.is(first, int64(2+i))
				n.restart()
				n.is(first, int64(2+i))
			}
		},
		"recreated, and back": func(n *node, first *pod.Desired) {
			n.put("a", otherWeb)
			second := n.isNew(first)
			if second.Replaces == "" || first.Replaces != "" {
				n.t.Errorf("replaces because of %q, the first because of %q", second.Replaces, first.Replaces)
			}
			if seen(second) == seen(first) {
				n.t.Error("the new pod was seen when the former was")
			}
			n.restart()
			n.is(second, 1)
			n.put("a", web1)
			if third := n.isNew(second); third.Base != first.Base {
				n.t.Errorf("base %s, want that of the same text, %s", third.Base, first.Base)
			}
		},
		"without a checkpoint": func(n *node, first *pod.Desired) {
			n.put("a", web2)
			n.is(first, 2)
			n.Keeper = newKeeper()
			n.put("a", web2)
			if d := n.isNew(first); d.Base != hash(d) {
				n.t.Errorf("base %s, want that of the text there is, %s", d.Base, hash(d))
			}
		},
		"in another order": func(n *node, first *pod.Desired) {
			n.put("a", db, web2)
			d := n.is(first, 2)
			n.put("a", web2, db)
			if n.web() != d {
				n.t.Error("another place in the manifest makes another version")
			}
			n.restart()
			n.put("a", cron, db, web3)
			n.is(first, 3)
		},
		"a bad text in between": func(n *node, first *pod.Desired) {
			n.put("a", sourcetest.Invalid("web"))
			n.is(first, 1)
			n.put("a", web2)
			second := n.is(first, 2)
			n.put("a", sourcetest.Broken)
			n.restart()
			n.put("a", "# nothing\n")
			n.is(second, 2)
			n.put("a", web3)
			n.is(second, 3)
		},
		"the same content": func(n *node, first *pod.Desired) {
			n.put("a", "# other words\n"+web1)
			if n.web() != first {
				n.t.Error("it is another pointer")
			}
			n.restart()
			n.put("a", web1)
			n.is(first, 1)
		},
		"what can't be taken back in place": func(n *node, first *pod.Desired) {
			n.put("a", plainWeb)
			plain := n.isNew(first)
			n.put("a", limitedWeb)
			n.is(plain, 2)
			n.put("a", plainWeb) // the content that the running pod was created from
			again := n.isNew(plain)
			if len(n.edits) != 1 || n.edits[0] != "a: spec.containers[0].resources.limits[cpu] was removed" {
				n.t.Errorf("edits %q", n.edits)
			}
			n.restart()
			n.put("a", plainWeb)
			n.is(again, 1)
		},
		"an ephemeral container": func(n *node, first *pod.Desired) {
			debugged := web1 + "  ephemeralContainers:\n  - {name: debug, image: debug:1, targetContainerName: main}\n"
			n.put("a", debugged)
			second := n.is(first, 2)
			if e := second.Pod.Spec.EphemeralContainers; len(e) != 1 || e[0].Name != "debug" {
				n.t.Errorf("ephemeral containers %v", e)
			}
			n.restart()
			n.put("a", debugged+"  - {name: shell, image: shell:1}\n")
			n.is(second, 3)
			n.put("a", web1)
			n.isNew(second)
		},
		"the name is taken": func(n *node, first *pod.Desired) {
			n.put("b", web2)
			n.is(first, 1)
			n.put("a", web3)
			second := n.is(first, 2)
			n.restart()
			n.Forget("a")
			if d := n.is(second, 3); d.Origin != "b" {
				n.t.Errorf("it is run from %s", d.Origin)
			}
			n.put("b", web1)
			n.is(second, 4)
		},
		"the name is taken, by another pod": func(n *node, first *pod.Desired) {
			n.put("b", otherWeb)
			n.put("c", otherWeb)
			n.is(first, 1)
			n.Forget("c") // nobody ran that
			n.is(first, 1)
			n.Forget("a")
			second := n.isNew(first)
			if len(n.edits) != 1 || n.edits[0] != "b: spec.containers[0].args[1] changed" {
				n.t.Errorf("edits %q", n.edits)
			}
			n.put("b", strings.Replace(otherWeb, "app:1", "app:2", 1))
			n.is(second, 2)
		},
		"a claim that can't take over in place": func(n *node, first *pod.Desired) {
			n.put("a", plainWeb)
			plain := n.isNew(first)
			n.put("b", plainWeb)
			n.put("a", limitedWeb)
			n.is(plain, 2)
			n.Forget("a")
			n.isNew(plain)
		},
		"moved": func(n *node, first *pod.Desired) {
			n.put("a", web2)
			second := n.is(first, 2)
			n.put("b", web2)
			n.Forget("a")
			if d := n.is(second, 2); hash(d) != hash(second) || d.Origin != "b" {
				n.t.Errorf("hash %s of %s", hash(d), d.Origin)
			}
		},
		"moved and edited while the agent is down": func(n *node, first *pod.Desired) {
			n.put("a", web2)
			n.restart()
			n.put("b", web3)
			n.Forget("a")
			n.is(first, 3)
			n.restart()
			n.is(first, 3)
		},
		"moved, looked at where it was first": func(n *node, first *pod.Desired) {
			n.put("a", web2, db)
			second := n.is(first, 2)
			n.put("a", db)
			n.put("b", web2, cron)
			n.is(second, 2)
			n.Forget("b")
			n.put("c", web3)
			n.is(second, 3)
		},
		"gone and back": func(n *node, first *pod.Desired) {
			n.put("a", web2)
			second := n.is(first, 2)
			n.put("a", db)
			if n.web() != nil {
				n.t.Error("it isn't gone")
			}
			n.put("a", web2)
			if d := n.isNew(first); seen(d) == seen(second) {
				n.t.Error("it was seen when its forerunner was")
			}
		},
		"in place and bad at once": func(n *node, first *pod.Desired) {
			n.put("a", web2, sourcetest.Invalid("db"))
			n.is(first, 2)
			n.put("b", web3)
			n.put("a", sourcetest.Broken)
			n.Forget("a")
			n.is(first, 3)
		},
	} {
		for uid, form := range map[string]func(string) string{"": func(s string) string { return s }, ", with a UID in the manifest": given} {
			t.Run(name+uid, func(t *testing.T) {
				n := newNode(t)
				n.form = form
				n.put("a", web1)
				steps(n, n.web())
			})
		}
	}
}

func TestGivenUID(t *testing.T) {
	n := newNode(t)
	n.put("a", web1)
	first := n.web()
	n.put("a", given(web1))
	second := n.isNew(first)
	n.put("a", given(otherWeb))
	n.isNew(second)
	n.put("a", web1)
	if third := n.isNew(second); third.Pod.UID != first.Pod.UID {
		t.Errorf("UID %s, want %s", third.Pod.UID, first.Pod.UID)
	}
}

// A checkpoint of the release before knew of no versions.
func TestRestoreOfFormat1(t *testing.T) {
	n := newNode(t)
	n.put("a", web1)
	first := n.web()
	old := n.Records()()[0]
	old.Base, old.Node = "", ""
	n.Keeper = newKeeper()
	if failed := n.Restore([]manifeststore.Record{old}, nil); len(failed) > 0 {
		t.Fatal(failed)
	}
	restored := n.web()
	if restored.Base != reader.Hash(old.Content, "node1") || seen(restored) != seen(first) {
		t.Errorf("restored with base %s, seen %s; want the content hash, %s, and %s", restored.Base, seen(restored), reader.Hash(old.Content, "node1"), seen(first))
	}
	n.put("a", web2)
	n.is(restored, 2)
}

// A kubelet that had the node meanwhile has made another pod of a changed text, which deckhand would have edited in
// place, or has: the kubelet's pod is what runs, so it is taken over.
func TestPodsThatAKubeletHasMade(t *testing.T) {
	for name, c := range map[string]struct {
		before, now string
		ran         func(old, uid string) []string
		same        bool
	}{
		"an edit":                             {web1, web2, func(_, uid string) []string { return []string{uid} }, false},
		"an edit that deckhand applied":       {web2, web2, func(_, uid string) []string { return []string{uid} }, false},
		"deckhand's pod runs":                 {web1, web2, func(old, _ string) []string { return []string{old} }, true},
		"both run, one is being stopped":      {web1, web2, func(old, uid string) []string { return []string{old, uid} }, true},
		"nothing runs":                        {web1, web2, func(string, string) []string { return nil }, true},
		"deckhand's pod runs, and its edit's": {web2, web2, func(old, uid string) []string { return []string{old, uid} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.put("a", web1)
			first := n.web()
			n.put("a", c.before)
			n.web()
			fresh := newNode(t)
			fresh.put("a", c.now)
			theirs := fresh.web()
			ran := map[string]bool{}
			for _, uid := range c.ran(first.Base, theirs.Base) {
				ran[uid] = true
			}
			records := n.Records()()
			n.Keeper = newKeeper()
			if failed := n.Restore(records, ran); len(failed) > 0 {
				t.Fatal(failed)
			}
			n.web() // as it was, before the manifest is read
			n.put("a", c.now)
			if c.same {
				if d := n.web(); d.Base != first.Base || d.Pod.Generation != 2 {
					t.Errorf("base %s, generation %d; want %s, 2", d.Base, d.Pod.Generation, first.Base)
				}
				return
			}
			d := n.web()
			if d.Base != theirs.Base || d.Pod.UID != theirs.Pod.UID || d.Pod.Generation != 1 || hash(d) != theirs.Base || len(n.edits) > 0 {
				t.Errorf("UID %s, generation %d, edits %q; want %s, and no edit", d.Pod.UID, d.Pod.Generation, n.edits, theirs.Pod.UID)
			}
			n.put("a", web3)
			n.is(d, 2)
		})
	}
}

func TestEditsAreReported(t *testing.T) {
	n := newNode(t)
	for _, step := range []struct{ text, want string }{
		{web1, "[]"},
		{web1 + "---\n" + db, "[]"},
		{web2, "[a: ]"},
		{otherWeb, "[a: spec.containers[0].args[1] changed]"},
		{sourcetest.Invalid("web"), "[]"},
		{sourcetest.Broken, "[]"},
		{otherWeb, "[]"},
	} {
		n.put("a", step.text)
		n.web()
		if fmt.Sprint(n.edits) != step.want {
			t.Errorf("edits %v, want %s, by\n%s", n.edits, step.want, step.text)
		}
	}
}

// Whatever is edited, moved, removed, spoiled and restarted: a pod that is run under the
// UID and base of the one before could be brought from there to here while it ran, and one
// that could be is.
func TestOneUIDAndBaseIsOnePod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNode(t)
		if rapid.Bool().Draw(t, "with a UID in the manifest") {
			n.form = given
		}
		r := sourcetest.NewReader(pod.SourceFile)
		var before *pod.Desired
		var text []byte
		origin := rapid.SampledFrom([]string{"a", "b"})
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for range rapid.IntRange(1, 2).Draw(t, "at once") {
				switch rapid.SampledFrom([]string{"put", "put", "put", "put", "forget", "restart", "spoil"}).Draw(t, "step") {
				case "put":
					n.put(origin.Draw(t, "origin"), rapid.SampledFrom([]string{web1, web2, plainWeb, limitedWeb, given(plainWeb)}).Draw(t, "text"))
				case "forget":
					n.Forget(origin.Draw(t, "origin"))
				case "spoil":
					n.put(origin.Draw(t, "origin"), sourcetest.Broken)
				case "restart":
					n.restart()
				}
			}
			now := n.web()
			var canonical []byte
			for _, record := range n.Records()() {
				if now != nil && record.Origin == now.Origin {
					canonical = record.Content
				}
			}
			if before != nil && now != nil {
				ok, why := r.InPlace(text, canonical)
				same := now.Pod.UID == before.Pod.UID && now.Base == before.Base
				generation := int64(1)
				if ok {
					generation = before.Pod.Generation
				}
				if ok && hash(now) != hash(before) {
					generation++
				}
				if ok != same || same && now.Pod.Generation != generation {
					t.Fatalf("in place %v (%s), the same pod %v; generation %d after %d", ok, why, same, now.Pod.Generation, before.Pod.Generation)
				}
			}
			before, text = now, canonical
		}
	})
}

// A version of a pod is made and validated once: when its text comes, not again when it turns out to be an edit.
func TestAVersionIsCompletedOnce(t *testing.T) {
	rules, validated := sourcetest.Rules(), 0
	validate := rules.Validate
	rules.Validate = func(p *v1.Pod) field.ErrorList { validated++; return validate(p) }
	n := newNode(t)
	n.Keeper = manifeststore.New(reader.New(sourcetest.Node, pod.SourceFile, rules))
	n.put("a", web1)
	first := n.web()
	for i, text := range []string{web2, otherWeb, web3} {
		n.put("a", text)
		if second := n.web(); second == first || validated != 2+i {
			t.Errorf("validated %d times for %d versions", validated, 2+i)
		}
	}
	n.Forget("a")
	n.put("b", web3) // moved: the same pod of another origin
	if n.web(); validated != 5 {
		t.Errorf("validated %d times, want once more for the text that was moved", validated)
	}
}

// A disk that was copied to another node brings its checkpoints along.
func TestAnotherNodeHasOtherUIDs(t *testing.T) {
	n := newNode(t)
	n.put("a", web1)
	n.web()
	n.put("a", web2)
	before := n.web()
	records := n.Records()()
	n.Keeper = manifeststore.New(reader.New("node2", pod.SourceFile, sourcetest.Rules()))
	if failed := n.Restore(records, nil); len(failed) > 0 {
		t.Fatal(failed)
	}
	if after := n.Report().Claims[0].Desired; after.Pod.UID == before.Pod.UID || after.Pod.Generation != 1 || after.Pod.Name != "web-node2" {
		t.Errorf("UID %s and generation %d of %s", after.Pod.UID, after.Pod.Generation, after.Pod.Name)
	}
}
