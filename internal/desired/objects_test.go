package desired

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
)

func defined(source pod.Source, origin string, o object.Object, second int) ObjectClaim {
	return ObjectClaim{Object: object.NewDesired(o, source, origin), Document: 1, Since: time.Unix(int64(second), 0)}
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value}}
}

func origins(s *Set) string {
	var out []string
	for _, d := range s.Objects.List() {
		out = append(out, d.Key().Name+"@"+d.Origin)
	}
	return strings.Join(out, " ")
}

func TestTheFirstDefinesTheObject(t *testing.T) {
	order := []pod.Source{pod.SourceFile, pod.SourceHTTP}
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Data: map[string][]byte{"k": []byte("hunter2")}}
	reports := map[pod.Source]Report{
		pod.SourceFile: {Source: pod.SourceFile, Objects: []ObjectClaim{
			defined(pod.SourceFile, "b", configMap("x", "b"), 2), defined(pod.SourceFile, "a", configMap("x", "a"), 2), defined(pod.SourceFile, "s", secret, 5)}},
		pod.SourceHTTP: {Source: pod.SourceHTTP, Objects: []ObjectClaim{
			defined(pod.SourceHTTP, "h", configMap("x", "h"), 1), defined(pod.SourceHTTP, "h", secret, 6)}},
	}
	set := merge(order, reports, holds{}, nil, nil)
	if origins(set) != "x@h x@s" || len(set.Problems) != 3 {
		t.Errorf("objects %q, problems %v", origins(set), set.Problems)
	}
	for _, p := range set.Problems {
		if !strings.Contains(p.Message, " default/x isn't used from here: ") || p.Pod != "" || p.Since.Before(time.Unix(2, 0)) || strings.Contains(p.Message, "hunter2") {
			t.Errorf("problem %+v", p)
		}
	}
	delete(reports, pod.SourceHTTP)
	if set = merge(order, reports, holds{}, nil, set); origins(set) != "x@a x@s" || len(set.Problems) != 1 {
		t.Errorf("objects %q, problems %v", origins(set), set.Problems)
	}
}

func TestRefusedObjects(t *testing.T) {
	key := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "x"}
	order := []pod.Source{pod.SourceFile, pod.SourceHTTP}
	reports := map[pod.Source]Report{
		pod.SourceFile: {Source: pod.SourceFile, Refused: map[object.Key]string{key: "f"}},
		pod.SourceHTTP: {Source: pod.SourceHTTP, Refused: map[object.Key]string{key: "h"}},
	}
	first := merge(order, reports, holds{}, nil, nil)
	if _, err := objecttest.View(first.Objects).ConfigMap(t.Context(), "default", "x"); err == nil || !strings.Contains(err.Error(), "(f defines it") {
		t.Errorf("error %v", err)
	}
	if again := merge(order, reports, holds{}, nil, first); again.Objects != first.Objects {
		t.Error("the same is another set")
	}
	reports[pod.SourceHTTP] = Report{Source: pod.SourceHTTP, Objects: []ObjectClaim{defined(pod.SourceHTTP, "h", configMap("x", "h"), 1)}}
	if _, err := objecttest.View(merge(order, reports, holds{}, nil, first).Objects).ConfigMap(t.Context(), "default", "x"); err != nil {
		t.Error(err)
	}
}

func TestObjectsFollowFromClaimsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		order := []pod.Source{pod.SourceFile, pod.SourceHTTP, pod.SourceRun}
		var claims []ObjectClaim
		for i := range rapid.IntRange(0, 20).Draw(t, "claims") {
			c := defined(rapid.SampledFrom(order).Draw(t, "source"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "origin"),
				configMap(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"), fmt.Sprint(i)), rapid.IntRange(0, 3).Draw(t, "since"))
			c.Document = i + 1
			claims = append(claims, c)
		}
		build := func(claims []ObjectClaim) *Set {
			reports := map[pod.Source]Report{}
			for _, c := range claims {
				r := reports[c.Object.Source]
				r.Objects = append(r.Objects, c)
				reports[c.Object.Source] = r
			}
			return merge(order, reports, holds{}, nil, nil)
		}
		first := build(claims)
		shuffled := slices.Clone(claims)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if second := build(shuffled); !same(first, second) {
			t.Fatalf("%q and %q of the same claims", origins(first), origins(second))
		}
		if len(first.Objects.List())+len(first.Problems) != len(claims) {
			t.Fatalf("%d objects and %d problems of %d claims", len(first.Objects.List()), len(first.Problems), len(claims))
		}
	})
}

