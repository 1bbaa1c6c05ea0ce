package userns_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// TestNeverTwice: whatever comes, restarts, other lengths and lost records among it, no
// two pods that are there have an ID in common, each keeps what it has, and the
// node's range is never left.
func TestNeverTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "userns")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		n := &node{dir: filepath.Join(dir, "pods"), ids: userns.Range{HostID: block, Length: 8 * block}}
		m := restart(t, n)
		has := map[types.UID]userns.Range{}
		uid := rapid.Map(rapid.IntRange(0, 11), func(i int) types.UID { return types.UID(fmt.Sprint("p", i)) })
		t.Repeat(map[string]func(*rapid.T){
			"ensure": func(t *rapid.T) {
				u := uid.Draw(t, "pod")
				r, err := m.Ensure(u)
				old, had := has[u]
				switch {
				case had && (err != nil || r != old):
					t.Fatalf("%s had %v and now %v, %v", u, old, r, err)
				case err != nil && room(n, has):
					t.Fatalf("%s: %v, though there is room beside %v", u, err, has)
				case err == nil:
					has[u] = r
				}
			},
			"release": func(t *rapid.T) {
				u := uid.Draw(t, "pod")
				if err := m.Release(u); err != nil {
					t.Fatal(err)
				}
				delete(has, u)
			},
			"remove directory": func(t *rapid.T) { // the agent dies between that and Release
				u := uid.Draw(t, "pod")
				if err := os.RemoveAll(filepath.Join(n.dir, string(u))); err != nil {
					t.Fatal(err)
				}
				delete(has, u)
				m = restart(t, n)
			},
			"restart": func(t *rapid.T) {
				n.perPod = rapid.SampledFrom([]uint32{block, 2 * block, 3 * block}).Draw(t, "IDs per pod")
				m = restart(t, n)
			},
			"": func(t *rapid.T) { apart(t, n, has) },
		})
	})
}

func restart(t *rapid.T, n *node) *userns.Manager {
	m := n.manager()
	if err := m.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	return m
}

// room reports whether as many IDs as a pod needs are free in a row.
func room(n *node, has map[types.UID]userns.Range) bool {
	perPod := max(n.perPod, block) / block
	run := uint32(0)
	for b := n.ids.HostID / block; b < (n.ids.HostID+n.ids.Length)/block; b++ {
		run++
		for _, r := range has {
			if b >= r.HostID/block && b < (r.HostID+r.Length)/block {
				run = 0
			}
		}
		if run == perPod {
			return true
		}
	}
	return false
}

func apart(t *rapid.T, n *node, has map[types.UID]userns.Range) {
	owner := map[uint32]types.UID{}
	for u, r := range has {
		if r.HostID < n.ids.HostID || r.HostID+r.Length > n.ids.HostID+n.ids.Length || r.HostID%block != 0 {
			t.Fatalf("%s has %v of %v", u, r, n.ids)
		}
		for b := r.HostID; b < r.HostID+r.Length; b += block {
			if other, ok := owner[b]; ok {
				t.Fatalf("%s and %s both have ID %d", u, other, b)
			}
			owner[b] = u
		}
	}
}
