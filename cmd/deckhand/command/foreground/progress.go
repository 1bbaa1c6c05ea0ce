package foreground

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Terminal is what is written to, if that is a terminal.
type Terminal struct {
	// Size returns the terminal's width and height in characters.
	Size func() (width, height int)
	// Color allows colours.
	Color bool
	// Resized is filled when Size has changed; it may be nil.
	Resized <-chan os.Signal
}

// Options say how to show progress.
type Options struct {
	Now func() time.Time
	// Terminal is nil where plain lines are wanted.
	Terminal *Terminal
}

// view is one of the two ways to show snapshots.
type view interface {
	show(local.Snapshot) error
}

// Show shows snapshots until one satisfies until, which it returns. It returns
// ctx's error when that ends first, and io.EOF when snapshots is closed first.
func Show(ctx context.Context, w io.Writer, snapshots <-chan local.Snapshot, until func(local.Snapshot) bool, opts Options) (local.Snapshot, error) {
	var v view = &Plain{w: w}
	var resized <-chan os.Signal
	var tick <-chan time.Time
	if opts.Terminal != nil {
		v = &live{w: w, now: opts.Now, begun: opts.Now(), terminal: opts.Terminal}
		resized = opts.Terminal.Resized
		ticker := time.NewTicker(time.Second) // for the ages shown
		defer ticker.Stop()
		tick = ticker.C
	}
	var last local.Snapshot
	for {
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case snapshot, ok := <-snapshots:
			if !ok {
				return last, io.EOF
			}
			last = snapshot
		case <-tick:
		case <-resized:
		}
		if err := v.show(last); err != nil {
			return last, err
		}
		if until(last) {
			return last, nil
		}
	}
}

// Finished reports whether all sources were read, and all their pods are ready or
// have ended.
func Finished(s local.Snapshot) bool {
	for i := range s.Pods {
		if v := &s.Pods[i]; !v.Done() && !v.Over() {
			return false
		}
	}
	return s.Agent.Synced
}