func TestSubscribersAreWokenForObjects(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile)
	changed, stop := m.Subscribe()
	defer stop()
	woken := func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	}
	if _, err := objecttest.View(m.Current().Objects).ConfigMap(t.Context(), "default", "x"); !object.IsUnknown(err) {
		t.Errorf("before any report: %v", err)
	}
	web := claim(pod.SourceFile, "a", "web", "1", 1)
	r := reportOf(pod.SourceFile, web)
	r.Objects = []ObjectClaim{defined(pod.SourceFile, "a", configMap("x", "a"), 1)}
	m.Report(r)
	first := m.Current()
	if !woken() || origins(first) != "x@a" {
		t.Fatalf("objects %q", origins(first))
	}
	db := claim(pod.SourceFile, "b", "db", "2", 1)
	m.Report(Report{Source: pod.SourceFile, Claims: []Claim{web, db}, Objects: slices.Clone(r.Objects)})
	second := m.Current()
	if !woken() || second.Objects != first.Objects {
		t.Error("another pod made another set of objects")
	}
	m.Report(Report{Source: pod.SourceFile, Claims: []Claim{web, db}, Objects: []ObjectClaim{defined(pod.SourceFile, "a", configMap("x", "b"), 1)}})
	third := m.Current()
	if !woken() || third.Objects == second.Objects {
		t.Error("an edit of an object wakes nobody")
	}
	if !slices.Equal(second.Pods, third.Pods) {
		t.Error("it changes pods")
	}
}

func TestObjectsAreLoggedWithoutContent(t *testing.T) {
	var lines []string
	m := New(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 5}), pod.SourceFile)
	report := func(value string) {
		r := Report{Source: pod.SourceFile}
		if value != "" {
			r.Objects = []ObjectClaim{defined(pod.SourceFile, "a", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "token"}, Data: map[string][]byte{"k": []byte(value)}}, 1)}
		}
		m.Report(r)
	}
	for _, value := range []string{"hunter1", "hunter2", "", ""} {
		report(value)
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{"Object added", "Object changed", "Object removed", "Secret default/token"} {
		if strings.Count(text, want) < 1 {
			t.Errorf("%q isn't in the log:\n%s", want, text)
		}
	}
	if len(lines) != 4 || strings.Contains(text, "hunter") || strings.Contains(text, "aHVudGVy") {
		t.Errorf("logged:\n%s", text)
	}
}

// TestObjectsDontWaitForAnAPIServer: what manifests define, or don't, is known once all manifests are, so that static pods
// start; what waits for all pods to be known (removing pods and images) waits for the API server as well.
func TestObjectsDontWaitForAnAPIServer(t *testing.T) {
	m := New(logr.Discard(), pod.SourceFile, pod.SourceAPI)
	m.Report(Report{Source: pod.SourceFile, Pending: true})
	if _, err := objecttest.View(m.Current().Objects).ConfigMap(t.Context(), "default", "x"); !object.IsUnknown(err) {
		t.Errorf("while manifests are being read: %v", err)
	}
	m.Report(Report{Source: pod.SourceFile})
	for _, r := range []Report{{}, {Source: pod.SourceAPI, Pending: true}, {Source: pod.SourceAPI}} {
		if r.Source != "" {
			m.Report(r)
		}
		set, view := m.Current(), objecttest.View(m.Current().Objects)
		if _, err := view.ConfigMap(t.Context(), "default", "x"); !apierrors.IsNotFound(err) {
			t.Errorf("%+v: %v", r, err)
		}
		if _, err := view.PersistentVolumes(t.Context()); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
		if want := r.Source == pod.SourceAPI && !r.Pending; set.Synced != want {
			t.Errorf("%+v: synced %t", r, set.Synced)
		}
	}
}
