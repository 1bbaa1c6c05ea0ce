package rig

import (
	"context"
	"errors"
	"fmt"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Pull has the agent pull an image, as `deckhand images pull` does, and returns once it is there.
func (a *Agent) Pull(ctx context.Context, image string) error {
	for update, err := range local.NewClient(local.SocketPath(a.path("root"))).PullImage(ctx, image) {
		if err != nil {
			return fmt.Errorf("have the agent pull %s: %w", image, err)
		}
		if update.Image != nil {
			return nil
		}
	}
	return errors.New("the agent didn't say what came of the pull")
}
