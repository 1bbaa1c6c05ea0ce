package agent

import (
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// Between changes what an agent is made of; its zero value changes nothing.
type Between struct {
	Workers func(*worker.Config)
	Ledger  func(*allocation.Config)
	// Engines are kinds before those of the build, Sources after them.
	Engines []engine.Kind
	Sources []desired.SourceKind
}

// NewBetween is New with a test in between.
func NewBetween(cfg *config.Config, o Options, b Between) (*Agent, error) {
	return build(cfg, o, constructors{
		pool: func(w *worker.Waker, c worker.Config) *worker.Pool {
			if b.Workers != nil {
				b.Workers(&c)
			}
			return worker.New(w, c)
		},
		ledger: func(c allocation.Config) *allocation.Manager {
			if b.Ledger != nil {
				b.Ledger(&c)
			}
			return allocation.New(c)
		},
		engines: append(b.Engines, engine.Kinds()...),
		sources: func(list []desired.SourceKind) []desired.SourceKind { return append(list, b.Sources...) },
	})
}

// Modules returns the names of the agent's modules, in the order in which they start.
func (a *Agent) Modules() (names []string) {
	for _, m := range a.modules {
		names = append(names, m.Name)
	}
	return names
}
