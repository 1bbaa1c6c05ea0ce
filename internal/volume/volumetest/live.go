package volumetest

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/volume"
)

func (c Case) live(t *testing.T) volume.Live {
	t.Helper()
	live, ok := c.Plugin.(volume.Live)
	if !ok {
		t.Fatal("the case has Change, and the plugin is no volume.Live")
	}
	return live
}

// follows checks that containers see the current content of the volume's source, and that unchanged content isn't
// rewritten.
func (c Case) follows(t *testing.T) {
	live := c.live(t)
	r := newRig(t, c)
	r.request.InUse = true
	m := r.mount(t)
	refresh := func(want bool) {
		t.Helper()
		changed, err := live.Refresh(t.Context(), r.request)
		if err != nil {
			t.Fatalf("refresh: %v", err)
		}
		if changed != want {
			t.Errorf("refreshing reports %v, want %v", changed, want)
		}
	}
	before := state(t, r.root)
	refresh(false)
	unchanged(t, r.root, before)
	for n := 1; n <= 3; n++ {
		want := c.Change(n)
		refresh(true)
		r.holds(t, m, want)
		refresh(false) // removes the previous files, which readers may have been opening
		before := state(t, r.root)
		refresh(false)
		unchanged(t, r.root, before)
		if n == 2 {
			// Another agent mounts it again.
			r.mount(t)
			r.holds(t, m, want)
		}
	}
	r.gone(t)
}

// readWhileItChanges reads in a loop, and checks that each read returns exactly one version of the content.
func (c Case) readWhileItChanges(t *testing.T) {
	const changes = 60
	live := c.live(t)
	r := newRig(t, c)
	r.request.InUse = true
	m := r.mount(t)
	versions := []map[string]string{c.Want}
	for n := 1; n <= 3; n++ {
		versions = append(versions, c.Change(n))
	}
	end, done, reads := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(done)
		for ; ; reads++ {
			select {
			case <-end:
				return
			default:
			}
			got, err := read(m.Path)
			if err != nil {
				t.Errorf("read the volume while it changes: %v", err)
				return
			}
			if !among(versions, got) {
				t.Errorf("a reader found %q, which is none of the versions", got)
				return
			}
		}
	}()
	for i := range changes {
		c.Change(i % len(versions))
		if _, err := live.Refresh(t.Context(), r.request); err != nil {
			t.Errorf("refresh: %v", err)
		}
	}
	close(end)
	<-done
	if reads == 0 {
		t.Error("nothing was read")
	}
	r.gone(t)
}

func among(versions []map[string]string, got map[string]string) bool {
	for _, v := range versions {
		if difference(v, got) == "" {
			return true
		}
	}
	return false
}
