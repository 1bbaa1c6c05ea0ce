package desired

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func claim(source pod.Source, origin, name, uid string, second int) Claim {
	return Claim{
		Desired: &pod.Desired{
			Pod:    &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}},
			Source: source,
			Origin: origin,
		},
		Document: 1,
		Since:    time.Unix(int64(second), 0),
	}
}

func reportOf(source pod.Source, claims ...Claim) Report {
	return Report{Source: source, Claims: claims}
}

func names(s *Set) string {
	var out []string
	for _, p := range s.Pods {
		out = append(out, p.Pod.Name+"@"+p.Origin)
	}
	return strings.Join(out, " ")
}

func TestSyncedOnceAllHaveReported(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile, pod.SourceHTTP)
	steps := []struct {
		report         Report
		synced, listed bool
	}{
		{reportOf(pod.SourceFile), false, false},
		{Report{Source: pod.SourceHTTP, Pending: true}, false, false},
		{Report{Source: pod.SourceHTTP, Pending: true, Away: true, Problems: []pod.Problem{{Message: "no answer"}}}, false, true},
		{reportOf(pod.SourceHTTP), true, true},
	}
	if m.Current().Synced || m.Current().Listed {
		t.Error("synced before any report")
	}
	for i, step := range steps {
		m.Report(step.report)
		if got := m.Current().Synced; got != step.synced {
			t.Errorf("after report %d synced is %v, want %v", i, got, step.synced)
		}
		if got := m.Current().Listed; got != step.listed {
			t.Errorf("after report %d listed is %v, want %v", i, got, step.listed)
		}
	}
	if !New(logr.Discard()).Current().Synced {
		t.Error("without any source there is nothing to wait for")
	}
}

func TestTheFirstKeepsTheName(t *testing.T) {
	a := claim(pod.SourceFile, "a", "web", "1", 20)
	z := claim(pod.SourceFile, "z", "web", "2", 10)
	h := claim(pod.SourceHTTP, "h", "web", "3", 10)
	order := []pod.Source{pod.SourceFile, pod.SourceHTTP}
	tests := map[string]struct {
		claims   []Claim
		want     string
		problems int
	}{
		"the earlier":                      {[]Claim{a, z}, "web@z", 1},
		"of the same time, by source":      {[]Claim{a, h, z}, "web@z", 2},
		"of the same time, by origin":      {[]Claim{claim(pod.SourceFile, "b", "web", "4", 10), z}, "web@b", 1},
		"when the first is gone, the next": {[]Claim{a}, "web@a", 0},
		"one that isn't a leftover":        {[]Claim{claim(pod.SourceFile, "web.bak", "web", "5", 5), claim(pod.SourceFile, "web.yaml.dpkg-dist", "web", "6", 5), z}, "web@z", 2},
		"of leftovers, the earlier":        {[]Claim{claim(pod.SourceFile, "web.orig", "web", "5", 5), claim(pod.SourceFile, "web.bak", "web", "6", 6)}, "web@web.orig", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reports := map[pod.Source]Report{}
			for _, c := range test.claims {
				r := reports[c.Desired.Source]
				r.Claims = append(r.Claims, c)
				reports[c.Desired.Source] = r
			}
			set := merge(order, reports, holds{}, nil, nil)
			if names(set) != test.want || len(set.Problems) != test.problems {
				t.Errorf("pods %q, problems %v; want %q and %d problems", names(set), set.Problems, test.want, test.problems)
			}
			for _, p := range set.Problems {
				if p.Pod != "default/web" || !strings.Contains(p.Message, "which stays") || p.Since.IsZero() {
					t.Errorf("problem %+v doesn't say enough", p)
				}
				if strings.Contains(p.Message, "looks like a leftover") != (leftover(p.Origin) != "") {
					t.Errorf("%s: %s", p.Origin, p.Message)
				}
			}
		})
	}
}

func TestOneUIDOnce(t *testing.T) {
	set := merge([]pod.Source{pod.SourceFile}, map[pod.Source]Report{pod.SourceFile: reportOf(pod.SourceFile,
		claim(pod.SourceFile, "a", "web", "1", 1), claim(pod.SourceFile, "b", "db", "1", 2))}, holds{}, nil, nil)
	if names(set) != "web@a" || len(set.Problems) != 1 || !strings.Contains(set.Problems[0].Message, "metadata.uid") {
		t.Errorf("pods %q, problems %v", names(set), set.Problems)
	}
}

