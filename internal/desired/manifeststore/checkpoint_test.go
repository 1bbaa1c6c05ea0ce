package manifeststore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

func records(pods ...string) []Record {
	out := []Record{}
	for _, p := range pods {
		out = append(out, Record{
			Origin: "/etc/pods/" + p, Document: 1, Content: json.RawMessage(`{"metadata":{"name":"` + p + `"},"spec":{"args":["a<b>&c"]}}`),
			Since: time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC), Seen: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Stale: "why",
			Base: "abc", Generation: 2, Node: "n",
		})
	}
	return out
}

func newStore(dir string) *Store { return NewStore(dir, "", pod.SourceFile) }

func load(t *testing.T, dir string) ([]Record, bool) {
	t.Helper()
	got, found, err := newStore(dir).Load()
	if err != nil {
		t.Fatal(err)
	}
	return got, found
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints", "desired")
	if _, found := load(t, dir); found {
		t.Error("found something before anything was saved")
	}
	for _, want := range [][]Record{records("a", "b"), records("b"), records()} {
		if err := newStore(dir).Save(want); err != nil {
			t.Fatal(err)
		}
		got, found := load(t, dir)
		if diff := cmp.Diff(want, got); diff != "" || !found {
			t.Errorf("found %v, differs (-want +got):\n%s", found, diff)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "file.json"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode().Perm(), err, mode)
		}
	}
}

func TestSameRecordsAreNotWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file.json")
	s := newStore(dir)
	if err := s.Save(records("a")); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	loaded := newStore(dir)
	if _, _, err := loaded.Load(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{s, loaded} {
		if err := s.Save(records("a")); err != nil {
			t.Fatal(err)
		}
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("the file was replaced by the same content")
	}
}

// Every single bit matters: whatever is flipped or cut, nothing wrong is loaded.
func TestDamageIsSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file.json")
	if err := newStore(dir).Save(records("a")); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := [][]byte{{}, bytes.Repeat([]byte{0}, len(good)), []byte("[]"), []byte(`{"version":0}`)}
	for i := range good {
		damaged = append(damaged, good[:i])
		flipped := bytes.Clone(good)
		flipped[i] ^= 0x01
		damaged = append(damaged, flipped)
	}
	for _, data := range damaged {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, found, err := newStore(dir).Load()
		if errors.Is(err, ErrNewer) {
			continue // the version's digit was hit
		}
		if err == nil && found && cmp.Equal(got, records("a")) {
			continue // a letter of a key was hit in its case only, or the like
		}
		if err == nil || found || len(got) != 0 {
			t.Fatalf("loaded %v, found %v, error %v from %s", got, found, err, data)
		}
		moved, readErr := os.ReadFile(path + ".corrupt")
		if readErr != nil || !bytes.Equal(moved, data) {
			t.Fatalf("the file wasn't moved away: %v", readErr)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Fatalf("the corrupt file is still there: %v", err)
		}
	}
}

func TestNewerVersionIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file.json")
	text := []byte(`{"version": 4, "pods": "in some other form"}`)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(dir)
	_, found, err := s.Load()
	if !errors.Is(err, ErrNewer) || found || !strings.Contains(err.Error(), path) {
		t.Errorf("found %v, error %v; want ErrNewer that names the file", found, err)
	}
	if err := s.Save(records("a")); !errors.Is(err, ErrNewer) {
		t.Errorf("saving gives %v, want ErrNewer", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
		t.Errorf("the file is %q (%v), want it left alone", after, err)
	}
}

// What older formats looked like, to the byte.
func TestOlderFormatsAreTakenOver(t *testing.T) {
	record := Record{
		Origin: "/etc/pods/a", Document: 1, Content: json.RawMessage(`{"metadata":{"name":"a"}}`), Since: time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC),
		Seen: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), Stale: "why", Generation: 1,
	}
	edited := record
	edited.Base, edited.Generation, edited.Node = "abc", 3, "n"
	for _, test := range []struct {
		version int
		records string
		want    []Record
	}{
		{1, "[]", []Record{}},
		{1, `[{"origin":"/etc/pods/a","document":1,"pod":{"metadata":{"name":"a"}},"since":"2026-01-01T00:00:00.123456789Z","seen":"2026-01-02T00:00:00Z","stale":"why"}]`, []Record{record}},
		{2, `[{"origin":"/etc/pods/a","document":1,"pod":{"metadata":{"name":"a"}},"since":"2026-01-01T00:00:00.123456789Z","seen":"2026-01-02T00:00:00Z","base":"abc","generation":3,"node":"n","stale":"why"}]`, []Record{edited}},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file.json")
		text := fmt.Sprintf(`{"version":%d,"source":"file","sum":"%s","records":%s}`, test.version, checkpoint.Sum([]byte(test.records)), test.records)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newStore(dir)
		got, found, err := s.Load()
		if diff := cmp.Diff(test.want, got); diff != "" || !found || err != nil {
			t.Fatalf("found %v, error %v, differs (-want +got):\n%s", found, err, diff)
		}
		if err := s.Save(got); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(after, []byte(`{"version":3,`)) {
			t.Errorf("saved as %s (%v), want format 3", after, err)
		}
		if again, _ := load(t, dir); !cmp.Equal(again, got) {
			t.Errorf("loaded again it is %+v", again)
		}
	}
}

