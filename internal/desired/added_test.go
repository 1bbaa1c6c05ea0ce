package desired

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// runningPod is a claim to a pod with a container main, which was first seen then.
func runningPod(name, uid, seen string, generation int64) Claim {
	c := claim(pod.SourceFile, name, name, uid, 1)
	p := c.Desired.Pod
	p.Generation, p.Annotations = generation, map[string]string{pod.AnnotationConfigSeen: seen}
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "app:1"}}
	spec.SetDefaults(p)
	c.Desired.Base = uid
	return c
}

func debugger(name string) v1.EphemeralContainer {
	c := v1.EphemeralContainer{}
	c.Name, c.Image = name, "tools:1"
	return c
}

// adding is a merger with what adds containers to its pods, as after the start of an agent. The node doesn't admit "forbidden".
func adding(t *testing.T, path string, claims ...Claim) (*Merger, *Additions) {
	t.Helper()
	m := New(logr.Discard(), pod.SourceFile)
	a := NewAdditions(path, m, AdditionRules{SetDefaults: spec.SetDefaults, Validate: spec.Validate, Refuses: func(p *v1.Pod) *pod.Failure {
		if pod.ContainerNamed(p, "forbidden") != nil {
			return &pod.Failure{Reason: "Forbidden", Rejected: true}
		}
		return nil
	}, Unsupported: func(p *v1.Pod, c *v1.Container) *pod.Failure {
		if c.Name == "unsupported" && pod.ContainerNamed(p, c.Name) != nil {
			return &pod.Failure{Reason: pod.ReasonFailedMount, Permanent: true}
		}
		return nil
	}})
	if err := a.Restore(); err != nil {
		t.Fatal(err)
	}
	m.Report(reportOf(pod.SourceFile, claims...))
	return m, a
}

// has fails the test unless the pod of this UID has the generation and, in this order, the ephemeral containers.
func has(t *testing.T, m *Merger, uid types.UID, generation int64, names ...string) *pod.Desired {
	t.Helper()
	d := m.Current().Get(uid)
	if d == nil {
		t.Fatalf("there is no pod %s", uid)
	}
	var got []string
	for i := range d.Pod.Spec.EphemeralContainers {
		got = append(got, d.Pod.Spec.EphemeralContainers[i].Name)
	}
	if strings.Join(got, " ") != strings.Join(names, " ") || d.Pod.Generation != generation {
		t.Errorf("generation %d of pod %s has the ephemeral containers %q, want generation %d and %q", d.Pod.Generation, uid, got, generation, names)
	}
	return d
}

// TestAddedContainersOutliveTheAgent: each is an edit of the pod, and the next agent has them before a source reports.
func TestAddedContainersOutliveTheAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "added.json")
	claims := []Claim{runningPod("web", "1", "then", 3), runningPod("db", "2", "then", 1)}
	m, a := adding(t, path, claims...)
	changed, end := m.Subscribe()
	defer end()
	for _, name := range []string{"one", "two"} {
		if err := a.Add("1", debugger(name)); err != nil {
			t.Fatal(err)
		}
		<-changed
	}
	d := has(t, m, "1", 5, "one", "two")
	if c := d.Pod.Spec.EphemeralContainers[0]; c.ImagePullPolicy != v1.PullIfNotPresent || c.TerminationMessagePath == "" {
		t.Errorf("it has no defaults: %+v", c)
	}
	if has(t, m, "2", 1) != claims[1].Desired {
		t.Error("the pod beside it is another one")
	}
	if len(claims[0].Desired.Pod.Spec.EphemeralContainers) > 0 {
		t.Error("the source's pod was changed")
	}
	m.Report(reportOf(pod.SourceFile, claims...))
	if m.Current().Get("1") != d {
		t.Error("a report without a change makes another pod of it")
	}

	m, _ = adding(t, path, claims...)
	has(t, m, "1", 5, "one", "two")
	// An edit of the manifest is one more generation. Where it takes a name, it counts.
	edited := runningPod("web", "1", "then", 4)
	own := debugger("two")
	own.Image = "other:1"
	edited.Desired.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{own}
	m.Report(reportOf(pod.SourceFile, edited, claims[1]))
	if d := has(t, m, "1", 6, "two", "one"); d.Pod.Spec.EphemeralContainers[0].Image != "other:1" {
		t.Error("an added container replaces the manifest's")
	}
}

