package agent

import (
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// NewBetween is New with a test standing between the workers and what they use.
func NewBetween(cfg *config.Config, o Options, between func(*worker.Config)) (*Agent, error) {
	return build(cfg, o, func(w *worker.Waker, c worker.Config) *worker.Pool {
		between(&c)
		return worker.New(w, c)
	})
}
