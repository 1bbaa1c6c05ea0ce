package manager_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/volume/filetree"
)

// Files that a pod uses aren't given to the group of another one.
func TestPodsThatShareAVolumeDontTakeItsFilesFromEachOther(t *testing.T) {
	w := newWorld(t)
	o := &owned{}
	c := w.config()
	c.ApplyFSGroup = o.apply
	m, _ := w.start(c)
	w.bind("store", t.TempDir())
	w.bind("other", t.TempDir())
	pods := map[string]*v1.Pod{}
	prepare := func(name, claimed string, group *int64) {
		t.Helper()
		p := namedPod(name, types.UID("uid-"+name), claim("db", claimed))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: group}
		pods[name] = w.want(p)
		must(t, m.Prepare(t.Context(), p, w))
	}
	expect := func(what string, gids ...int) {
		t.Helper()
		var got []int
		for _, call := range o.calls {
			got = append(got, call.GID)
		}
		if !slices.Equal(got, gids) {
			t.Errorf("%s: given to groups %v, want %v", what, got, gids)
		}
	}
	prepare("a", "store", ptr.To(int64(1000)))
	prepare("same", "store", ptr.To(int64(1000)))
	prepare("elsewhere", "other", ptr.To(int64(2000)))
	expect("pods of one group, and another volume", 1000, 1000, 2000)
	prepare("b", "store", ptr.To(int64(2000)))
	expect("a pod of another group", 1000, 1000, 2000)
	if got := w.told(); !slices.ContainsFunc(got, func(e string) bool {
		return strings.Contains(e, `AlreadyMountedVolume: volume "db": its files aren't given to group 2000`) && strings.Contains(e, "PersistentVolume pv-store")
	}) {
		t.Errorf("told: %q", got)
	}
	for _, name := range []string{"a", "same", "b"} {
		must(t, m.Clean(t.Context(), pods[name].UID))
	}
	prepare("c", "store", ptr.To(int64(2000)))
	expect("the others are gone", 1000, 1000, 2000, 2000)
	for _, name := range []string{"c", "elsewhere"} {
		must(t, m.Clean(t.Context(), pods[name].UID))
	}
	w.clean()
}

// At a node's start pods are prepared at the same time.
func TestOnePodAtATimeIsGivenTheFilesOfAVolume(t *testing.T) {
	w := newWorld(t)
	began, resume := make(chan int, 2), make(chan struct{})
	c := w.config()
	c.ApplyFSGroup = func(_ context.Context, _ string, o filetree.Options) error {
		began <- o.GID
		<-resume
		return nil
	}
	m, _ := w.start(c)
	w.bind("store", t.TempDir())
	first, second := namedPod("a", "uid-a", claim("db", "store")), namedPod("b", "uid-b", claim("db", "store"))
	first.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(1000))}
	second.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(2000))}
	done := make(chan error, 1)
	go func() { done <- m.Prepare(t.Context(), w.want(first), w) }()
	<-began
	must(t, m.Prepare(t.Context(), w.want(second), w))
	if got := w.told(); !slices.ContainsFunc(got, func(e string) bool { return strings.Contains(e, "AlreadyMountedVolume") }) {
		t.Errorf("told: %q", got)
	}
	close(resume)
	must(t, <-done)
	must(t, m.Clean(t.Context(), second.UID))
	must(t, m.Clean(t.Context(), first.UID))
	must(t, m.Prepare(t.Context(), second, w))
	if gid := <-began; gid != 2000 {
		t.Errorf("given to group %d once the first pod is gone", gid)
	}
	must(t, m.Clean(t.Context(), second.UID))
	w.clean()
}

func TestGroupsThatPersistentVolumesAreFor(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	for claimed, gid := range map[string]string{"one": "1234", "same": "1234", "two": "77", "none": "", "odd": "crew"} {
		w.bind(claimed, t.TempDir())
		if gid != "" {
			w.bound[claimed].pv.Annotations = map[string]string{"pv.beta.kubernetes.io/gid": gid}
		}
	}
	p := w.want(namedPod("a", "uid-a", claim("x", "two"), claim("y", "one"), claim("z", "same"), claim("w", "none"), emptyDir("data", "")))
	must(t, m.Prepare(t.Context(), p, w))
	if got := m.Groups(p); !slices.Equal(got, []int64{77, 1234}) {
		t.Errorf("got %v", got)
	}
	odd := w.want(namedPod("b", "uid-b", claim("x", "odd")))
	f := failure(t, m.Prepare(t.Context(), odd, w))
	if f.Message != `MountVolume.SetUp failed for volume "pv-odd" : PersistentVolume pv-odd: annotation pv.beta.kubernetes.io/gid "crew" is no group's number: correct it, or leave it out` ||
		f.Permanent || f.Awaits.String() != "PersistentVolume pv-odd" {
		t.Errorf("got %+v", f)
	}
	pv := w.bound["odd"].pv.DeepCopy()
	pv.Annotations["pv.beta.kubernetes.io/gid"] = "55"
	w.bound["odd"] = binding{w.bound["odd"].claim, pv}
	must(t, m.Prepare(t.Context(), odd, w)) // the edit helps
	if got := m.Groups(odd); !slices.Equal(got, []int64{55}) {
		t.Errorf("got %v", got)
	}
	for _, p := range []*v1.Pod{p, odd} {
		must(t, m.Clean(t.Context(), p.UID))
	}
	w.clean()
}
