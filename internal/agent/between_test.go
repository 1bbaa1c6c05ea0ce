package agent

import (
	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// NewBetween is New with a test standing between the workers and what they use.
func NewBetween(cfg *config.Config, log logr.Logger, between func(*worker.Config)) (*Agent, error) {
	return New(cfg, Options{Log: log, between: between})
}
