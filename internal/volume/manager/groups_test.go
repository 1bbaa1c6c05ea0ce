package manager_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Files that a pod uses aren't given to the group of another one.
func TestPodsThatShareAVolumeDontTakeItsFilesFromEachOther(t *testing.T) {
	w := newWorld(t)
	o := &owned{}
	c := w.config()
	c.Own = o.apply
	m, _ := w.start(c)
	w.bind("store", t.TempDir())
	w.bind("other", t.TempDir())
	pods := map[string]*v1.Pod{}
	prepare := func(name, claimed string, group *int64) {
		t.Helper()
		p := namedPod(name, types.UID("uid-"+name), claim("db", claimed))
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: group}
		pods[name] = w.want(p)
		must(t, m.Prepare(t.Context(), p))
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
	must(t, m.Prepare(t.Context(), p))
	if got, err := m.Groups(p); err != nil || !slices.Equal(got, []int64{77, 1234}) {
		t.Errorf("got %v, %v", got, err)
	}
	odd := w.want(namedPod("b", "uid-b", claim("x", "odd")))
	must(t, m.Prepare(t.Context(), odd))
	_, err := m.Groups(odd)
	if f := failure(t, err); !strings.Contains(f.Message, `volume "x": PersistentVolume pv-odd: annotation pv.beta.kubernetes.io/gid "crew" is no group's number`) {
		t.Errorf("got %+v", f)
	}
	for _, p := range []*v1.Pod{p, odd} {
		must(t, m.Clean(t.Context(), p.UID))
	}
	w.clean()
}
