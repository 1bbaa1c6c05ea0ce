package binder_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// history is a node on which anything may happen, and what has to be remembered of that.
type history struct {
	*node
	// has is which volume each claim was told to be bound to: a claim of a manifest by its
	// name, that of a pod by the pod's UID.
	has map[string]string
	// former is what claims of manifests had before it was let go of, unless another one got it.
	former map[string]string
	// users are the pods that use what a claim of a manifest has.
	users map[string]map[types.UID]bool
	// released are volumes that pods had which are gone.
	released map[string]bool
	repair   func()
}

var names = []string{"1", "2", "3", "4"}

func volumeOf(t *rapid.T) object.Key {
	return volumeKey("v" + rapid.SampledFrom(names).Draw(t, "volume"))
}

func claimOf(t *rapid.T) object.Key {
	return claimKey("c" + rapid.SampledFrom(names).Draw(t, "claim"))
}

// podWithClaim is one of two pods, either of which may come back after it is gone.
func podWithClaim(t *rapid.T) *v1.Pod {
	which := rapid.SampledFrom(names[:2]).Draw(t, "pod")
	return podOf(t, "web"+which, "uid-"+which, scratch)
}

// userWithClaim is one of two pods that use a claim of a manifest.
func userWithClaim(t *rapid.T, claim string) *v1.Pod {
	return userOf(t, "uid-user-"+claim+rapid.SampledFrom(names[:2]).Draw(t, "user"), claim)
}

func (h *history) defines(k object.Key) bool { return h.current().Get(k) != nil }

// holder is who has a volume; "" for nobody.
func (h *history) holder(volume string) string {
	for who, has := range h.has {
		if has == volume {
			return who
		}
	}
	return ""
}

// bindFor binds a pod's volume and checks that against what has been.
func (h *history) bindFor(t *rapid.T, who string, p *v1.Pod) {
	before, had := h.has[who]
	got, err := h.bind(t, p)
	if err != nil {
		writable := h.repair == nil || h.users[who][p.UID] // what has to be written for a new user
		if had && h.defines(volumeKey(before)) && (who[0] == 'p' || h.defines(claimKey(who[1:])) && writable) {
			t.Fatalf("%s can't have its volume %s any more: %v", who, before, err)
		}
		return
	}
	switch other := h.holder(got); {
	case had && got != before:
		t.Fatalf("%s was moved from %s to %s", who, before, got)
	case other != "" && other != who:
		t.Fatalf("%s has %s, which is %s's", who, got, other)
	case h.released[got]:
		t.Fatalf("%s has %s, which is kept", who, got)
	case !had && got != h.former[who] && h.mayHave(who, h.former[who]):
		t.Fatalf("%s has %s, and not %s as before", who, got, h.former[who])
	}
	h.has[who] = got
	maps.DeleteFunc(h.former, func(claim, volume string) bool { return claim == who || volume == got })
	if who[0] == 'm' {
		if h.users[who] == nil {
			h.users[who] = map[types.UID]bool{}
		}
		h.users[who][p.UID] = true
	}
}

// mayHave reports whether a volume is there for a claim of a manifest.
func (h *history) mayHave(who, volume string) bool {
	pv, _ := h.listing().PersistentVolume(context.Background(), volume)
	pvc, _ := h.listing().PersistentVolumeClaim(context.Background(), "default", who[1:])
	return pv != nil && pvc != nil && h.holder(volume) == "" && !h.released[volume] && pv.Spec.Capacity.Storage().Cmp(*pvc.Spec.Resources.Requests.Storage()) >= 0
}

// changed follows what the binder may let go of when objects have changed.
func (h *history) changed(t *rapid.T) {
	if h.Tidy(t.Context()) != nil { // while the disk is broken, after which it is done again
		return
	}
	for who, has := range maps.Clone(h.has) {
		if name, of := who[1:], who[0]; of == 'm' && len(h.users[who]) == 0 && !h.defines(volumeKey(has)) && !h.defines(claimKey(name)) {
			delete(h.has, who)
			h.former[who] = has
		}
	}
	for has := range maps.Clone(h.released) {
		if !h.defines(volumeKey(has)) {
			delete(h.released, has)
		}
	}
}

func (h *history) fix() {
	if h.repair != nil {
		h.repair()
		h.repair = nil
	}
}

// actions are what may happen.
func (h *history) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"define a volume": func(t *rapid.T) {
			h.define(t, pv(volumeOf(t).Name, rapid.SampledFrom([]string{"1Gi", "2Gi"}).Draw(t, "size")))
			h.changed(t)
		},
		"define a claim": func(t *rapid.T) {
			h.define(t, pvc(claimOf(t).Name, rapid.SampledFrom([]string{"1Gi", "2Gi"}).Draw(t, "size")))
			h.changed(t)
		},
		"remove": func(t *rapid.T) {
			h.remove(rapid.SampledFrom([]func(*rapid.T) object.Key{volumeOf, claimOf}).Draw(t, "kind")(t))
			h.changed(t)
		},
		"all goes, and comes back": func(t *rapid.T) {
			for who, users := range h.users {
				for uid := range maps.Clone(users) {
					if h.Forget(t.Context(), uid) != nil {
						return
					}
					delete(h.users[who], uid)
				}
			}
			h.changed(t)
			back := h.defined
			h.defined = map[object.Key]*object.Desired{}
			h.changed(t)
			h.defined = back
			h.changed(t)
		},
		"bind": func(t *rapid.T) {
			name := claimOf(t).Name
			h.bindFor(t, "m"+name, userWithClaim(t, name))
		},
		"forget a user": func(t *rapid.T) {
			name := claimOf(t).Name
			p := userWithClaim(t, name)
			if h.Forget(t.Context(), p.UID) == nil {
				delete(h.users["m"+name], p.UID)
				h.changed(t)
			}
		},
		"bind a pod's own": func(t *rapid.T) {
			p := podWithClaim(t)
			h.bindFor(t, "p"+string(p.UID), p)
		},
		"forget a pod": func(t *rapid.T) {
			uid := podWithClaim(t).UID
			if h.Forget(t.Context(), uid) != nil {
				return // it is tried again
			}
			if volume, had := h.has["p"+string(uid)]; had {
				h.released[volume] = true
				delete(h.has, "p"+string(uid))
			}
			h.changed(t)
		},
		"kill": func(t *rapid.T) {
			h.fix()
			h.restart(t)
			h.changed(t)
		},
		"break the disk": func(t *rapid.T) {
			if _, err := os.Stat(h.dir); err == nil && h.repair == nil {
				h.repair = h.breakDisk(t)
			}
		},
		"repair the disk": func(t *rapid.T) {
			h.fix()
			h.changed(t)
		},
	}
}

// TestNeverTwice: whatever comes, kills and broken disks among it, no two claims have the same volume,
// no claim gets another than it had, or had formerly where that is to be had, and nobody gets what is kept.
func TestNeverTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "binder")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		h := &history{node: newNode(filepath.Join(dir, "volumes")), has: map[string]string{}, former: map[string]string{}, users: map[string]map[types.UID]bool{}, released: map[string]bool{}}
		h.restart(t)
		t.Repeat(h.actions())
		h.fix()
		if volumes := slices.Sorted(maps.Values(h.has)); len(slices.Compact(volumes)) != len(h.has) {
			t.Fatalf("bound %v", h.has)
		}
	})
}
