package archives

import (
	"context"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

// retry is for a containerd that is away.
const retry = 5 * time.Second

// Run imports archives as they appear and change, until ctx ends; then it
// returns nil. Every change leads to a look at the whole directory, so lost and
// doubled ones do no harm.
func (im *Importer) Run(ctx context.Context) error {
	files := filewatch.NewSettled([]string{im.dir}, isArchive, "the next start imports what has come", im.log)
	done := make(chan error, 1)
	go func() { done <- files.Run(ctx) }()
	var again <-chan time.Time
	for {
		// What came between the start's Sync and the watch is found by a first look.
		select {
		case err := <-done:
			return err
		case <-files.Changed():
		case <-again:
		}
		again = nil
		if err := im.Sync(ctx); err != nil && ctx.Err() == nil {
			im.log.V(2).Info("Image archives wait for containerd", "err", err.Error())
			again = time.After(retry)
		}
	}
}