// TestAddedContainersGoWithTheirPod: whatever becomes of its UID, and also if the agent is killed before the file says so.
func TestAddedContainersGoWithTheirPod(t *testing.T) {
	web, db := runningPod("web", "1", "then", 1), runningPod("db", "2", "then", 1)
	other := runningPod("web", "1", "then", 1)
	other.Desired.Base = "another text"
	for name, away := range map[string]func(*Merger, *Additions){
		"removed": func(m *Merger, _ *Additions) { m.Report(reportOf(pod.SourceFile, db)) },
		"stopped": func(m *Merger, a *Additions) {
			stops := NewStops(filepath.Join(t.TempDir(), "stopped.json"), m, a.Forget, nil)
			if err := stops.Stop(false, named("web")); err != nil {
				t.Fatal(err)
			}
			if list := m.Current().Stopped; len(list) != 1 || pod.ContainerNamed(list[0].Pod, "one") == nil {
				t.Errorf("what is stopped hasn't what was added: %v", list)
			}
			if err := stops.Start(named("web")); err != nil {
				t.Fatal(err)
			}
		},
		"seen again": func(m *Merger, _ *Additions) {
			m.Report(reportOf(pod.SourceFile, db, runningPod("web", "1", "now", 1)))
		},
		"another text": func(m *Merger, _ *Additions) { m.Report(reportOf(pod.SourceFile, db, other)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "added.json")
			m, a := adding(t, path, web, db)
			for _, uid := range []types.UID{"1", "2"} {
				if err := a.Add(uid, debugger("one")); err != nil {
					t.Fatal(err)
				}
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			away(m, a)
			has(t, m, "2", 2, "one")
			if err := a.Tidy(); err != nil {
				t.Fatal(err)
			}
			if after, err := os.ReadFile(path); err != nil || strings.Count(string(before), `"uid"`) != 2 || strings.Count(string(after), `"uid"`) != 1 {
				t.Errorf("the file says %s, before it said %s; %v", after, before, err)
			}
			m.Report(reportOf(pod.SourceFile, web, db))
			has(t, m, "1", 1)
			has(t, m, "2", 2, "one")
			m, _ = adding(t, path, web, db)
			has(t, m, "1", 1)
			has(t, m, "2", 2, "one")
		})
	}
}

// TestPodsKeepWhatWasAddedUntilAllSourcesHaveReported: as they are kept themselves.
func TestPodsKeepWhatWasAddedUntilAllSourcesHaveReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "added.json")
	web := runningPod("web", "1", "then", 1)
	_, a := adding(t, path, web)
	if err := a.Add("1", debugger("one")); err != nil {
		t.Fatal(err)
	}
	m := New(logr.Discard(), pod.SourceFile, pod.SourceHTTP)
	a = NewAdditions(path, m, AdditionRules{})
	if err := a.Restore(); err != nil {
		t.Fatal(err)
	}
	m.Report(Report{Source: pod.SourceHTTP})
	m.Report(reportOf(pod.SourceFile, web))
	has(t, m, "1", 2, "one")
}

func TestWhatIsNotAdded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "added.json")
	m, a := adding(t, path, runningPod("web", "1", "then", 1))
	ported, targeted, unnamed := debugger("ported"), debugger("targeted"), debugger("")
	ported.Ports = []v1.ContainerPort{{ContainerPort: 80}}
	targeted.TargetContainerName = "none"
	imageless := debugger("imageless")
	imageless.Image = ""
	for _, c := range []struct {
		container v1.EphemeralContainer
		words     string
	}{
		{debugger("main"), "spec.ephemeralContainers[0].name: Duplicate value"},
		{ported, "spec.ephemeralContainers[0].ports"},
		{targeted, "spec.ephemeralContainers[0].targetContainerName"},
		{unnamed, "spec.ephemeralContainers[0].name: Required value"},
		{imageless, "spec.ephemeralContainers[0].image: Required value"},
	} {
		err := a.Add("1", c.container)
		if invalid := (*InvalidError)(nil); !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v, want %s", c.container.Name, err, c.words)
		}
	}
	for _, name := range []string{"forbidden", "unsupported"} {
		if refused := (*pod.Failure)(nil); !errors.As(a.Add("1", debugger(name)), &refused) {
			t.Errorf("the node takes a container that it doesn't admit in a pod, or can't start: %s", name)
		}
	}
	if err := a.Add("none", debugger("one")); !errors.Is(err, ErrNotWanted) {
		t.Errorf("a pod that isn't there: %v", err)
	}
	has(t, m, "1", 1)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
	// What the node wouldn't admit today, and runs, keeps nothing from it.
	forbidden := runningPod("web", "1", "then", 1)
	forbidden.Desired.Pod.Spec.Containers[0].Name = "forbidden"
	m.Report(reportOf(pod.SourceFile, forbidden))
	if err := a.Add("1", debugger("one")); err != nil {
		t.Error(err)
	}
	if err := a.Add("1", debugger("one")); err != nil {
		t.Errorf("the same once more: %v", err)
	}
	other := debugger("one")
	other.Image = "other:1"
	if err := a.Add("1", other); err == nil {
		t.Error("two have one name")
	}
	has(t, m, "1", 2, "one")
}

// TestWhatCannotBeKeptIsNotAdded: a container that the next agent wouldn't know isn't started.
func TestWhatCannotBeKeptIsNotAdded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := New(logr.Discard(), pod.SourceFile)
	m.Report(reportOf(pod.SourceFile, runningPod("web", "1", "then", 1)))
	a := NewAdditions(filepath.Join(file, "added.json"), m, AdditionRules{SetDefaults: spec.SetDefaults, Validate: spec.Validate, Refuses: func(*v1.Pod) *pod.Failure { return nil },
		Unsupported: func(*v1.Pod, *v1.Container) *pod.Failure { return nil }})
	if err := a.Add("1", debugger("one")); err == nil {
		t.Error("a container that isn't on disk is added")
	}
	has(t, m, "1", 1)
}

func TestADamagedFileAddsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "added.json")
	if err := os.WriteFile(path, []byte(`{"version":1,"sum":"x","data":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	a := NewAdditions(path, New(logr.Discard()), AdditionRules{})
	if err := a.Restore(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path + ".corrupt"); err != nil {
		t.Error(err)
	}
	if err := a.Restore(); err != nil {
		t.Errorf("the next agent fails, too: %v", err)
	}
}
