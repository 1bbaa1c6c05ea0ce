package reader_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

func TestBlankTextWantsNothing(t *testing.T) {
	r := sourcetest.NewReader(pod.SourceFile)
	for text, blank := range map[string]bool{
		"": true, "\n \t\n": true, "# only\n---\n  # comments\n...\n": true, "\ufeff": true,
		`{"apiVersion": "v1", "kind": "List", "items": []}`: false, sourcetest.Manifest("web", "app:1"): false, "\x00\x00": false,
	} {
		if _, err := r.Read([]byte(text)); errors.Is(err, reader.ErrBlank) != blank {
			t.Errorf("%q: error %v, want ErrBlank: %v", text, err, blank)
		}
	}
}

func TestEveryErrorIsReportedWithItsLine(t *testing.T) {
	text := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  uid: ../..\nspec:\n  containers:\n  - name: a\n  - name: b\n"
	r := sourcetest.NewReader(pod.SourceFile)
	docs, err := r.Read([]byte(text))
	if err != nil || len(docs) != 1 || len(docs[0].Errors) != 0 {
		t.Fatalf("documents %+v, error %v", docs, err)
	}
	_, wrong := r.Complete(docs[0], reader.First(docs[0].Hash, time.Now()))
	want := []string{"line 5: metadata.uid: ", "line 8: spec.containers[0].image: Required", "line 9: spec.containers[1].image: Required"}
	if len(wrong) != len(want) {
		t.Fatalf("errors %q, want %q", wrong, want)
	}
	for i := range want {
		if !strings.HasPrefix(wrong[i], want[i]) {
			t.Errorf("error %q, want %q...", wrong[i], want[i])
		}
	}
}

// A text from elsewhere can be wrong in half a million places, and to find the line of each
// takes as many steps as there are lines: the errors that are reported are few, whatever it says.
func TestFewOfManyErrorsAreReported(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  no key %03d: x\n", i)
	}
	r := sourcetest.NewReader(pod.SourceFile)
	docs, err := r.Read([]byte(text.String()))
	if err != nil || len(docs) != 1 || len(docs[0].Errors) > 0 {
		t.Fatalf("documents %+v, error %v", docs, err)
	}
	_, wrong := r.CompleteObject(docs[0], time.Now())
	if n := len(wrong); n != 101 || !strings.HasPrefix(wrong[0], "line 5: data[no key 000]: ") || !strings.Contains(wrong[100], "(900 fields)") {
		t.Errorf("%d errors, from %q to %q", n, wrong[0], wrong[n-1])
	}
}

// An unknown field makes a document bad, and doesn't hide that it is invalid too.
func TestDecodingAndValidationErrorsTogether(t *testing.T) {
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  restartPolicyy: Never\n  containers:\n  - name: a\n"
	docs, err := sourcetest.NewReader(pod.SourceFile).Read([]byte(text))
	if err != nil || len(docs) != 1 {
		t.Fatalf("documents %+v, error %v", docs, err)
	}
	all := strings.Join(docs[0].Errors, "\n")
	if !strings.Contains(all, "restartPolicyy") || !strings.Contains(all, "spec.containers[0].image") || docs[0].Name != "default/web" {
		t.Errorf("errors %q of %q", all, docs[0].Name)
	}
}

// The content hash is made before defaults are filled in, and
// validation sees the pod as it will be.
// A name that the API takes may be too long for the directory that is named after the pod.
func TestLongNames(t *testing.T) {
	r := sourcetest.NewReader(pod.SourceFile) // on node1
	const most = 255 - len("default_") - len("-node1_") - 32
	for name, wrong := range map[string]string{
		strings.Repeat("a", most):   "",
		strings.Repeat("a", most+1): "line 4: metadata.name: Invalid value: \"" + strings.Repeat("a", most+1) + "-node1\": must be shorter by 1: with the node's name",
		strings.Repeat("a", 248):    "must be no more than 253 characters",
	} {
		docs, err := r.Read([]byte("apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec: {containers: [{name: c, image: app:1}]}\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, got := r.Complete(docs[0], reader.First(docs[0].Hash, time.Unix(0, 0)))
		if (wrong == "") != (p != nil) || !strings.Contains(strings.Join(got, "\n"), wrong) {
			t.Errorf("%d letters: %q, want %q", len(name), got, wrong)
		}
	}
}

func TestOrderOfSteps(t *testing.T) {
	var steps []string
	rules := func(version string) reader.Rules {
		return reader.Rules{
			SetDefaults: func(p *v1.Pod) {
				steps = append(steps, "defaults "+p.Name)
				p.Spec.SchedulerName = version
			},
			Validate: func(p *v1.Pod) field.ErrorList {
				steps = append(steps, "validation "+p.Name+" "+p.Spec.SchedulerName+" "+string(p.UID[:4]))
				return nil
			},
		}
	}
	complete := func(version string) *v1.Pod {
		r := reader.New("n", pod.SourceFile, rules(version))
		docs, err := r.Read([]byte(sourcetest.Manifest("web", "app:1")))
		if err != nil {
			t.Fatal(err)
		}
		p, wrong := r.Complete(docs[0], reader.First(docs[0].Hash, time.Unix(0, 0)))
		if p == nil || string(p.UID) != docs[0].Hash {
			t.Fatalf("pod %v, errors %q", p, wrong)
		}
		return p
	}
	first, second := complete("v1"), complete("v2")
	if first.UID != second.UID {
		t.Error("other defaults gave another UID")
	}
	u := string(first.UID[:4])
	want := []string{"defaults web", "validation web-n v1 " + u, "defaults web", "validation web-n v2 " + u}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
}

func TestRestore(t *testing.T) {
	r := sourcetest.NewReader(pod.SourceFile)
	docs, err := r.Read([]byte(sourcetest.Manifest("web", "app:1")))
	if err != nil {
		t.Fatal(err)
	}
	back, err := r.Restore(docs[0].Canonical)
	if err != nil || back.Hash != docs[0].Hash || back.Name != "default/web" {
		t.Errorf("restored %+v (%v), want %+v", back, err, docs[0])
	}
	if _, err := r.Restore([]byte("{")); err == nil {
		t.Error("half a pod was restored")
	}
}

// TestRulesOfACluster: a reader may refuse what is valid elsewhere, and apply no edits in place.
func TestRulesOfACluster(t *testing.T) {
	rules := sourcetest.Rules()
	rules.Refuse, rules.Recreate = spec.APIReferences, "here"
	r := reader.New("n", pod.SourceFile, rules)
	docs, err := r.Read([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  serviceAccountName: robot\n  containers: [{name: c, image: i}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "line 5: spec.serviceAccountName: Forbidden: static pods of a cluster can't refer to a ServiceAccount (feature gate PreventStaticPodAPIReferences)"
	if got := docs[0].Errors; len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
	var canonical [][]byte
	for _, image := range []string{"app:1", "app:2"} {
		docs, err := r.Read([]byte(sourcetest.Manifest("web", image)))
		if err != nil || len(docs[0].Errors) > 0 {
			t.Fatal(err, docs[0].Errors)
		}
		canonical = append(canonical, docs[0].Canonical)
	}
	if ok, why := r.InPlace(canonical[0], canonical[1]); ok || why != "here" {
		t.Errorf("in place %v: %s", ok, why)
	}
}
