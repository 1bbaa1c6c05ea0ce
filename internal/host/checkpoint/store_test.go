package checkpoint_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
)

type record struct {
	N    int    `json:"n"`
	Text string `json:"text,omitempty"`
}

const uid = types.UID("7c5b5a2e-1f00")

func save(t *testing.T, s *checkpoint.Store, r record) {
	t.Helper()
	if err := s.Save(uid, "kept", r, true); err != nil {
		t.Fatal(err)
	}
}

// loads checks what a new store, as after a restart, finds in dir.
func loads(t *testing.T, dir string, want record, wantFound bool) {
	t.Helper()
	var got record
	found, err := checkpoint.New(dir).Load(uid, "kept", &got)
	if err != nil || found != wantFound || got != want {
		t.Errorf("loaded %+v, found %v, error %v; want %+v, %v", got, found, err, want, wantFound)
	}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints", "pods")
	loads(t, dir, record{}, false)
	for i, durable := range []bool{true, false, true} {
		want := record{N: i, Text: "<a> & \"b\"\n\x00é"}
		if err := checkpoint.New(dir).Save(uid, "kept", want, durable); err != nil {
			t.Fatal(err)
		}
		loads(t, dir, want, true)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, string(uid)): 0o700, filepath.Join(dir, string(uid), "kept.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v (%v), want %v", path, info.Mode().Perm(), err, mode)
		}
	}
	var other record
	if found, err := checkpoint.New(dir).Load(uid, "allocation", &other); found || err != nil {
		t.Errorf("another kind: found %v, %v", found, err)
	}
}

