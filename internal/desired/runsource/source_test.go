package runsource_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/runsource"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func isTaken(err error) bool { return strings.Contains(err.Error(), "is already run from") }

func newSource() (*runsource.Source, *sourcetest.Recorder) {
	sink := sourcetest.NewRecorder()
	return runsource.New(sourcetest.NewReader(pod.SourceRun), sink, nil, logr.Discard()), sink
}

func TestAllOrNothing(t *testing.T) {
	s, sink := newSource()
	_, err := s.Add("x.yaml", []byte(sourcetest.Manifest("web", "app:1")+"---\n"+sourcetest.Invalid("db")+"---\n"+sourcetest.Manifest("web", "app:2")))
	if err == nil {
		t.Fatal("a manifest with a bad document was added")
	}
	for _, want := range []string{"x.yaml can't be run", "document 2: ", "spec.containers[0].image", "document 3: pod default/web has the same name as document 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't say %q", err, want)
		}
	}
	if got := sink.All(); len(got) != 0 {
		t.Errorf("a refused manifest led to reports: %v", got)
	}
}

func TestNothingToRun(t *testing.T) {
	s, _ := newSource()
	for _, text := range []string{"", "# nothing\n", `{"apiVersion": "v1", "kind": "List", "items": []}`} {
		if _, err := s.Add("x.yaml", []byte(text)); err == nil {
			t.Errorf("%q was added", text)
		}
	}
}

func TestAdditionsAreApart(t *testing.T) {
	s, sink := newSource()
	first, err := s.Add("a.yaml", []byte(sourcetest.Manifest("web", "app:1")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add("b.yaml", []byte(sourcetest.Manifest("web", "app:2"))); err == nil || !isTaken(err) || !strings.Contains(err.Error(), "a.yaml") {
		t.Errorf("error %v doesn't say that a.yaml has the name", err)
	}
	second, err := s.Add("b.yaml", []byte(sourcetest.Manifest("db", "app:2")))
	if err != nil {
		t.Fatal(err)
	}
	check := func(want ...string) {
		t.Helper()
		last, _ := sink.Last()
		if got := sourcetest.Pods(last); !slices.Equal(got, want) {
			t.Errorf("pods %q, want %q", got, want)
		}
	}
	check("db-node1=app:2", "web-node1=app:1")
	first.Remove()
	check("db-node1=app:2")
	reports := len(sink.All())
	first.Remove()
	if got := len(sink.All()); got != reports {
		t.Error("removing again is reported again")
	}
	second.Remove()
	check()
}

// A pod that a file has already, stopped or not, isn't taken over; one that a file turns out to have had is lost.
func TestFileKeepsItsName(t *testing.T) {
	m := desired.New(logr.Discard(), pod.SourceFile, pod.SourceRun)
	s := runsource.New(sourcetest.NewReader(pod.SourceRun), m, m.Current, logr.Discard())
	file := runsource.New(sourcetest.NewReader(pod.SourceFile), m, nil, logr.Discard())
	held, err := file.Add("/etc/pods/web.yaml", []byte(sourcetest.Manifest("web", "app:1")))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		if _, err := s.Add("web.yaml", []byte(sourcetest.Manifest("db", "app:1")+"---\n"+sourcetest.Manifest("web", "app:1"))); err == nil || !strings.Contains(err.Error(), "pod default/web-node1 is already run from /etc/pods/web.yaml") {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("it runs")
	if set := m.Current(); len(set.Pods) != 1 || set.Pods[0] != held.Pods[0] || len(set.Problems) != 0 {
		t.Errorf("pods %v and problems %v, want the file's pod alone", set.Pods, set.Problems)
	}
	stops := desired.NewStops(filepath.Join(t.TempDir(), "stopped.json"), m, nil, nil)
	if err := stops.Stop(false, types.NamespacedName{Namespace: "default", Name: "web-node1"}); err != nil {
		t.Fatal(err)
	}
	refused("it is stopped")

	held.Remove()
	asked, err := s.Add("web.yaml", []byte(sourcetest.Manifest("web", "app:1")))
	if err != nil || asked.Lost() != nil {
		t.Fatal(err, asked.Lost())
	}
	m.Report(desired.Report{Source: pod.SourceFile, Claims: []desired.Claim{{Desired: held.Pods[0], Since: time.Now().Add(-time.Hour)}}})
	if err := asked.Lost(); err == nil || !isTaken(err) {
		t.Errorf("the loss isn't told: %v", err)
	}
}

func TestObjectsComeWithTheirPods(t *testing.T) {
	s, sink := newSource()
	if _, err := s.Add("c.yaml", []byte(sourcetest.ConfigMap("settings", "a"))); err == nil || !strings.Contains(err.Error(), "it holds no pod") {
		t.Errorf("objects alone are run: error %v", err)
	}
	web := sourcetest.Manifest("web", "app:1") + "---\n" + sourcetest.ConfigMap("settings", "a") + "---\n" + sourcetest.Secret("token", "x")
	a, err := s.Add("a.yaml", []byte(web))
	if err != nil || len(a.Pods) != 1 || len(a.Objects) != 2 {
		t.Fatalf("addition %+v, error %v", a, err)
	}
	sink.Wait(t, "the objects", sourcetest.HasObjects("settings=a", "token=x"))
	db := sourcetest.Manifest("db", "app:1") + "---\n" + sourcetest.ConfigMap("settings", "b")
	if _, err := s.Add("b.yaml", []byte(db)); err == nil || !strings.Contains(err.Error(), "ConfigMap default/settings is already defined by a.yaml") {
		t.Errorf("error %v doesn't say that a.yaml defines the object", err)
	}
	a.Remove()
	sink.Wait(t, "no objects", sourcetest.HasObjects())
	if _, err := s.Add("b.yaml", []byte(db)); err != nil {
		t.Error(err)
	}
}

func TestErrorsOfObjects(t *testing.T) {
	s, _ := newSource()
	_, err := s.Add("x.yaml", []byte(sourcetest.Manifest("web", "app:1")+"---\n"+sourcetest.Secret("A", "hunter2")+"---\n"+
		strings.Replace(sourcetest.Secret("b", "hunter2"), `"hunter2"`, "5551234", 1)+"---\n"+sourcetest.ConfigMap("c", "a")+"---\n"+sourcetest.ConfigMap("c", "b")))
	if err == nil {
		t.Fatal("a manifest with bad documents was added")
	}
	for _, want := range []string{"document 2: line ", "metadata.name", "document 3: line ", "stringData[key]", "document 5: ConfigMap default/c has the same name as document 4"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q doesn't say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "5551234") {
		t.Errorf("the error shows a Secret: %v", err)
	}
}
