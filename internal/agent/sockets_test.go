package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// toyEngine is an engine that a module of its own starts.
type toyEngine struct {
	engine.External
	start func() error
}

func (e toyEngine) Modules(engine.Owner) []modules.Module {
	return []modules.Module{{Name: "toy engine", Start: func(context.Context) error { return e.start() }}}
}

func (toyEngine) Problems() []pod.Problem {
	return []pod.Problem{{Origin: "toy engine", Message: "it is a toy", Since: time.Now(), General: true}}
}

// TestAnotherEngine: one more member of the list is all that an engine needs to run pods.
func TestAnotherEngine(t *testing.T) {
	r := prepareRig(t, "")
	r.between = agent.Between{Engines: []engine.Kind{{
		Fits: func(*config.Config) bool { return true },
		New: func(cfg *config.Config, _ engine.Hooks, _ logr.Logger) (engine.Engine, error) {
			return toyEngine{engine.External(cfg.Kubelet.ContainerRuntimeEndpoint), func() error { return r.Start(r.path("cri.sock")) }}, nil
		},
	}}}
	r.want("web", "  containers: [{name: main, image: IMAGE}]")
	r.up()
	r.await("it runs", r.running("web/main"))
	s, err := r.client().Snapshot(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(s.Problems), "it is a toy") {
		t.Errorf("its problem isn't shown: %v, %v", s.Problems, err)
	}
	n, err := r.client().Node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]modules.State{}
	for _, m := range n.Modules {
		states[m.Name] = m.State
	}
	if len(states) != len(n.Modules) || states["toy engine"] != modules.Started || states["workers"] != modules.Running || states["kernel settings"] != modules.Started {
		t.Errorf("the modules are %v", n.Modules)
	}
}

// shift is a source of two pods. It reports the second pod when the status of the first one is Running.
type shift struct {
	reader   *reader.Reader
	to       *desired.Merger
	statuses *podstatus.Store
}

func (s shift) run(ctx context.Context) error {
	changed, stop := s.statuses.Watch()
	defer stop()
	began := time.Now()
	claim := func(name string) desired.Claim {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: main, image: \"" + image + "\"}]}"
		docs, err := s.reader.Read([]byte(text))
		if err != nil || len(docs) != 1 {
			panic(fmt.Sprint(docs, err))
		}
		d, _, _ := s.reader.Desire(docs[0], reader.First(s.reader.UID(docs[0], "the shift"), began), "the shift")
		return desired.Claim{Desired: d, Document: 1, Since: began}
	}
	first, second := claim("first"), claim("second")
	r := desired.Report{Source: s.reader.Source(), Claims: []desired.Claim{first}}
	s.to.Report(r)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		if e := s.statuses.Get(first.Desired.Pod.UID); e != nil && e.Pod.Status.Phase == v1.PodRunning && len(r.Claims) == 1 {
			r.Claims = []desired.Claim{first, second}
			s.to.Report(r)
		}
	}
}

// TestAnotherSource: one more member of the list is all that a source needs to have pods run, and to read their statuses.
func TestAnotherSource(t *testing.T) {
	r := newRig(t)
	r.between.Sources = []desired.SourceKind{{Name: "shift", New: func(m *desired.Merger, statuses *podstatus.Store) (desired.Source, error) {
		s := shift{reader.New("n", "shift", reader.RulesOf(r.cfg)), m, statuses}
		return desired.Source{Module: modules.Module{Name: "shift", Run: s.run}, Exposures: func() []string { return []string{"everybody"} }}, nil
	}}}
	r.want("third", "  containers: [{name: main, image: IMAGE}]")
	r.up()
	r.await("all run", r.running("first/main", "second/main", "third/main"))
	r.awaitPod("second", func(v local.PodView) string {
		if v.Source != "shift" {
			return fmt.Sprintf("its source is %q", v.Source)
		}
		return ""
	})
	s, err := r.client().Snapshot(t.Context())
	if err != nil || !strings.Contains(fmt.Sprint(s.Exposures), "everybody") {
		t.Errorf("exposures are %v, %v", s.Exposures, err)
	}
}