// Secrets are among the records: neither the file nor what prints a record shows them.
func TestSecretsAreForRootOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "desired")
	secret := Record{Origin: "/etc/pods/a", Document: 1, Kind: object.Secret, Content: json.RawMessage(`{"stringData":{"password":"hunter2"}}`), Generation: 0}
	s := newStore(dir)
	if err := s.Save([]Record{secret}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "file.json"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v (%v), want %v", path, info.Mode(), err, want)
		}
	}
	if got, _ := load(t, dir); !cmp.Equal(got, []Record{secret}) {
		t.Errorf("loaded %v", got)
	}
	if text := fmt.Sprintf("%v %+v %s", secret, &secret, []Record{secret}); strings.Contains(text, "hunter2") || !strings.Contains(text, "Secret of /etc/pods/a") {
		t.Errorf("printed it is %q", text)
	}
}

func TestLeftoversOfCrashesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".file.json.tmp-123")
	other := filepath.Join(dir, ".http.json.tmp-123")
	for _, path := range []string{left, other} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load(t, dir)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another source's file is gone: %v", err)
	}
}

// run runs a saver in the bubble until the test ends.
func run(t *testing.T, s *Saver) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestSaverMergesBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := NewSaver(newStore(dir))
		stop := run(t, s)
		calls := 0
		put := func(name string) {
			s.Put(func() []Record { calls++; return records(name) })
		}
		put("first")
		synctest.Wait()
		if got, _ := load(t, dir); len(got) != 1 || got[0].Origin != "/etc/pods/first" {
			t.Errorf("the first change isn't written at once: %v", got)
		}
		for _, name := range []string{"a", "b", "c"} {
			put(name)
			synctest.Wait()
		}
		time.Sleep(saveEvery)
		synctest.Wait()
		if got, _ := load(t, dir); got[0].Origin != "/etc/pods/c" || calls != 2 {
			t.Errorf("wrote %v in %d writes, want the newest in 2", got, calls)
		}
		put("last")
		stop()
		if got, _ := load(t, dir); got[0].Origin != "/etc/pods/last" {
			t.Errorf("what was pending at the end isn't written: %v", got)
		}
	})
}

// TestSaverTriesAgain: the pauses between writes grow, and end when a disk can be written again.
func TestSaverTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.WriteFile(dir, []byte("in the way"), 0o600); err != nil {
			t.Fatal(err)
		}
		store := newStore(dir)
		var writes atomic.Int64
		s := NewSaver(store)
		defer run(t, s)()
		s.Put(func() []Record { writes.Add(1); return records("a") })
		<-s.Outcome()
		if s.Err() == nil {
			t.Fatal("a write into what is no directory worked")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := writes.Load(); n != 4 { // after 0, 1, 3 and 7 s
			t.Errorf("%d writes in 10 s", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := writes.Load(); n > 70 {
			t.Errorf("%d writes in an hour", n)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		store.DiskFreed.Wake()
		<-s.Outcome()
		if err := s.Err(); err != nil || time.Since(begin) > 0 {
			t.Errorf("after %v the error is %v, want none", time.Since(begin), err)
		}
		if _, found := load(t, dir); !found {
			t.Error("nothing was written")
		}
	})
}

// What has run is what has a directory.
func TestRan(t *testing.T) {
	dir := t.TempDir()
	pods := filepath.Join(dir, "pods")
	s := NewStore(dir, pods, pod.SourceFile)
	if ran, err := s.Ran(); err != nil || len(ran) > 0 {
		t.Errorf("without a directory of pods: %v, %v", ran, err)
	}
	for _, uid := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(pods, uid), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if ran, err := s.Ran(); err != nil || len(ran) != 2 || !ran["a"] || !ran["b"] {
		t.Errorf("%v, %v; want a and b", ran, err)
	}
	if _, err := NewStore(dir, "/dev/null", pod.SourceFile).Ran(); err == nil {
		t.Error("a file is read as a directory of pods")
	}
}
