package agent

import (
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// Between has a test stand between workers, or the ledger, and what they use; nil changes nothing.
type Between struct {
	Workers func(*worker.Config)
	Ledger  func(*allocation.Config)
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
	})
}
