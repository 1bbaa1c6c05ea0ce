package journal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// input is what the first decision about a pod is made from.
func input(uid types.UID) lifecycle.Input {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: uid}}
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "web:1", Env: []v1.EnvVar{{Name: "PASSWORD", Value: "sesame"}}}}
	return lifecycle.Input{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Pod: p}
}

// decide makes a decision and has it recorded.
func decide(j *Journal, uid types.UID) {
	in := input(uid)
	j.Open(uid, "default/web").Decision(in, lifecycle.Decide(in))
}

func rootDir(t *testing.T) string { return filepath.Join(t.TempDir(), "journal") }

// begin starts an agent's journal. stop ends it in order.
func begin(t *testing.T, dir string, change ...func(*Journal)) (j *Journal, stop func()) {
	t.Helper()
	j = New(Config{Dir: dir, Version: "v1", Log: logr.Discard()})
	for _, f := range change {
		f(j)
	}
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return j, stop
}

// crashed starts an agent's journal after one that didn't shut down cleanly.
func crashed(t *testing.T, dir string, change ...func(*Journal)) (j *Journal, stop func()) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, marker), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j, stop = begin(t, dir, change...)
	if !j.CrashedBefore() {
		t.Error("the marker wasn't noticed")
	}
	return j, stop
}

func exists(t *testing.T, elements ...string) bool {
	t.Helper()
	_, err := os.Lstat(filepath.Join(elements...))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestTextCanBeReplayed(t *testing.T) {
	j, _ := begin(t, rootDir(t))
	if _, ok := j.Text("u1"); ok {
		t.Error("there is a text before there is a pod")
	}
	j.Open("u1", "default/web")
	if _, ok := j.Text("u1"); ok {
		t.Error("there is a text before there is a decision")
	}
	decide(j, "u1")
	text, ok := j.Text("u1")
	if !ok || !strings.HasPrefix(string(text), "Recorded by deckhand v1.\n") || strings.Contains(string(text), "sesame") {
		t.Fatalf("%v: %s", ok, text)
	}
	read, err := transcript.Parse(text)
	if err != nil || len(read.Steps) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if d := transcript.Replay(read); len(d) > 0 {
		t.Errorf("%+v", d)
	}
}

func TestOpenGoesOnUntilClose(t *testing.T) {
	dir := rootDir(t)
	synctest.Test(t, func(t *testing.T) { opensAndCloses(t, dir) })
}

func opensAndCloses(t *testing.T, dir string) {
	j, stop := begin(t, dir)
	decide(j, "u1")
	first := j.Open("u1", "default/web")
	if again := j.Open("u1", "default/web"); again != first {
		t.Error("a pod has two records")
	}
	if err := j.record("u1").save(); err != nil {
		t.Fatal(err)
	}
	if !exists(t, j.cfg.Dir, "u1.txtar") {
		t.Fatal("nothing was written")
	}
	late := j.Open("u1", "default/web")
	j.Close("u1")
	synctest.Wait()
	if _, ok := j.Text("u1"); ok || exists(t, j.cfg.Dir, "u1.txtar") {
		t.Error("something is left of the record")
	}
	late.markUnsaved()
	if err := late.save(); err != nil || exists(t, j.cfg.Dir, "u1.txtar") {
		t.Errorf("a closed record was written: %v", err)
	}
	j.Close("never opened")
	stop()
}

func TestOrderlyStopSavesEverything(t *testing.T) {
	dir := rootDir(t)
	j, stop := begin(t, dir)
	if j.CrashedBefore() {
		t.Error("a crash is suspected at the very first start")
	}
	decide(j, "u1")
	decide(j, "u2")
	want, _ := j.Text("u1")
	stop()
	for path, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, filepath.Join(dir, "previous"): fs.ModeDir | 0o700, filepath.Join(dir, "u1.txtar"): 0o600, filepath.Join(dir, "u2.txtar"): 0o600} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", path, info, err, mode)
		}
	}
	if exists(t, dir, marker) {
		t.Error("the next agent will think that this one crashed")
	}

	next, stop := begin(t, dir)
	if next.CrashedBefore() {
		t.Error("a crash is suspected after an orderly stop")
	}
	got, ok := next.Previous("u1")
	if !ok || string(got) != string(want) {
		t.Errorf("%v: got %s, want %s", ok, got, want)
	}
	if _, ok := next.Previous("u3"); ok {
		t.Error("there is an earlier journal of a pod that never was")
	}
	decide(next, "u1")
	stop()
	last, _ := begin(t, dir)
	if _, ok := last.Previous("u2"); !ok {
		t.Error("what is newest of a pod is lost because an agent had nothing to say of it")
	}
}

