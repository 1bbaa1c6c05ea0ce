package archives

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// How long the folder has to be quiet before archives in it are read. inotify's
// close-write event, which fsnotify hides, would tell of most copies, but not of
// those that write in several goes (rsync --inplace, resumed downloads).
const (
	settle = 300 * time.Millisecond
	// retry is for a containerd that is away.
	retry = 5 * time.Second
)

// Run imports archives as they appear and change, until ctx ends; then it
// returns nil. Every event leads to a look at the whole folder, so lost and
// doubled ones do no harm.
func (im *Importer) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the image archives: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(im.dir); err != nil {
		return fmt.Errorf("watch the image archives in %s: %w", im.dir, err)
	}
	// What came between the start's Sync and the watch is found by a first look.
	quiet := time.NewTimer(0)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if isArchive(filepath.Base(event.Name)) && !event.Has(fsnotify.Chmod) {
				quiet.Reset(settle)
			}
		case err := <-watcher.Errors:
			// The queue overflowed: look at everything.
			im.log.V(2).Info("Lost events of the image archives' folder", "err", err.Error())
			quiet.Reset(settle)
		case <-quiet.C:
			if err := im.Sync(ctx); err != nil && ctx.Err() == nil {
				im.log.V(2).Info("Image archives wait for containerd", "err", err.Error())
				quiet.Reset(retry)
			}
		}
	}
}
