package gc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Guard coordinates removals and pulls: a caller that pulls or saves an image holds it meanwhile, and held images
// aren't removed. A pull never delays the removal of other images, however long it takes. It is safe for concurrent
// use.
type Guard struct {
	mu    sync.Mutex
	holds map[*Hold]struct{}
	// removing are the active removals.
	removing map[*removal]struct{}
	// removed maps a key to the value of count at its last removal. Removals are counted only while there are holds.
	removed map[string]uint64
	count   uint64
	// found is the time when a hold last found an image present, by key. takeFound empties it.
	found map[string]time.Time
}

// removal is the active removal of an image and all its names.
type removal struct {
	keys []string
	done chan struct{}
}

// Hold protects one image from removal. It isn't safe for concurrent use.
type Hold struct {
	guard *Guard
	by    User
	// name is the key of the requested name. id is the key of the image that Found set, "" before.
	name, id string
	// after is the guard's count of removals when the hold began or Found was last called.
	after uint64
}

// NewGuard returns a Guard without holds.
func NewGuard() *Guard {
	return &Guard{
		holds: map[*Hold]struct{}{}, removing: map[*removal]struct{}{},
		removed: map[string]uint64{}, found: map[string]time.Time{},
	}
}

// Acquire protects images with this name from removal until Release. If such an image is being removed, Acquire waits;
// it fails only if ctx ends first. by is the user to report as the reason why the image stays.
func (g *Guard) Acquire(ctx context.Context, name string, by User) (*Hold, error) {
	h := &Hold{guard: g, name: key(name), by: by}
	err := g.afterRemoval(ctx, h.name, func() {
		h.after = g.count
		g.holds[h] = struct{}{}
	})
	if err != nil {
		return nil, fmt.Errorf("image %q is being removed: %w", name, err)
	}
	return h, nil
}

// Found sets the image that the name refers to, by its ID or the runtime's reference. From then on, the hold protects
// this image under all its names. If gone is true, it was removed under another name after the hold began: the caller
// has to check again whether it is present.
func (h *Hold) Found(ctx context.Context, id string) (gone bool, err error) {
	k, g := key(id), h.guard
	err = g.afterRemoval(ctx, k, func() {
		h.id = k
		gone = g.removed[k] > h.after
		h.after = g.count
		g.found[k] = time.Now()
	})
	if err != nil {
		return false, fmt.Errorf("image %s is being removed: %w", id, err)
	}
	return gone, nil
}

// Release ends the hold. It may be called repeatedly.
func (h *Hold) Release() {
	g := h.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.holds, h)
	if len(g.holds) == 0 {
		clear(g.removed)
	}
}

// afterRemoval waits until no removal with this key is active, and calls f while it holds the lock.
func (g *Guard) afterRemoval(ctx context.Context, key string, f func()) error {
	for {
		g.mu.Lock()
		under := g.underWay(key)
		if under == nil {
			f()
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()
		select {
		case <-under.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *Guard) underWay(key string) *removal {
	for r := range g.removing {
		if slices.Contains(r.keys, key) {
			return r
		}
	}
	return nil
}

// startRemoval starts the removal of an image with these keys. If the image is held, it returns nil and the users of
// the holds.
func (g *Guard) startRemoval(keys []string) (*removal, []User) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var users []User
	for h := range g.holds {
		if slices.Contains(keys, h.name) || h.id != "" && slices.Contains(keys, h.id) {
			users = append(users, h.by)
		}
	}
	if len(users) > 0 {
		return nil, users
	}
	r := &removal{keys: keys, done: make(chan struct{})}
	g.removing[r] = struct{}{}
	return r, nil
}

// end ends a removal. tried means that the image may have been removed, at least partly.
func (g *Guard) end(r *removal, tried bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.removing, r)
	if tried && len(g.holds) > 0 {
		g.count++
		for _, k := range r.keys {
			g.removed[k] = g.count
		}
	}
	close(r.done)
}

// uses lists the held images by key.
func (g *Guard) uses() []Use {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Use
	for h := range g.holds {
		out = append(out, Use{Image: h.name, User: h.by})
		if h.id != "" && h.id != h.name {
			out = append(out, Use{Image: h.id, User: h.by})
		}
	}
	return out
}

// takeFound returns when images were found present since the last call, by key.
func (g *Guard) takeFound() map[string]time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := g.found
	g.found = map[string]time.Time{}
	return found
}
