package userns_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

const block = userns.Block

// node is what outlives a manager.
type node struct {
	dir    string
	ids    userns.Range
	perPod uint32
	mapped []userns.Range
}

func newNode(t *testing.T, pods uint32) *node {
	return &node{dir: filepath.Join(t.TempDir(), "pods"), ids: userns.Range{HostID: block, Length: pods * block}}
}

func (n *node) find(context.Context) (userns.Range, error) { return n.ids, nil }

func (n *node) manager() *userns.Manager {
	return userns.New(userns.Config{PodsDir: n.dir, Find: n.find, PerPod: n.perPod, Mapped: func() ([]userns.Range, error) { return n.mapped, nil }})
}

func (n *node) record(uid string) string { return filepath.Join(n.dir, uid, "userns") }

func (n *node) write(t *testing.T, uid, text string, age time.Duration) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(n.dir, uid), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.record(uid), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(n.record(uid), at, at); err != nil {
		t.Fatal(err)
	}
}

func text(host, length uint32) string {
	m := fmt.Sprintf(`[{"hostId":%d,"containerId":0,"length":%d}]`, host, length)
	return fmt.Sprintf(`{"uidMappings":%s,"gidMappings":%s}`, m, m)
}

func restored(t *testing.T, n *node) *userns.Manager {
	t.Helper()
	m := n.manager()
	if err := m.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	return m
}

