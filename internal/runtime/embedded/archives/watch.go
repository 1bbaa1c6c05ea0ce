package archives

import (
	"context"
	"time"
)

// retry is the delay before the next Sync while containerd is unavailable, retryFull the time between two measurements
// of a full disk.
const (
	retry     = 5 * time.Second
	retryFull = time.Minute
)

// Run imports archives as they appear and change, until ctx ends; then it returns nil. Every change triggers a scan
// of the whole directory, so lost and duplicate events do no harm.
func (im *Importer) Run(ctx context.Context) error {
	files := im.files.NewSettled([]string{im.dir}, isArchive, im.log)
	done := make(chan error, 1)
	go func() { done <- files.Run(ctx) }()
	var again <-chan time.Time
	for {
		// Changed also fires at first, which covers changes between the start's Sync and the watch.
		select {
		case err := <-done:
			return err
		case <-files.Changed():
		case <-again:
			if im.full.Load() && !im.roomier() {
				again = time.After(retryFull)
				continue
			}
		}
		again = nil
		if err := im.Sync(ctx); err != nil && ctx.Err() == nil {
			im.log.V(2).Info("Image archives wait for containerd", "err", err.Error())
			again = time.After(retry)
		} else if im.full.Load() {
			again = time.After(retryFull)
		}
	}
}
