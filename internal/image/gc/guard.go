package gc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Guard keeps removals and pulls out of each other's way: whoever makes sure that an
// image is present holds it meanwhile, and what is held isn't removed. A pull never
// keeps other images from being removed, however long it takes. It may be used
// by many goroutines.
type Guard struct {
	mu    sync.Mutex
	holds map[*Hold]struct{}
	// removing are the removals under way.
	removing map[*removal]struct{}
	// removed has the number of each image's last removal, while there are holds.
	removed map[string]uint64
	count   uint64
	// found is when images were found present for somebody, since the last look.
	found map[string]time.Time
}

// removal is one under way, of an image and all its names.
type removal struct {
	keys []string
	done chan struct{}
}

// Hold keeps one image from being removed. It is for one goroutine at a time.
type Hold struct {
	guard *Guard
	by    User
	// name is what was asked for, id the image it turned out to be; keys.
	name, id string
	// after is how many removals there had been.
	after uint64
}

// NewGuard makes a guard.
func NewGuard() *Guard {
	return &Guard{
		holds: map[*Hold]struct{}{}, removing: map[*removal]struct{}{},
		removed: map[string]uint64{}, found: map[string]time.Time{},
	}
}

// Hold keeps images of this name from being removed until Release, and waits for one
// that is being removed now. It fails only if ctx ends before. by says for whom, for
// those who ask why an image stays.
func (g *Guard) Hold(ctx context.Context, name string, by User) (*Hold, error) {
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

// Found says which image the name has turned out to be: its ID, or the runtime's
// reference. From now on that is held, under whatever name. If gone is true it was removed
// after the hold began, under another name: then it has to be looked for again.
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

// Release ends the hold. Doing so again is harmless.
func (h *Hold) Release() {
	g := h.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.holds, h)
	if len(g.holds) == 0 {
		clear(g.removed)
	}
}

// afterRemoval calls f, locked, once no removal of what has this key is under way.
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

// begin begins the removal of an image with these keys, the ID's first, unless
// somebody holds it: then it returns nil and who does.
func (g *Guard) begin(keys []string) (*removal, []User) {
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

// end ends a removal. It counts as one, if it was tried: how much of a failed one was
// done isn't known.
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

// uses lists what is held, by key.
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
