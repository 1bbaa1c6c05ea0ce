package clock

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// machine has the clocks of a machine, which tests set.
type machine struct {
	reading
	armed bool
	set   chan struct{}
	ended chan struct{}
	// broken is what arm returns.
	broken error
}

func newMachine() *machine {
	return &machine{reading: reading{wall: time.Unix(1e9, 0), boot: time.Hour, awake: time.Hour},
		set: make(chan struct{}, 1), ended: make(chan struct{})}
}

func (m *machine) arm() error    { m.armed = true; return m.broken }
func (m *machine) read() reading { return m.reading }
func (m *machine) close()        { close(m.ended) }

func (m *machine) await() error {
	select {
	case <-m.set:
		m.armed = false
	case <-m.ended:
	}
	return nil
}

// pass has time pass, with these changes of the clock beside it, after which the kernel wakes who waits.
func (m *machine) pass(d, step, sleep time.Duration) {
	m.boot, m.awake, m.wall = m.boot+d+sleep, m.awake+d, m.wall.Add(d+sleep+step)
	if step != 0 || sleep != 0 {
		m.set <- struct{}{}
	}
	synctest.Wait()
}

func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m, done := newMachine(), make(chan error)
		c := &Clock{first: m.reading}
		m.pass(time.Minute, 3*time.Hour, 0)
		<-m.set // nobody waits yet
		var steps []time.Duration
		slept := 0
		go func() {
			done <- c.follow(ctx, m, func(s pod.ClockStep) {
				if list := c.Steps(); list[len(list)-1] != s {
					t.Errorf("Steps are %v after %v", list, s)
				}
				if shows := s.From.Add(s.By); !shows.Equal(m.wall) {
					t.Errorf("after the step the clock should show %v, it shows %v", shows, m.wall)
				}
				steps = append(steps, s.By)
			}, func() { slept++ })
		}()
		want := func(when string, sleeps int, want ...time.Duration) {
			t.Helper()
			if !slices.Equal(steps, want) || slept != sleeps {
				t.Errorf("%s: steps %v, want %v; %d suspensions, want %d", when, steps, want, slept, sleeps)
			}
			if !m.armed {
				t.Errorf("%s: nobody waits for the next step", when)
			}
			steps, slept = nil, 0
		}
		synctest.Wait()
		want("before it ran", 0, 3*time.Hour)
		m.pass(time.Minute, time.Hour, 0)
		want("an hour forward", 0, time.Hour)
		m.pass(time.Minute, -2*time.Hour, 0)
		want("two hours back", 0, -2*time.Hour)
		m.pass(time.Minute, -time.Second, 0)
		want("one second", 0)
		m.pass(time.Minute, -time.Second, 0)
		want("another one", 0, -2*time.Second)
		m.pass(time.Minute, 0, time.Hour)
		want("suspended", 1)
		m.pass(time.Minute, 0, time.Second)
		want("suspended for a second", 0)
		m.pass(time.Minute, time.Minute, time.Hour)
		want("suspended, and set meanwhile", 1, time.Minute)
		m.pass(time.Minute, time.Unix(0, 0).Sub(m.wall), 0)
		m.pass(time.Second, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC).Sub(m.wall), 0)
		if len(steps) != 2 || m.wall.UTC().Year() != 2099 {
			t.Errorf("to 1970 and 2099: %v, %v", steps, m.wall)
		}
		for range most {
			m.pass(time.Second, time.Minute, 0)
		}
		if list := c.Steps(); len(list) != most || list[0].By != time.Minute {
			t.Errorf("%d steps are kept: %v", len(list), list)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestKernelWithoutSteps(t *testing.T) {
	m := newMachine()
	m.broken = errors.New("no")
	if err := (&Clock{first: m.reading}).follow(t.Context(), m, nil, nil); !errors.Is(err, m.broken) {
		t.Error(err)
	}
	select {
	case <-m.ended:
	default:
		t.Error("the source wasn't closed")
	}
}

// The real kernel: its clock isn't set here, but it reads, waits and ends.
func TestRealClock(t *testing.T) {
	s, err := openSource()
	if err != nil {
		t.Fatal(err)
	}
	first := s.read()
	time.Sleep(10 * time.Millisecond)
	second := s.read()
	s.close()
	if by := second.stepSince(first); by.Abs() >= least {
		t.Errorf("the clock seems to be set by %v", by)
	}
	if slept := second.sleptSince(first); slept >= least {
		t.Errorf("the machine seems to have been suspended for %v", slept)
	}
	if passed := second.boot - first.boot; passed < 10*time.Millisecond {
		t.Errorf("%v passed", passed)
	}
	if s, err = openSource(); err != nil {
		t.Fatal(err)
	}
	if err := s.arm(); err != nil {
		t.Fatal(err)
	}
	woken := make(chan error)
	go func() { woken <- s.await() }()
	select {
	case err := <-woken:
		t.Errorf("it didn't wait: %v", err)
	case <-time.After(100 * time.Millisecond):
		s.close()
		if err := <-woken; !errors.Is(err, os.ErrClosed) {
			t.Errorf("it was closed, and returned %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New().Run(ctx, nil, nil); err != nil {
		t.Error(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New().Run(ctx, func(pod.ClockStep) {}, func() {}) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
