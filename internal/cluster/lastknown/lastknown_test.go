package lastknown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// server says whether the API server answers.
type server struct {
	ok    bool
	since time.Time
}

func (s *server) Reached() (bool, time.Time, error) { return s.ok, s.since, nil }

func newPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-uid"), ResourceVersion: "7", Labels: map[string]string{"app": "a"},
		Annotations: map[string]string{"kubernetes.io/config.seen": "2026-01-02T03:04:05Z"}},
		Spec: v1.PodSpec{NodeName: "node1", Containers: []v1.Container{{Name: "c", Image: "app:1"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBestEffort, PodIP: "10.0.0.1",
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: "example.com/gate", Status: v1.ConditionTrue}}}}
}

// write has a store write what it knows.
func write(t testing.TB, s *Store) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Run(ended); err != nil {
		t.Error(err)
	}
}

func opened(path string) *Store {
	s := New(path, "", &server{})
	s.Open("node1")
	return s
}

func configMap(name string) object.Key {
	return object.Key{Kind: object.ConfigMap, Namespace: "default", Name: name}
}

var services = object.Key{Kind: object.Service}

var attachment = object.Key{Kind: object.VolumeAttachment, Name: "csi-1"}

// fill has a store know something of everything.
func fill(s *Store) {
	s.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "n", Labels: map[string]string{"team": "a"}, Annotations: map[string]string{v1.ObjectTTLAnnotationKey: "5", "x": "y"}},
		Spec:   v1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}, Taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{Phase: v1.NodeRunning, Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.2"}}}})
	done, ending := newPod("done"), newPod("ending")
	done.Status.Phase = v1.PodSucceeded
	ending.DeletionTimestamp, ending.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, ptr.To[int64](30)
	s.SetPods([]*v1.Pod{newPod("a"), done, ending})
	for _, k := range []object.Key{configMap("conf"), configMap("optional"), services, {Kind: object.RuntimeClass, Name: "strong"}, {Kind: object.Secret, Namespace: "default", Name: "secret"}, attachment} {
		s.Asks("a-uid", k)
	}
	s.SetObject(attachment, &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}})
	s.SetObject(configMap("conf"), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "conf"}, Data: map[string]string{"k": "v"}})
	s.SetObject(configMap("optional"), nil)
	s.SetObject(configMap("nobody's"), &v1.ConfigMap{})
	s.SetObject(object.Key{Kind: object.RuntimeClass, Name: "strong"}, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "strong"}, Handler: "h"})
	s.SetObject(object.Key{Kind: object.Secret, Namespace: "default", Name: "secret"}, &v1.Secret{Data: map[string][]byte{"k": []byte("canary-value")}})
	s.SetServices(map[string]map[string]*v1.Service{"default": {"db": {ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: v1.ServiceSpec{ClusterIP: "10.0.0.9"}}}})
}

// state is what a store knows, as text.
func state(t *testing.T, s *Store) any {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	records := map[string]json.RawMessage{}
	if err := encode(s.contents(s.names()), s.keys, func(r map[string]json.RawMessage) error { records = r; return nil }); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKeepsAndReads: the next agent knows what this one did: without what the node itself told of pods, and without Secrets.
func TestKeepsAndReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoints", "apiserver.jsonl")
	s := opened(path)
	if s.Services() != nil || s.Node() != nil || len(s.Pods()) > 0 {
		t.Error("it knows something")
	}
	fill(s)
	write(t, s)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"canary-value", "Y2FuYXJ5LXZhbHVl", "10.0.0.1", "resourceVersion", "nobody's", `"Ready"`} {
		if strings.Contains(string(text), not) {
			t.Errorf("%q is in the file", not)
		}
	}
	again := opened(path)
	if diff := cmp.Diff(state(t, s), state(t, again)); diff != "" || len(again.Problems()) > 0 {
		t.Errorf("%v (-kept +read):\n%s", again.Problems(), diff)
	}
	synctest.Test(t, func(t *testing.T) { // by a clock that is set back by decades
		early := opened(path)
		if diff := cmp.Diff(state(t, s), state(t, early)); diff != "" || time.Now().Year() > 2000 {
			t.Errorf("in %d (-kept +read):\n%s", time.Now().Year(), diff)
		}
	})
	if o, known := again.Object(configMap("optional")); o != nil || !known {
		t.Errorf("what isn't there: %v, %v", o, known)
	}
	if _, known := again.Object(configMap("unheard of")); known {
		t.Error("what nobody asked for is known")
	}
	if len(again.Services()["default"]) != 1 {
		t.Errorf("Services: %v", again.Services())
	}
	// What is the same isn't written again; what nobody has any more goes.
	fill(again)
	if len(again.dirty) > 3 { // whose pointers are others
		t.Errorf("it would write %v", again.dirty)
	}
	again.DropService("default", "db")
	again.SetServices(nil)
	again.Forget("a-uid")
	again.Forget("a-uid")
	again.SetPods(again.Pods()[:0])
	write(t, again)
	if got := state(t, opened(path)); len(got.(map[string]any)) != 1 {
		t.Errorf("left: %v", got)
	}
	other := New(path, "", &server{})
	other.Open("node2")
	if other.Node() != nil {
		t.Error("another node has it, too")
	}
}

