package config_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/deckhand-node/deckhand/internal/config"
)

// bench is a Reloader whose next configuration a test sets.
type bench struct {
	*config.Reloader
	next    *config.Config
	err     error
	applied []*config.Config
	results []config.ReloadResult
	begun   int
}

// begin runs a Reloader in the bubble of a synctest.
func begin(t *testing.T, start *config.Config) *bench {
	t.Helper()
	b := &bench{}
	b.Reloader = config.NewReloader(start, config.ReloadOptions{
		Load:  func(context.Context, *config.Config) (*config.Config, error) { return b.next, b.err },
		Apply: func(c *config.Config) { b.applied = append(b.applied, c) },
		Begin: func() { b.begun++ },
		End:   func(r config.ReloadResult) { b.results = append(b.results, r) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

// reload has the next configuration read, and returns what came of that.
func (b *bench) reload(next *config.Config, err error) config.ReloadResult {
	b.next, b.err = next, err
	b.Ask()
	synctest.Wait()
	return b.results[len(b.results)-1]
}

func with(set func(*config.Config)) *config.Config {
	c := &config.Config{}
	c.Kubelet.MaxPods, c.Kubelet.RegistryBurst = 110, 10
	set(c)
	return c
}

func TestWhatComesOfAReload(t *testing.T) {
	same := func(*config.Config) {}
	for name, c := range map[string]struct {
		next             *config.Config
		err              error
		outcome          config.ReloadOutcome
		changed, restart []string
		says             string
	}{
		"nothing new": {with(same), nil, config.Unchanged, nil, nil, "nothing in it has changed"},
		"live fields": {with(func(c *config.Config) { c.Kubelet.RegistryBurst = 3; c.Kubelet.MaxPods = 5 }), nil, config.Applied,
			[]string{"maxPods", "registryBurst"}, nil, "reloaded: maxPods, registryBurst"},
		"a map's key": {with(func(c *config.Config) { c.Kubelet.EvictionHard = map[string]string{"memory.available": "1Mi"} }), nil, config.Applied,
			[]string{"evictionHard[memory.available]"}, nil, "evictionHard[memory.available]"},
		"others": {with(func(c *config.Config) { c.Kubelet.RegistryBurst = 3; c.Kubelet.ClusterDomain = "a" }), nil, config.Refused,
			[]string{"clusterDomain", "registryBurst"}, []string{"clusterDomain"}, "clusterDomain can't change while the agent runs: restart the agent (until then, 1 other"},
		"invalid": {nil, errors.New("x.yaml:3: no"), config.Invalid, nil, nil, "the previous one stays in force: x.yaml:3: no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := with(same)
				b := begin(t, start)
				r := b.reload(c.next, c.err)
				if r.Outcome != c.outcome || !slices.Equal(r.Changed, c.changed) || !slices.Equal(r.NeedRestart, c.restart) || !strings.Contains(r.Message(), c.says) {
					t.Errorf("it came to %+v: %s", r, r.Message())
				}
				inForce, applied := start, 0
				switch c.outcome {
				case config.Applied:
					inForce, applied = c.next, 1
				case config.Unchanged:
					inForce = c.next
				}
				if b.Current() != inForce || len(b.applied) != applied || b.begun != 1 {
					t.Errorf("in force is %+v; applied %d times, begun %d times", b.Current(), len(b.applied), b.begun)
				}
			})
		})
	}
}

// Files are touched more often than changed.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, with(func(*config.Config) {}))
		b.next = with(func(*config.Config) {})
		b.CheckFiles()
		synctest.Wait()
		if len(b.results) > 0 || b.begun > 0 || b.Current() != b.next {
			t.Errorf("reported %+v about the same configuration", b.results)
		}
		b.next = with(func(c *config.Config) { c.Kubelet.RegistryBurst = 3 })
		b.CheckFiles()
		synctest.Wait()
		if len(b.results) != 1 || b.begun != 1 || b.results[0].Outcome != config.Applied {
			t.Errorf("reported %+v about another", b.results)
		}
	})
}

// What was refused is taken in once it may be: compared is always with what is in force.
func TestAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := begin(t, with(func(*config.Config) {}))
		b.reload(with(func(c *config.Config) { c.Kubelet.RegistryBurst = 3; c.Kubelet.ClusterDomain = "a" }), nil)
		r := b.reload(with(func(c *config.Config) { c.Kubelet.RegistryBurst = 3 }), nil)
		if r.Outcome != config.Applied || !slices.Equal(r.Changed, []string{"registryBurst"}) || b.Current().Kubelet.RegistryBurst != 3 {
			t.Errorf("it came to %+v", r)
		}
	})
}

// Apply finds the configuration in force already.
func TestInForceBeforeApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *config.Reloader
		next := with(func(c *config.Config) { c.Kubelet.RegistryBurst = 3 })
		seen := false
		r = config.NewReloader(with(func(*config.Config) {}), config.ReloadOptions{
			Load:  func(context.Context, *config.Config) (*config.Config, error) { return next, nil },
			Apply: func(c *config.Config) { seen = r.Current() == c && c == next },
			Begin: func() {}, End: func(config.ReloadResult) {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		r.Ask()
		r.Ask() // a second one before the first is seen to is the same
		go func() { synctest.Wait(); cancel() }()
		if err := r.Run(ctx); err != nil || !seen {
			t.Errorf("%v, seen %v", err, seen)
		}
	})
}
