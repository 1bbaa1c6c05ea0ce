package volumetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

// killed checks that, whatever step an agent was killed at, the next agent completes the work.
func (c Case) killed(t *testing.T) {
	mount := func(dir string) error {
		if c.Change != nil {
			c.Change(0)
		}
		r := c.rig(dir, "uid-1")
		r.withGroup()
		_, err := r.Plugin.Mount(context.Background(), r.request)
		return err
	}
	prepare := func(t *testing.T, dir string) {
		if err := c.prepare(dir); err != nil {
			t.Fatal(err)
		}
	}
	mounted := func(t *testing.T, dir string) {
		prepare(t, dir)
		if err := mount(dir); err != nil {
			t.Fatal(err)
		}
	}
	killtest.Run(t, killtest.Case{Name: "mounting, and mounted again", Fresh: prepare, Child: mount,
		Check: c.completed})
	killtest.Run(t, killtest.Case{Name: "mounting, and taken down", Fresh: prepare, Child: mount,
		Check: func(t *testing.T, dir string, _ int) {
			c.rig(dir, "uid-1").gone(t)
		}})
	if !c.Elsewhere {
		takeDown := func(dir string) error { return c.rig(dir, "uid-1").takeDown(context.Background()) }
		killtest.Run(t, killtest.Case{Name: "taking it down", Fresh: mounted, Child: takeDown,
			Check: func(t *testing.T, dir string, _ int) {
				c.rig(dir, "uid-1").gone(t)
			}})
	}
	if c.Change != nil {
		killtest.Run(t, killtest.Case{Name: "refreshing", Fresh: mounted, Child: c.refresh, Check: c.refreshed})
	}
}

// completed mounts the volume again and compares it with a volume whose mount wasn't interrupted.
func (c Case) completed(t *testing.T, dir string, _ int) {
	r := c.rig(dir, "uid-1")
	r.withGroup()
	m := r.mount(t)
	r.holds(t, m, c.Want)
	if m.Path != "" && !c.Outlives {
		other := c.rig(dir, "uid-2")
		other.withGroup()
		if got, want := owner(t, m), owner(t, other.mount(t)); got != want {
			t.Errorf("the volume is of %s, want %s", got, want)
		}
		other.gone(t)
	}
	r.gone(t)
}

func (c Case) refresh(dir string) error {
	live, ok := c.Plugin.(volume.Live)
	if !ok {
		return fmt.Errorf("the plugin %s is no volume.Live", c.Plugin.Name())
	}
	c.Change(1)
	r := c.rig(dir, "uid-1")
	r.withGroup()
	_, err := live.Refresh(context.Background(), r.request)
	return err
}

// refreshed checks that the volume has the complete old or the complete new content, and the new content after another
// Refresh.
func (c Case) refreshed(t *testing.T, dir string, _ int) {
	r := c.rig(dir, "uid-1")
	r.withGroup()
	want := c.Change(1)
	got, err := read(r.request.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if !among([]map[string]string{c.Want, want}, got) {
		t.Errorf("an agent that was killed left %q", got)
	}
	if _, err := c.live(t).Refresh(t.Context(), r.request); err != nil {
		t.Fatal(err)
	}
	r.holds(t, volume.Mounted{Path: r.request.Dir}, want)
	if changed, err := c.live(t).Refresh(t.Context(), r.request); changed || err != nil {
		t.Fatalf("refresh what is up to date: %t, %v", changed, err)
	}
	before := state(t, r.root)
	r.request.InUse = true
	r.mount(t)
	unchanged(t, r.root, before)
	if left := versions(t, r.request.Dir); len(left) > 1 {
		t.Errorf("more than one version is left: %q", left)
	}
	r.gone(t)
}
