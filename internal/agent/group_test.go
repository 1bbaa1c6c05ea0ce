package agent

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

func (s *steps) module(name string) module {
	return module{
		name:  name,
		start: func(context.Context) error { s.add("+" + name); return nil },
		run:   func(ctx context.Context) error { <-ctx.Done(); s.add("-" + name); return nil },
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
	last.start = func(context.Context) error { cancel(); return nil }
	if err := runModules(ctx, logr.Discard(), []module{s.module("a"), s.module("b"), last}); err != nil {
		t.Fatal(err)
	}
	s.expect(t, "+a +b -c -b -a")
}

func TestFailingStartStopsTheOthers(t *testing.T) {
	var s steps
	broken := module{name: "broken", start: func(context.Context) error { return errors.New("no luck") }}
	err := runModules(t.Context(), logr.Discard(), []module{s.module("a"), broken, s.module("b")})
	if err == nil || err.Error() != "broken: no luck" {
		t.Errorf("error %v", err)
	}
	s.expect(t, "+a -a")
}

func TestFailingModuleEndsAStartUnderWay(t *testing.T) {
	var s steps
	broken := module{name: "broken", run: func(context.Context) error { return errors.New("port in use") }}
	slow := module{name: "slow", start: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	err := runModules(t.Context(), logr.Discard(), []module{s.module("a"), broken, slow, s.module("b")})
	if err == nil || err.Error() != "broken: port in use" {
		t.Errorf("error %v", err)
	}
	s.expect(t, "+a -a")
}

func TestEndDuringStartIsNoError(t *testing.T) {
	var s steps
	ctx, cancel := context.WithCancel(t.Context())
	slow := module{name: "slow", start: func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }}
	if err := runModules(ctx, logr.Discard(), []module{s.module("a"), slow, s.module("b")}); err != nil {
		t.Error(err)
	}
	s.expect(t, "+a -a")
}

func TestModuleThatEndsByItself(t *testing.T) {
	var s steps
	short := module{name: "short", run: func(context.Context) error { return nil }}
	err := runModules(t.Context(), logr.Discard(), []module{s.module("a"), short})
	if err == nil || err.Error() != "short: ended by itself" {
		t.Errorf("error %v", err)
	}
}

func TestModuleThatIsDone(t *testing.T) {
	var s steps
	for name, modules := range map[string][]module{
		"while all run":         {s.module("a"), {name: "done", run: thenEnd(func(context.Context) error { return nil })}},
		"while others start":    {s.module("a"), {name: "done", run: thenEnd(func(context.Context) error { return nil })}, {name: "slow", start: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}},
		"when it is to stop":    {s.module("a"), {name: "done", run: thenEnd(func(ctx context.Context) error { <-ctx.Done(); return nil })}, {name: "first", run: func(context.Context) error { return errDone }}},
		"and the runtime fails": {{name: "runtime", run: func(ctx context.Context) error { <-ctx.Done(); return errors.New("hangs") }}, {name: "done", run: thenEnd(func(context.Context) error { return nil })}},
	} {
		s = steps{}
		err := runModules(t.Context(), logr.Discard(), modules)
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
	failed := thenEnd(func(context.Context) error { return errors.New("no luck") })
	if err := runModules(t.Context(), logr.Discard(), []module{{name: "once", run: failed}}); err == nil || err.Error() != "once: no luck" {
		t.Errorf("one that fails ends it with %v", err)
	}
}
