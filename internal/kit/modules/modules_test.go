package modules

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
)

// steps notes in order what modules do.
type steps struct {
	mu   sync.Mutex
	list []string
}

func (s *steps) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, what)
}

func (s *steps) module(name string) Module {
	return Module{
		Name:  name,
		Start: func(context.Context) error { s.add("+" + name); return nil },
		Run:   func(ctx context.Context) error { <-ctx.Done(); s.add("-" + name); return nil },
	}
}

func (s *steps) expect(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(s.list, " "); got != want {
		t.Errorf("happened: %s; expected: %s", got, want)
	}
}

func TestModulesStopInReverse(t *testing.T) {
	var s steps
	ctx, cancel := context.WithCancel(t.Context())
	last := s.module("c")
	last.Start = func(context.Context) error { cancel(); return nil }
	if err := NewRunner(logr.Discard()).Run(ctx, []Module{s.module("a"), s.module("b"), last}); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "+a +b -c -b -a")
}

func TestFailingStartStopsTheOthers(t *testing.T) {
	var s steps
	broken := Module{Name: "broken", Start: func(context.Context) error { return errors.New("no luck") }}
	err := NewRunner(logr.Discard()).Run(t.Context(), []Module{s.module("a"), broken, s.module("b")})
	if err == nil || err.Error() != "broken: no luck" {
		t.Errorf("error %v", err)
	}
	s.expect(t, "+a -a")
}

func TestFailingModuleEndsAStartUnderWay(t *testing.T) {
	var s steps
	broken := Module{Name: "broken", Run: func(context.Context) error { return errors.New("port in use") }}
	slow := Module{Name: "slow", Start: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	err := NewRunner(logr.Discard()).Run(t.Context(), []Module{s.module("a"), broken, slow, s.module("b")})
	if err == nil || err.Error() != "broken: port in use" {
		t.Errorf("error %v", err)
	}
	s.expect(t, "+a -a")
}

func TestEndDuringStartIsNoError(t *testing.T) {
	var s steps
	ctx, cancel := context.WithCancel(t.Context())
	slow := Module{Name: "slow", Start: func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }}
	if err := NewRunner(logr.Discard()).Run(ctx, []Module{s.module("a"), slow, s.module("b")}); err != nil {
		t.Error(err)
	}
	s.expect(t, "+a -a")
}

func TestModuleThatEndsByItself(t *testing.T) {
	var s steps
	short := Module{Name: "short", Run: func(context.Context) error { return nil }}
	err := NewRunner(logr.Discard()).Run(t.Context(), []Module{s.module("a"), short})
	if err == nil || err.Error() != "short: ended by itself" {
		t.Errorf("error %v", err)
	}
}

func TestModuleThatIsDone(t *testing.T) {
	var s steps
	for name, modules := range map[string][]Module{
		"while all run":         {s.module("a"), {Name: "done", Run: ThenEnd(func(context.Context) error { return nil })}},
		"while others start":    {s.module("a"), {Name: "done", Run: ThenEnd(func(context.Context) error { return nil })}, {Name: "slow", Start: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}},
		"when it is to stop":    {s.module("a"), {Name: "done", Run: ThenEnd(func(ctx context.Context) error { <-ctx.Done(); return nil })}, {Name: "first", Run: func(context.Context) error { return ErrDone }}},
		"and the runtime fails": {{Name: "runtime", Run: func(ctx context.Context) error { <-ctx.Done(); return errors.New("hangs") }}, {Name: "done", Run: ThenEnd(func(context.Context) error { return nil })}},
	} {
		s = steps{}
		err := NewRunner(logr.Discard()).Run(t.Context(), modules)
		if name == "and the runtime fails" {
			if err == nil || err.Error() != "runtime: hangs" {
				t.Errorf("%s: error %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.expect(t, "+a -a")
	}
	failed := ThenEnd(func(context.Context) error { return errors.New("no luck") })
	if err := NewRunner(logr.Discard()).Run(t.Context(), []Module{{Name: "once", Run: failed}}); err == nil || err.Error() != "once: no luck" {
		t.Errorf("one that fails ends it with %v", err)
	}
}

// TestStates: the state of each module is seen while it starts, runs and stops, and afterwards.
func TestStates(t *testing.T) {
	r := NewRunner(logr.Discard())
	seen := func() string {
		var list []string
		for _, s := range r.States() {
			list = append(list, s.Name+"="+string(s.State))
		}
		return strings.Join(list, " ")
	}
	starting, failing := make(chan string, 1), make(chan string, 1)
	release := make(chan struct{})
	err := r.Run(t.Context(), []Module{
		{Name: "a", Run: func(ctx context.Context) error {
			<-ctx.Done()
			failing <- seen()
			return nil
		}},
		{Name: "b", Start: func(context.Context) error {
			starting <- seen()
			return nil
		}},
		{Name: "c", Run: func(context.Context) error {
			<-release
			return errors.New("broken")
		}},
		{Name: "d", Start: func(ctx context.Context) error { close(release); <-ctx.Done(); return ctx.Err() }},
		{Name: "e"},
	})
	if err == nil || err.Error() != "c: broken" {
		t.Errorf("error %v", err)
	}
	for what, list := range map[string][2]string{
		"while b starts": {<-starting, "a=running b=starting c=waiting d=waiting e=waiting"},
		"while a stops":  {<-failing, "a=stopping b=started c=failed d=stopped e=waiting"},
		"at the end":     {seen(), "a=stopped b=started c=failed d=stopped e=waiting"},
	} {
		if list[0] != list[1] {
			t.Errorf("%s: %s, want %s", what, list[0], list[1])
		}
	}
}
