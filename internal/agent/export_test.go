package agent

import (
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// Between changes the configuration of the workers and of the ledger before they are made; nil leaves it as it is.
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