// TestFormat1 reads what the first version wrote. The file is never changed: who changes a field's name or meaning makes the next format, and
// reads this one.
func TestFormat1(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "format1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "known")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	want := New("", "", &server{})
	fill(want)
	got := opened(path)
	if diff := cmp.Diff(state(t, want), state(t, got)); diff != "" || len(got.Problems()) > 0 {
		t.Errorf("%v (-want +read):\n%s", got.Problems(), diff)
	}
}

// TestWrites: of a burst of changes there is one write, of which only what has changed is part; and no more than one a second.
func TestWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known")
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	synctest.Test(t, func(t *testing.T) {
		s := New(path, "", &server{ok: true})
		s.Open("node1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		var pods []*v1.Pod
		for i := range 500 {
			pods = append(pods, newPod(fmt.Sprint("p", i)))
		}
		s.SetPods(pods)
		synctest.Wait()
		first := size()
		var sizes []int64
		for i := range 40 { // for 2 s
			pods = slices.Clone(pods)
			pods[i%20] = newPod(fmt.Sprint("p", i%20))
			s.SetPods(pods)
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			if n := size(); n != first && !slices.Contains(sizes, n) {
				sizes = append(sizes, n)
			}
		}
		s.SetPods(pods)
		time.Sleep(time.Minute)
		cancel()
		<-done
		if n := size() - first; len(sizes) > 2 || n > first/10 {
			t.Errorf("%d writes, of %d bytes after %d", len(sizes), n, first)
		}
	})
	if again := opened(path); len(again.Pods()) != 500 {
		t.Errorf("%d pods", len(again.Pods()))
	}
}

// TestDamage: a write that was cut short never was. Of a damaged file what can be used is, and a person is told.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "known")
	s := opened(path)
	s.SetPods([]*v1.Pod{newPod("a")})
	write(t, s)
	s.SetPods([]*v1.Pod{s.Pods()[0], newPod("b")})
	write(t, s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for name, tc := range map[string]struct {
		text  string
		pods  int
		wrong string
	}{
		"whole":             {string(whole), 2, ""},
		"cut short":         {string(whole[:len(whole)-1]), 1, ""},
		"a bit fell over":   {strings.Replace(lines[0], "app:1", "app:2", 1) + lines[1], 1, "line 1: its checksum doesn't match"},
		"no text":           {"\x00\x00\n", 0, "line 1"},
		"a newer one's":     {strings.Replace(lines[0], `"version":1`, `"version":2`, 1), 0, "newer version"},
		"another pod's":     {mustSeal(t, map[string]any{"pod/x": podContent{Pod: newPod("a")}}), 0, "isn't about that pod"},
		"from another node": {mustSeal(t, map[string]any{"pod/z-uid": podContent{Pod: foreign()}}), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := opened(path)
			said := fmt.Sprint(s.Problems())
			if len(s.Pods()) != tc.pods || (tc.wrong == "") != (len(s.Problems()) == 0) || !strings.Contains(said, tc.wrong) {
				t.Errorf("%d pods, %s", len(s.Pods()), said)
			}
			write(t, s)
			if n := len(opened(path).Pods()); n != tc.pods {
				t.Errorf("%d pods are read the next time, nothing having changed; want %d", n, tc.pods)
			}
			s.SetPods(append(s.Pods(), newPod("c")))
			write(t, s)
			want := tc.pods + 1
			if strings.Contains(tc.wrong, "newer") {
				want = 0
			}
			if n := len(opened(path).Pods()); n != want {
				t.Errorf("%d pods after a write, want %d", n, want)
			}
		})
	}
}

func mustSeal(t *testing.T, records map[string]any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	s := New(path, "", &server{})
	if err := encode(records, nil, s.log.Replace); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func foreign() *v1.Pod {
	p := newPod("z")
	p.Spec.NodeName = "node2"
	return p
}

// TestFullDisk: while nothing can be written that is reported, and written when it can be.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sub", "known")
	synctest.Test(t, func(t *testing.T) {
		s := opened(path)
		if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil { // no directory
			t.Fatal(err)
		}
		changed, stop := s.Subscribe()
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx) }()
		s.SetPods([]*v1.Pod{newPod("a")})
		<-changed
		if p := s.Problems(); len(p) != 1 || !strings.Contains(p[0].Message, "pods keep running") {
			t.Errorf("%+v", p)
		}
		time.Sleep(10*time.Minute + time.Second) // between two attempts
		if err := os.Remove(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		s.DiskFreed.Wake()
		<-changed
		if p := s.Problems(); len(p) > 0 || time.Since(begun) > 0 {
			t.Errorf("after %s: %+v", time.Since(begun), p)
		}
		cancel()
		<-done
	})
	if n := len(opened(path).Pods()); n != 1 {
		t.Errorf("%d pods", n)
	}
}