func TestFailedIsOnDiskAtOnceAndStays(t *testing.T) {
	j, _ := begin(t, rootDir(t))
	decide(j, "u1")
	path := j.Open("u1", "default/web").Failed(input("u1"), errors.New("index out of range\nstack"))
	if path != filepath.Join(j.cfg.Dir, "failed", "u1.txtar") {
		t.Errorf("it is said to be at %q", path)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "# the core failed on this, which is a bug: index out of range\n# stack\n") {
		t.Fatalf("%v: %s", err, text)
	}
	if read, err := transcript.Parse(text); err != nil || len(read.Steps) != 2 {
		t.Errorf("%v: %s", err, text)
	}
	j.Close("u1")
	j.Sweep(func(types.UID) bool { return false })
	if !exists(t, path) {
		t.Error("the pod is gone, and so is what has to be reported")
	}
	old := time.Now().Add(-keepFailed - time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	next, _ := begin(t, j.cfg.Dir)
	next.Sweep(func(types.UID) bool { return false })
	if exists(t, path) {
		t.Error("it stays forever")
	}
}

func TestSweep(t *testing.T) {
	dir := rootDir(t)
	j, stop := begin(t, dir)
	for _, uid := range []types.UID{"wanted", "open", "gone"} {
		decide(j, uid)
	}
	stop()
	next, _ := begin(t, dir)
	next.Open("open", "default/web")
	next.Sweep(func(uid types.UID) bool { return uid == "wanted" })
	for uid, want := range map[types.UID]bool{"wanted": true, "open": true, "gone": false} {
		if _, ok := next.Previous(uid); ok != want || exists(t, dir, "previous", string(uid)+".txtar") != want {
			t.Errorf("%s: kept: %v, want %v", uid, ok, want)
		}
	}
}

func TestDamageStopsNobody(t *testing.T) {
	dir := rootDir(t)
	_, first := begin(t, dir)
	first()
	victim := filepath.Join(t.TempDir(), "victim")
	for path, text := range map[string]string{"u1.txtar": "\x00\xff", ".u2.txtar.tmp-1": "half", "previous/.u3.txtar.tmp-2": "half", "odd": "x"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, "u4.txtar")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "u5.txtar", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, marker), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, stop := begin(t, dir)
	if text, ok := j.Previous("u1"); !ok || string(text) != "\x00\xff" {
		t.Errorf("%v: %q", ok, text)
	}
	for _, path := range []string{".u2.txtar.tmp-1", "previous/.u3.txtar.tmp-2", "odd"} {
		if exists(t, dir, path) {
			t.Errorf("%s was left", path)
		}
	}
	decide(j, "u4")
	stop()
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("a link was followed: %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "u4.txtar")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the link is still there: %v, %v", info, err)
	}
}

func TestDirThatCannotBeUsed(t *testing.T) {
	dir := rootDir(t)
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j, stop := begin(t, dir)
	decide(j, "u1")
	if _, ok := j.Text("u1"); !ok {
		t.Error("nothing is kept in memory either")
	}
	if where := j.Open("u1", "default/web").Failed(input("u1"), errors.New("x")); !strings.Contains(where, "only in memory") {
		t.Error(where)
	}
	if _, ok := j.Previous("u1"); ok || j.CrashedBefore() {
		t.Error("something was found")
	}
	j.Sweep(func(types.UID) bool { return false })
	j.Close("u1")
	stop()
}

func TestNameThatIsNoPath(t *testing.T) {
	dir := rootDir(t)
	j, _ := begin(t, dir)
	for _, uid := range []types.UID{"../out", "..", "a/b"} {
		decide(j, uid)
		if err := j.record(uid).save(); err == nil {
			t.Errorf("%q became part of a path", uid)
		}
		if _, ok := j.Previous(uid); ok {
			t.Errorf("%q was read", uid)
		}
		j.Close(uid)
	}
	if exists(t, dir, "..", "out.txtar") {
		t.Error("it was written outside the directory")
	}
}

func TestOff(t *testing.T) {
	dir := rootDir(t)
	j, stop := begin(t, dir, func(j *Journal) { j.cfg.Limit = -1 })
	decide(j, "u1")
	if where := j.Open("u1", "default/web").Failed(input("u1"), errors.New("x")); !strings.Contains(where, "switched off") {
		t.Error(where)
	}
	if _, ok := j.Text("u1"); ok {
		t.Error("something was kept")
	}
	stop()
	if exists(t, dir) {
		t.Error("there is a directory")
	}
}

// broken is a recorder with a bug.
type broken struct{}

func (broken) Comment(string)                             {}
func (broken) Record(lifecycle.Input, lifecycle.Decision) { panic("bug") }
func (broken) Bytes() []byte                              { panic("bug") }

func TestABugInTheRecorderEndsNoAgent(t *testing.T) {
	var logged []string
	j, _ := begin(t, rootDir(t), func(j *Journal) {
		j.newRecorder = func(int) recorder { return broken{} }
		j.cfg.Log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	})
	decide(j, "u1")
	decide(j, "u1")
	if len(logged) != 1 || !strings.Contains(logged[0], "which is a bug") {
		t.Errorf("logged: %q", logged)
	}
	if where := j.Open("u2", "default/web").Failed(input("u2"), errors.New("x")); !strings.Contains(where, "failed, too") {
		t.Error(where)
	}
	if _, ok := j.Text("u1"); ok {
		t.Error("there is a text")
	}
}