func TestSubscribersAreWokenOncePerChange(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile)
	changed, stop := m.Subscribe()
	woken := func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	c := claim(pod.SourceFile, "a", "web", "1", 1)
	m.Report(reportOf(pod.SourceFile, c))
	m.Report(reportOf(pod.SourceFile, c, claim(pod.SourceFile, "b", "db", "2", 1)))
	if !woken() || woken() {
		t.Error("two changes should be merged into one wake-up")
	}
	before := m.Current()
	m.Report(reportOf(pod.SourceFile, c, Claim{Desired: before.Pods[0], Document: 1, Since: time.Unix(1, 0)}))
	if woken() || m.Current() != before {
		t.Error("a report that says the same changed the set")
	}
	edited := claim(pod.SourceFile, "a", "web", "1", 1) // other content, the same UID
	m.Report(reportOf(pod.SourceFile, edited))
	if !woken() || m.Current().Get("1") != edited.Desired {
		t.Error("an edit in place wakes nobody")
	}
	stop()
	stop()
	m.Report(reportOf(pod.SourceFile))
	if woken() {
		t.Error("woken after the subscription had ended")
	}
}

func TestUnknownSourceIsIgnored(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile)
	m.Report(reportOf(pod.SourceRun, claim(pod.SourceRun, "a", "web", "1", 1)))
	if len(m.Current().Pods) != 0 {
		t.Error("a pod of a source that isn't configured is wanted")
	}
}

func TestProblemsAreLoggedOnce(t *testing.T) {
	var lines []string
	m := New(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}), pod.SourceFile)
	r := Report{Source: pod.SourceFile, Problems: []pod.Problem{{Source: pod.SourceFile, Origin: "a", Message: "bad"}}}
	m.Report(r)
	r.Claims = []Claim{claim(pod.SourceFile, "b", "web", "1", 1)}
	m.Report(r)
	if len(lines) != 1 || !strings.Contains(lines[0], `"bad"`) {
		t.Errorf("logged %q, want one line", lines)
	}
}

func TestEditsAreLogged(t *testing.T) {
	var lines []string
	m := New(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 2}), pod.SourceFile)
	r := reportOf(pod.SourceFile, claim(pod.SourceFile, "a", "web", "1", 1), claim(pod.SourceFile, "b", "db", "2", 1))
	r.Edits = []Edit{{New: r.Claims[0].Desired}, {New: r.Claims[1].Desired, Why: "spec.os was added"}}
	m.Report(Report{Source: pod.SourceFile})
	lines = nil
	m.Report(r)
	if len(lines) != 2 || !strings.Contains(lines[0], "in place") || !strings.Contains(lines[0], `"name"="web" "namespace"="default"`) ||
		!strings.Contains(lines[1], "recreated") || !strings.Contains(lines[1], `"reason"="spec.os was added"`) || !strings.Contains(lines[1], `"name"="db"`) {
		t.Errorf("logged %q", lines)
	}
}

func TestConcurrentReports(t *testing.T) {
	sources := []pod.Source{pod.SourceFile, pod.SourceHTTP, pod.SourceRun}
	m := New(logr.Discard(), sources...)
	changed, stop := m.Subscribe()
	defer stop()
	var wg sync.WaitGroup
	for _, source := range sources {
		wg.Go(func() {
			for i := range 100 {
				m.Report(reportOf(source, claim(source, "x", string(source), fmt.Sprint(source, i), i)))
			}
		})
	}
	wg.Wait()
	<-changed
	if set := m.Current(); len(set.Pods) != 3 || !set.Synced {
		t.Errorf("pods %q, synced %v", names(set), set.Synced)
	}
}

// The set follows from what the sources say, not from the order they say it in.
func TestMergeDependsOnClaimsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := []pod.Source{pod.SourceFile, pod.SourceHTTP, pod.SourceRun}
		var claims []Claim
		for i := range rapid.IntRange(0, 20).Draw(t, "claims") {
			c := claim(rapid.SampledFrom(order).Draw(t, "source"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "origin"),
				rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"), fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "uid")), rapid.IntRange(0, 3).Draw(t, "since"))
			c.Document = i + 1
			claims = append(claims, c)
		}
		build := func(claims []Claim) *Set {
			reports := map[pod.Source]Report{}
			for _, c := range claims {
				r := reports[c.Desired.Source]
				r.Claims = append(r.Claims, c)
				reports[c.Desired.Source] = r
			}
			return merge(order, reports, holds{}, nil, nil)
		}
		first := build(claims)
		shuffled := slices.Clone(claims)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if second := build(shuffled); !same(first, second) {
			t.Fatalf("%q and %q of the same claims", names(first), names(second))
		}
		if len(first.Pods)+len(first.Problems) != len(claims) {
			t.Fatalf("%d pods and %d problems of %d claims", len(first.Pods), len(first.Problems), len(claims))
		}
		seen := map[string]bool{}
		for _, p := range first.Pods {
			if seen[pod.FullName(p.Pod)] || first.Get(p.Pod.UID) != p {
				t.Fatalf("%s twice, or not found by its UID", p.Pod.Name)
			}
			seen[pod.FullName(p.Pod)] = true
		}
	})
}