// TestLittleRoom: on a disk without room for another file beside the one there is, what changes is kept as long as there is room for that.
func TestLittleRoom(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("deckhand-test", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "known")
	s := opened(path)
	saves := func(pods ...*v1.Pod) bool {
		s.SetPods(pods)
		return s.save()
	}
	large := func(version int) *v1.Pod {
		p := newPod("large")
		p.Annotations["x"] = strings.Repeat(fmt.Sprint(version), 300<<10)
		return p
	}
	for version := range 3 {
		if !saves(large(version)) {
			t.Fatalf("version %d: %v", version, s.Problems())
		}
	}
	last := s.Pods()[0]
	if !s.log.Outgrown() || !saves(last, newPod("a")) {
		t.Errorf("a replacement that has no room: outgrown %t, %v", s.log.Outgrown(), s.Problems())
	}

	filler, err := os.Create(filepath.Join(dir, "filler"))
	for err == nil {
		_, err = filler.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	b := newPod("b")
	b.Annotations["x"] = strings.Repeat("x", 20<<10)
	if saves(last, newPod("a"), b) || len(s.Problems()) != 1 {
		t.Errorf("without room: %v", s.Problems())
	}
	info, err := filler.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(filler.Truncate(info.Size()-40<<10), filler.Close()); err != nil {
		t.Fatal(err)
	}
	if !s.save() || len(s.Problems()) > 0 {
		t.Errorf("with room for that: %v", s.Problems())
	}

	// A crash has cut a write short.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if s = opened(path); len(s.Pods()) != 3 || !saves(append(s.Pods(), newPod("c"))...) {
		t.Errorf("after a crash: %d pods, %v", len(s.Pods()), s.Problems())
	}
	if s = opened(path); len(s.Pods()) != 4 || len(s.Problems()) > 0 {
		t.Errorf("%d pods, %v", len(s.Pods()), s.Problems())
	}
}

// TestAway: a server that doesn't answer is away; one that wasn't heard of, after a moment.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &server{}
		s := New(filepath.Join(t.TempDir(), "f"), "", said)
		s.Open("node1")
		if s.Away() {
			t.Error("at once")
		}
		time.Sleep(s.Patience())
		if !s.Away() {
			t.Error("never")
		}
		said.ok, said.since = true, time.Now()
		if s.Away() {
			t.Error("it answers")
		}
		said.ok = false
		if !s.Away() {
			t.Error("it doesn't answer any more")
		}
	})
}

// large is a pod as those of clusters are.
func large(i int) *v1.Pod {
	p := newPod(fmt.Sprint("p", i))
	for c := range 3 {
		container := v1.Container{Name: fmt.Sprint("c", c), Image: "registry.example.com/team/app@sha256:0123456789012345678901234567890123456789012345678901234567890123", Args: []string{"--serve", "--log-level=info"}}
		for e := range 20 {
			container.Env = append(container.Env, v1.EnvVar{Name: fmt.Sprint("SETTING_", e), Value: "some value of some length"})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	return p
}

func filled(b *testing.B, pods int) (*Store, []*v1.Pod) {
	s := opened(filepath.Join(b.TempDir(), "known"))
	var list []*v1.Pod
	for i := range pods {
		list = append(list, large(i))
	}
	s.SetPods(list)
	for i := range pods {
		k := configMap(fmt.Sprint("conf", i))
		s.Asks(list[i].UID, k)
		s.SetObject(k, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: k.Name}, Data: map[string]string{"k": strings.Repeat("v", 1000)}})
	}
	write(b, s)
	return s, list
}

// BenchmarkChange is what it costs that one pod of 500 changes: at most 1 ms of CPU (the disk's time is waited for by nobody).
func BenchmarkChange(b *testing.B) {
	s, pods := filled(b, 500)
	for i := 0; b.Loop(); i++ {
		changed := *pods[i%500]
		pods[i%500] = &changed
		s.SetPods(pods)
		if !s.save() {
			b.Fatal(s.Problems())
		}
	}
}

// BenchmarkOpen is what a new agent needs for 500 pods and as many ConfigMaps: at most 200 ms.
func BenchmarkOpen(b *testing.B) {
	s, _ := filled(b, 500)
	for b.Loop() {
		again := New("", "", &server{})
		again.log = s.log
		again.Open("node1")
		if len(again.Pods()) != 500 {
			b.Fatal(again.Problems())
		}
	}
}
