// Package logs reads container logs from the kubelet's layout, ROOT/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log, in
// the CRI log format, and containers' termination messages. Its subpackages name, create and remove log directories
// (layout) and rotate logs (rotate).
//
// Pods can write to these files, so they are opened with care.
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

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
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

// Options have the meaning of the same fields in v1.PodLogOptions.
type Options struct {
	// Follow continues until the container has ended.
	Follow bool
	// Tail is the number of last lines to start with; negative for all lines.
	Tail int64
	// Since omits older lines, unless zero.
	Since time.Time
	// Timestamps puts an RFC 3339 time of fixed width before each line.
	Timestamps bool
	// LimitBytes is the maximum size of the output; 0 means no limit.
	LimitBytes int64
	// Stream is Both if empty.
	Stream Stream
}

// Request specifies what to read.
type Request struct {
	Log
	// Attempt is the first instance to read: 0 is the container's first. With Follow, it may be a future instance.
	Attempt int
	// OrLater starts with the next instance that has a log if Attempt has none.
	OrLater bool
	// Onward continues with later instances: those that have a log, and with Follow future ones. Tail applies to
	// the first of them only. Onward implies OrLater.
	Onward bool
	// Begun, if not nil, is called with each instance before its log is copied.
	Begun func(attempt int)
	Options
}

// Instance is the state of the followed container.
type Instance struct {
	// Attempt is the attempt number of the container's newest instance.
	Attempt int
	// Ended means that this instance writes no more; false also before it starts.
	Ended bool
	// Final means that there will be no further instance.
	Final bool
}

// Instances provides a follower with the state of its container.
type Instances interface {
	// Current returns the newest instance.
	Current() Instance
	// Changed returns a channel with a buffer of one, on which a value arrives when the result of Current may have
	// changed.
	Changed() <-chan struct{}
}

// Reader reads the logs below one root. Its methods may be called concurrently.
//
// An instance's log is read as a whole: rotated and compressed files come first. No line is lost or duplicated if a
// log is rotated while it is read.
//
// Data that isn't in the CRI log format ("TIMESTAMP STREAM TAG TEXT") is shown rather than lost, and never ends the
// reading:
//
//   - Text without a header (another format, such as Docker's JSON lines; corruption; zeros
//     after a power failure) is shown as it is, up to the next newline, as if it had been
//     written to stdout with the previous entry: --since omits both or neither.
//   - A line may be of any length; it is passed on in pieces.
//   - A line that was split into partial entries (tag P) is joined, also across files and
//     with entries of the other stream in between. Lines of more than 64 KiB may be
//     interleaved with such entries.
//   - An entry without a newline, such as after the disk was full, ends with its file.
//   - The rest of a corrupt compressed file is omitted.
type Reader struct {
	root  string
	files *filewatch.Instance
	log   logr.Logger
}

// New returns a reader for the logs below root, which is /var/log/pods by convention. files reports their changes.
func New(root string, files *filewatch.Instance, log logr.Logger) *Reader {
	return &Reader{root: root, files: files, log: log}
}

// Attempts returns the instances of a container that have a log, oldest first. It is empty for a container without
// a log directory.
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

// Copy writes the log to w. It returns nil after writing everything requested, ctx's error when ctx ended,
// fs.ErrNotExist (wrapped) if the instance has no log, and w's error when w fails. instances is only needed with
// Follow. Each Write is a batch of lines that is worth sending at once.
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
		_ = c.lines.Flush() // err came first, and is returned
	}
	return err
}
