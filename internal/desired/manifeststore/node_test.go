package manifeststore_test

import (
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Error(args ...any)
	Fatalf(format string, args ...any)
}

// node is an agent's file source, as far as which version of which pod "web" is is
// concerned. Each step is a minute.
type node struct {
	*manifeststore.Keeper
	t   tester
	now time.Time
	// edits are those of the last report, as "origin: why".
	edits []string
	// form is done to each manifest of "web".
	form func(string) string
}

func newNode(t tester) *node {
	return &node{Keeper: newKeeper(), t: t, now: start, form: func(s string) string { return s }}
}

func (n *node) put(origin string, texts ...string) {
	n.now = n.now.Add(time.Minute)
	for i, text := range texts {
		if strings.Contains(text, "name: web\n") {
			texts[i] = n.form(text)
		}
	}
	n.Accept(origin, docs(texts...), n.now)
}

// restart starts another agent that knows what the first has written.
func (n *node) restart() {
	n.Report()
	records := n.Records()()
	n.Keeper = newKeeper()
	if failed := n.Restore(records, nil); len(failed) > 0 {
		n.t.Fatalf("restoring: %v", failed)
	}
}

// web is the pod "web" that is run. Everything is reported for that.
func (n *node) web() *pod.Desired {
	n.t.Helper()
	m := desired.New(logr.Discard(), pod.SourceFile)
	r := n.Report()
	m.Report(r)
	n.edits = nil
	for _, e := range r.Edits {
		n.edits = append(n.edits, e.New.Origin+": "+e.Why)
	}
	for _, d := range m.Current().Pods {
		if d.Pod.Name == "web-node1" {
			if d.Pod.UID == "" || d.Pod.UID != "given" && string(d.Pod.UID) != d.Base {
				n.t.Errorf("UID %q with base %q", d.Pod.UID, d.Base)
			}
			return d
		}
	}
	return nil
}

// is checks that the pod is of the same making as before, in its generation-th version.
func (n *node) is(before *pod.Desired, generation int64) *pod.Desired {
	n.t.Helper()
	d := n.web()
	if d.Pod.UID != before.Pod.UID || d.Base != before.Base || seen(d) != seen(before) {
		n.t.Errorf("it is another pod: UID %s, base %s, seen %s; want %s, %s, %s", d.Pod.UID, d.Base, seen(d), before.Pod.UID, before.Base, seen(before))
	}
	if d.Pod.Generation != generation {
		n.t.Errorf("its generation is %d, want %d", d.Pod.Generation, generation)
	}
	if generation == before.Pod.Generation+1 && hash(d) == hash(before) {
		n.t.Errorf("its hash is %s in two versions", hash(d))
	}
	return d
}

// isNew checks that it is another pod than before.
func (n *node) isNew(before *pod.Desired) *pod.Desired {
	n.t.Helper()
	d := n.web()
	if d.Base == before.Base || d.Pod.UID == before.Pod.UID && d.Pod.UID != "given" || d.Pod.Generation != 1 {
		n.t.Errorf("UID %s, base %s, generation %d aren't those of a new pod after UID %s, base %s", d.Pod.UID, d.Base, d.Pod.Generation, before.Pod.UID, before.Base)
	}
	return d
}

func seen(d *pod.Desired) string { return d.Pod.Annotations[pod.AnnotationConfigSeen] }
func hash(d *pod.Desired) string { return d.Pod.Annotations[pod.AnnotationConfigHash] }