func ensure(t *testing.T, m *userns.Manager, uid types.UID) userns.Range {
	t.Helper()
	r, err := m.Ensure(uid)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRecordIsTheKubelets(t *testing.T) {
	n := newNode(t, 3)
	m := restored(t, n)
	ensure(t, m, "a")
	if r := ensure(t, m, "b"); r != (userns.Range{HostID: 2 * block, Length: block}) {
		t.Errorf("second pod: %+v", r)
	}
	got, err := os.ReadFile(n.record("b"))
	if err != nil || string(got) != text(2*block, block) {
		t.Errorf("record %s, %v", got, err)
	}
	info, err := os.Stat(n.record("b"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again := ensure(t, m, "b"); again.HostID != 2*block {
		t.Errorf("the pod was given other IDs: %v", again)
	}
}

func TestRestart(t *testing.T) {
	n := newNode(t, 4)
	m := restored(t, n)
	a, b := ensure(t, m, "a"), ensure(t, m, "b")
	n.perPod = 2 * block // counts for new pods only
	m = restored(t, n)
	if r, err := m.Get("a"); err != nil || r != a {
		t.Errorf("a: %v, %v", r, err)
	}
	if r := ensure(t, m, "b"); r != b {
		t.Errorf("b: %v", r)
	}
	if _, err := m.Get("c"); !errors.Is(err, userns.ErrNone) {
		t.Errorf("c: %v", err)
	}
	if r := ensure(t, m, "c"); r != (userns.Range{HostID: 3 * block, Length: 2 * block}) {
		t.Errorf("c: %v", r)
	}
}

func TestFullAndReleased(t *testing.T) {
	n := newNode(t, 2)
	m := restored(t, n)
	a := ensure(t, m, "a")
	ensure(t, m, "b")
	if _, err := m.Ensure("c"); err == nil || !strings.Contains(err.Error(), "65536-196607, 65536 for each) are in use by 2 pods") {
		t.Errorf("a third pod on a node for two: %v", err)
	}
	for range 2 {
		if err := m.Release("a"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(n.record("a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
	if r := ensure(t, m, "c"); r != a {
		t.Errorf("c: %v", r)
	}
	if err := m.Release("never"); err != nil {
		t.Errorf("nothing to give back: %v", err)
	}
}

func TestReleaseThatFailsGivesNothingBack(t *testing.T) {
	n := newNode(t, 1)
	m := restored(t, n)
	ensure(t, m, "a")
	if err := os.Remove(n.record("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(n.record("a"), "x"), 0o700); err != nil { // can't be unlinked
		t.Fatal(err)
	}
	if err := m.Release("a"); err == nil {
		t.Fatal("no error")
	}
	if _, err := m.Ensure("b"); err == nil {
		t.Error("its IDs were given to another pod")
	}
}

func TestUnwritableRecordKeepsItsIDs(t *testing.T) {
	n := newNode(t, 2)
	m := restored(t, n)
	if err := os.MkdirAll(n.record("a"), 0o700); err != nil { // a directory where the record goes
		t.Fatal(err)
	}
	if _, err := m.Ensure("a"); err == nil {
		t.Fatal("no error")
	}
	if _, err := m.Get("a"); !errors.Is(err, userns.ErrNone) {
		t.Errorf("what isn't recorded was given out: %v", err)
	}
	b := ensure(t, m, "b")
	if err := os.Remove(n.record("a")); err != nil {
		t.Fatal(err)
	}
	if a := ensure(t, m, "a"); a == b || a.HostID != block {
		t.Errorf("a %v, b %v", a, b)
	}
}

func TestDamagedRecord(t *testing.T) {
	for name, bad := range map[string]string{
		"cut short":      `{"uidMappings":[{"hostId":65536,`,
		"empty":          "",
		"the host's own": text(0, block),
		"unaligned":      text(65537, block),
		"too far":        text(0xffff0000, block),
		"two lengths":    strings.Replace(text(block, block), "65536}]}", "131072}]}", 1),
		"not from 0":     strings.ReplaceAll(text(block, block), `"containerId":0`, `"containerId":5`),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 4)
			n.write(t, "bad", bad, time.Hour)
			n.write(t, "good", text(2*block, block), 0)
			n.mapped = []userns.Range{{HostID: block, Length: block}} // what bad runs with
			m := n.manager()
			if err := m.Restore(context.Background()); err == nil || !strings.Contains(err.Error(), "pod bad is damaged") {
				t.Errorf("restore: %v", err)
			}
			if r, err := m.Get("good"); err != nil || r.HostID != 2*block {
				t.Errorf("the pod beside it: %v, %v", r, err)
			}
			if _, err := m.Get("bad"); err == nil {
				t.Error("something can be started with IDs that nobody knows")
			}
			if _, err := m.Ensure("bad"); err == nil {
				t.Error("a pod that may run was given other IDs")
			}
			if r := ensure(t, m, "new"); r.HostID != 3*block {
				t.Errorf("the new pod has %v", r)
			}
			if err := m.Release("bad"); err != nil {
				t.Fatal(err)
			}
			if r := ensure(t, m, "bad"); r.HostID != block {
				t.Errorf("made anew it has %v", r)
			}
		})
	}
}

func TestDamagedRecordFixed(t *testing.T) {
	n := newNode(t, 4)
	n.write(t, "bad", "?", 0)
	m := n.manager()
	if m.Restore(context.Background()) == nil {
		t.Fatal("no error")
	}
	n.write(t, "bad", text(3*block, block), 0)
	if r, err := m.Get("bad"); err != nil || r.HostID != 3*block {
		t.Errorf("fixed: %v, %v", r, err)
	}
}

func TestDamagedRecordAndNobodyToAsk(t *testing.T) {
	n := newNode(t, 4)
	n.write(t, "bad", "?", 0)
	m := userns.New(userns.Config{PodsDir: n.dir, Find: n.find, Mapped: func() ([]userns.Range, error) { return nil, errors.New("no /proc") }})
	if m.Restore(context.Background()) == nil {
		t.Fatal("no error")
	}
	if _, err := m.Ensure("new"); err == nil || !strings.Contains(err.Error(), "no /proc") {
		t.Errorf("IDs were given out that may be in use: %v", err)
	}
}

func TestOverlap(t *testing.T) {
	n := newNode(t, 4)
	n.write(t, "a-later", text(2*block, block), 0)
	n.write(t, "first", text(block, 2*block), time.Hour)
	m := n.manager()
	if err := m.Restore(context.Background()); err == nil || !strings.Contains(err.Error(), "131072-196607 of pod a-later overlap those of pod first") {
		t.Errorf("restore: %v", err)
	}
	if r, err := m.Get("first"); err != nil || r.Length != 2*block {
		t.Errorf("first: %v, %v", r, err)
	}
	if _, err := m.Ensure("a-later"); err == nil {
		t.Error("two pods are started with the same IDs")
	}
	if r := ensure(t, m, "new"); r.HostID != 3*block {
		t.Errorf("new: %v", r)
	}
	if err := m.Release("first"); err != nil {
		t.Fatal(err)
	}
	if r, err := m.Get("a-later"); err != nil || r.HostID != 2*block {
		t.Errorf("nobody else has its IDs any more: %v, %v", r, err)
	}
}

func TestRecordThatIsALink(t *testing.T) {
	n := newNode(t, 4)
	if err := os.MkdirAll(filepath.Join(n.dir, "a"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", n.record("a")); err != nil {
		t.Fatal(err)
	}
	if err := n.manager().Restore(context.Background()); err == nil {
		t.Error("a link was followed")
	}
}

func TestNoIDs(t *testing.T) {
	m := userns.New(userns.Config{PodsDir: t.TempDir(), Find: func(context.Context) (userns.Range, error) {
		return userns.Range{}, errors.New("no subordinate IDs")
	}})
	if err := m.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Ensure("a"); err == nil || err.Error() != "no subordinate IDs" {
		t.Errorf("unexpected error: %v", err)
	}
	if _, err := m.Ensure("../a"); err == nil {
		t.Error("a path was taken for a UID")
	}
}

func TestManyAtOnce(t *testing.T) {
	n := newNode(t, 64)
	m := restored(t, n)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if _, err := m.Ensure(types.UID(fmt.Sprint("p", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[userns.Range]bool{}
	for i := range 64 {
		r, err := m.Get(types.UID(fmt.Sprint("p", i)))
		if err != nil || seen[r] {
			t.Errorf("pod %d: %v, %v", i, r, err)
		}
		seen[r] = true
	}
}