func TestRemoveAndUIDs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pods")
	s := checkpoint.New(dir)
	if uids, err := s.UIDs(); err != nil || len(uids) != 0 {
		t.Errorf("before anything was saved: %v, %v", uids, err)
	}
	for _, u := range []types.UID{"b", "a"} {
		for _, kind := range []string{"kept", "allocation"} {
			if err := s.Save(u, kind, record{}, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if uids, err := s.UIDs(); err != nil || !slices.Equal(uids, []types.UID{"a", "b"}) {
		t.Errorf("UIDs: %v, %v", uids, err)
	}
	for range 2 {
		if err := s.Remove("a"); err != nil {
			t.Fatal(err)
		}
	}
	if uids, err := s.UIDs(); err != nil || !slices.Equal(uids, []types.UID{"b"}) {
		t.Errorf("UIDs after removal: %v, %v", uids, err)
	}
	if found, err := s.Load("a", "kept", &record{}); found || err != nil {
		t.Errorf("a removed record: found %v, %v", found, err)
	}
}

func TestCorruptRecordsAreSetAside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, string(uid), "kept.json")
	save(t, checkpoint.New(dir), record{N: 12})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":        "",
		"zeros":        strings.Repeat("\x00", len(whole)),
		"cut short":    string(whole[:len(whole)-3]),
		"flipped":      strings.Replace(string(whole), "12", "13", 1),
		"no sum":       `{"version":1,"data":{"n":1}}`,
		"other format": `{"version":0,"sum":"","data":{}}`,
		"not ours":     `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := checkpoint.New(dir)
			found, err := s.Load(uid, "kept", &record{})
			if found || err == nil || errors.Is(err, checkpoint.ErrNewer) || !strings.Contains(err.Error(), path) {
				t.Fatalf("found %v, error %v: want one that names %s", found, err, path)
			}
			if aside, err := os.ReadFile(path + ".corrupt"); err != nil || string(aside) != text {
				t.Errorf("set aside: %q, %v", aside, err)
			}
			if found, err := s.Load(uid, "kept", &record{}); found || err != nil {
				t.Errorf("the second time: found %v, %v", found, err)
			}
			save(t, s, record{N: 1})
			loads(t, dir, record{N: 1}, true)
		})
	}
}

func TestDataOfAnotherShapeIsCorrupt(t *testing.T) {
	s := checkpoint.New(t.TempDir())
	save(t, s, record{N: 1})
	var list []string
	if found, err := s.Load(uid, "kept", &list); found || err == nil {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestNewerRecordsAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, string(uid), "kept.json")
	save(t, checkpoint.New(dir), record{N: 1})
	const newer = `{"version":2,"sum":{"of":"another shape"}}`
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	s := checkpoint.New(dir)
	if found, err := s.Load(uid, "kept", &record{}); found || !errors.Is(err, checkpoint.ErrNewer) {
		t.Fatalf("found %v, error %v", found, err)
	}
	if err := s.Save(uid, "kept", record{N: 2}, true); !errors.Is(err, checkpoint.ErrNewer) {
		t.Errorf("Save: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != newer {
		t.Errorf("the newer record says %q now", text)
	}
	if err := s.Save(uid, "allocation", record{}, true); err != nil {
		t.Errorf("another kind is refused: %v", err)
	}
	// A person may delete it, as the error says.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	save(t, s, record{N: 2})
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(uid, "kept", &record{}); !errors.Is(err, checkpoint.ErrNewer) {
		t.Fatal(err)
	}
	// A pod that is gone takes its records along, and a new one of its UID starts afresh.
	if err := s.Remove(uid); err != nil {
		t.Fatal(err)
	}
	save(t, s, record{N: 3})
	loads(t, dir, record{N: 3}, true)
}

// TestEveryStepOfAWriteMayBeTheLast makes what is on disk after each step of Save.
func TestEveryStepOfAWriteMayBeTheLast(t *testing.T) {
	scratch := t.TempDir()
	save(t, checkpoint.New(scratch), record{N: 2})
	text, err := os.ReadFile(filepath.Join(scratch, string(uid), "kept.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []bool{false, true} {
		for step, left := range map[string][]byte{"directory": nil, "created": {}, "half": text[:len(text)/2], "written": text} {
			t.Run(fmt.Sprintf("%s, before %v", step, before), func(t *testing.T) {
				dir := t.TempDir()
				podDir := filepath.Join(dir, string(uid))
				if before {
					save(t, checkpoint.New(dir), record{N: 1})
				} else if err := os.Mkdir(podDir, 0o700); err != nil {
					t.Fatal(err)
				}
				temp := filepath.Join(podDir, ".kept.json.tmp-123")
				if left != nil {
					if err := os.WriteFile(temp, left, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if uids, err := checkpoint.New(dir).UIDs(); err != nil || !slices.Equal(uids, []types.UID{uid}) {
					t.Errorf("UIDs: %v, %v: a pod that isn't listed is never cleaned up", uids, err)
				}
				if before {
					loads(t, dir, record{N: 1}, true)
				} else {
					loads(t, dir, record{}, false)
				}
				if _, err := os.Lstat(temp); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the temporary file is still there: %v", err)
				}
				save(t, checkpoint.New(dir), record{N: 3})
				loads(t, dir, record{N: 3}, true)
			})
		}
	}
}

// TestKilledWriter kills a process that writes all the time.
func TestKilledWriter(t *testing.T) {
	if dir := os.Getenv("PODSTATE_WRITE_TO"); dir != "" {
		s := checkpoint.New(dir)
		for n := 1; ; n++ {
			if err := s.Save(uid, "kept", record{N: n, Text: strings.Repeat("x", n%5000)}, n%2 == 0); err != nil {
				t.Fatal(err)
			}
			fmt.Println("saved", n)
		}
	}
	dir := t.TempDir()
	for round := range 10 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), "PODSTATE_WRITE_TO="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		last := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n, ok := strings.CutPrefix(lines.Text(), "saved "); ok {
				last, _ = strconv.Atoi(n)
			}
			if last == 20+round {
				_ = cmd.Process.Kill() // goes on reading what was still said
			}
		}
		_ = cmd.Wait() // "signal: killed"
		var got record
		if found, err := checkpoint.New(dir).Load(uid, "kept", &got); !found || err != nil || got.N < last {
			t.Fatalf("after %d was saved: %d, found %v, %v", last, got.N, found, err)
		}
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	s := checkpoint.New(filepath.Join(t.TempDir(), "pods"))
	for _, bad := range []string{"", ".", "..", "a/b", "/"} {
		u := types.UID(bad)
		_, loadErr := s.Load(u, "kept", &record{})
		_, kindErr := s.Load(uid, bad, &record{})
		for what, err := range map[string]error{"Load": loadErr, "Load's kind": kindErr, "Save": s.Save(u, "kept", 1, false), "Save's kind": s.Save(uid, bad, 1, false), "Remove": s.Remove(u)} {
			if err == nil {
				t.Errorf("%s took %q", what, bad)
			}
		}
	}
}

func TestFailedSaveLeavesTheOldRecord(t *testing.T) {
	dir := t.TempDir()
	s := checkpoint.New(dir)
	save(t, s, record{N: 1})
	if err := s.Save(uid, "kept", func() {}, true); err == nil {
		t.Error("saved a function")
	}
	if err := s.Save(uid, "kept", json.RawMessage("{"), true); err == nil {
		t.Error("saved what isn't JSON")
	}
	loads(t, dir, record{N: 1}, true)
}

func TestManyPodsAtOnce(t *testing.T) {
	s := checkpoint.New(t.TempDir())
	var wg sync.WaitGroup
	for i := range 20 {
		u := types.UID(strconv.Itoa(i))
		wg.Go(func() {
			for n := range 20 {
				var got record
				if err := s.Save(u, "kept", record{N: n}, n == 0); err != nil {
					t.Error(err)
				}
				if found, err := s.Load(u, "kept", &got); !found || err != nil || got.N != n {
					t.Errorf("pod %s: %+v, %v, %v, want %d", u, got, found, err, n)
				}
			}
			if err := s.Remove(u); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if uids, err := s.UIDs(); err != nil || len(uids) != 0 {
		t.Errorf("left: %v, %v", uids, err)
	}
}

// However many pods come at once, few threads wait for the disk. The disk is pipes that nobody has opened the other end of.
func TestManyRecordsTakeFewThreads(t *testing.T) {
	threads := func() int {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	const pods = 200
	dir := t.TempDir()
	record := func(i int) string { return filepath.Join(dir, fmt.Sprint("pod-", i), "kept.json") }
	for i := range pods {
		if err := errors.Join(os.Mkdir(filepath.Dir(record(i)), 0o700), unix.Mkfifo(record(i), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s, before := checkpoint.New(dir), threads()
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() {
			var v struct{}
			_, _ = s.Load(types.UID(fmt.Sprint("pod-", i)), "kept", &v) // it is empty
		})
	}
	most := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		most = max(most, threads()-before)
	}
	if most > 50 {
		t.Errorf("%d records that can't be read took %d threads", pods, most)
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for i := 0; ; i = (i + 1) % pods {
		select {
		case <-ended:
			return
		default:
		}
		if fd, err := unix.Open(record(i), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil { // somebody waits
			_ = unix.Close(fd)
		}
	}
}
