// Package logs reads container logs from the kubelet's layout,
// ROOT/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log, in the CRI log format, and the termination
// messages that containers leave. Packages below it name, make and remove log directories (layout)
// and rotate logs (rotate).
//
// Pods can write to what is read here, so it is opened with care.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// Log names the log directory of one container.
type Log struct {
	Namespace string
	Pod       string
	UID       types.UID
	Container string
}

// dir is the log's directory below the root.
func (l Log) dir() string {
	return filepath.Join(layout.PodDirectory(l.Namespace, l.Pod, l.UID), l.Container)
}

// Options mean what their namesakes in v1.PodLogOptions mean.
type Options struct {
	// Follow goes on until the container has ended.
	Follow bool
	// Tail is how many of the last lines to begin with; negative for all.
	Tail int64
	// Since leaves out older lines, unless zero.
	Since time.Time
	// Timestamps puts an RFC 3339 time of fixed width before each line.
	Timestamps bool
	// LimitBytes ends the output after so many bytes; 0 for no limit.
	LimitBytes int64
	// Stream is Both if empty.
	Stream Stream
}

// Request says what to read.
type Request struct {
	Log
	// Attempt is the instance to begin with: 0 is the container's first. With
	// Follow, it may be one that is yet to come.
	Attempt int
	// OrLater begins with the next instance that has a log if Attempt has none.
	OrLater bool
	// Onward goes on to later instances: those that have a log, and with Follow
	// those to come. Tail counts in the first of them only. It implies OrLater.
	Onward bool
	// Begun, if not nil, is called with each instance before its log is copied.
	Begun func(attempt int)
	Options
}

// Instance is how the followed container fares.
type Instance struct {
	// Attempt is that of the newest instance.
	Attempt int
	// Ended is whether that instance will write no more; false also before it starts.
	Ended bool
	// Final is whether that was the last one.
	Final bool
}

// Instances gives a follower the state of its container.
type Instances interface {
	// Current returns the newest instance.
	Current() Instance
	// Changed is a one-slot channel that is filled when Current may have changed.
	Changed() <-chan struct{}
}

// Reader reads the logs below one root. Its methods may be called concurrently.
//
// An instance's log is read as a whole: what was rotated away, and compressed, comes first.
// However a log is rotated while it is read, no line is lost or doubled.
//
// What isn't in the CRI log format ("TIMESTAMP STREAM TAG TEXT") is shown rather than lost,
// and never ends the reading:
//
//   - Text without a header (another format, such as Docker's JSON lines; damage; zeros
//     after a loss of power) is shown as it is, up to the next newline, as if it had been
//     written to stdout with the entry before it: --since leaves it out with that one.
//   - A line may be of any length; it is passed on in pieces.
//   - A line that was split into partial entries (tag P) is put together, also across
//     files and where entries of the other stream lie in between; one of more than 64 KiB
//     may have these in its midst.
//   - An entry without its newline, as a full disk leaves it, ends with its file.
//   - What can't be unpacked of a compressed file is left out.
type Reader struct {
	root    string
	log     logr.Logger
	watches *watches
}

// New returns a reader for the logs below root, which is /var/log/pods by convention.
func New(root string, log logr.Logger) *Reader {
	return &Reader{root: root, log: log, watches: newWatches()}
}

// Attempts returns which instances of a container have a log, oldest first. A
// container without a log directory has none.
func (r *Reader) Attempts(l Log) ([]int, error) {
	dir, err := layout.Open(r.root, l.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.All()
	if err != nil {
		return nil, fmt.Errorf("list the logs of container %s: %w", l.Container, err)
	}
	var attempts []int
	for _, n := range names {
		if !n.Temp {
			attempts = append(attempts, n.Attempt)
		}
	}
	slices.Sort(attempts)
	return slices.Compact(attempts), nil
}

// Copy writes the log to w. It returns nil when all was written that was asked
// for, ctx's error when ctx ended, fs.ErrNotExist (wrapped) when the instance
// has no log, and w's error when w fails. instances is needed with Follow only.
// Each Write is a batch of lines that is worth sending at once.
func (r *Reader) Copy(ctx context.Context, w io.Writer, req Request, instances Instances) error {
	c := newCopier(r, req, w)
	var err error
	if req.Follow {
		err = c.follow(ctx, instances)
	} else {
		err = c.existing(ctx)
	}
	if err == nil {
		err = c.lines.Close()
	}
	if errors.Is(err, errLimit) {
		return c.lines.Flush()
	}
	if err != nil {
		_ = c.lines.Flush() // the first error is the one that counts
	}
	return err
}
