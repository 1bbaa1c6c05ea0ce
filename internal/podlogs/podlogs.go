// Package podlogs reads container logs from the kubelet's layout,
// ROOT/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log, in the CRI log format
// ("TIMESTAMP STREAM TAG TEXT", see the CRI's logging design).
//
// Only the newest file of an instance is read from the start: as with kubectl,
// lines that were rotated away before are not shown.
package podlogs

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

	"github.com/deckhand-node/deckhand/internal/loglayout"
)

// Log names the log folder of one container.
type Log struct {
	Namespace string
	Pod       string
	UID       types.UID
	Container string
}

// dir is the log's folder below the root.
func (l Log) dir() string {
	return filepath.Join(loglayout.Folder(l.Namespace, l.Pod, l.UID), l.Container)
}

// Stream says which of a container's outputs to read.
type Stream string

// The values are those of v1.PodLogOptions.Stream.
const (
	Both   Stream = "All"
	Stdout Stream = "Stdout"
	Stderr Stream = "Stderr"
)

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
	// Attempt is the instance to begin with: 0 is the container's first.
	Attempt int
	// Onward goes on to later instances: those that have a log, and with Follow
	// those to come. Tail counts in the first of them only.
	Onward bool
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

// Instances tells a follower about its container.
type Instances interface {
	// Current returns the newest instance.
	Current() Instance
	// Changed is a one-slot channel that is filled when Current may have changed.
	Changed() <-chan struct{}
}

// Reader reads the logs below one root. Its methods may be called concurrently.
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
// container without a log folder has none.
func (r *Reader) Attempts(l Log) ([]int, error) {
	dir, err := r.openDir(l.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the logs of container %s: %w", l.Container, err)
	}
	var attempts []int
	for _, name := range names {
		if n, rotated, ok := loglayout.ParseFile(name); ok && !rotated {
			attempts = append(attempts, n)
		}
	}
	slices.Sort(attempts)
	return attempts, nil
}

// Copy writes the log to w. It returns nil when all was written that was asked
// for, ctx's error when ctx ended, fs.ErrNotExist (wrapped) when the instance
// has no log, and w's error when w fails. instances is needed with Follow only.
// Each Write is a batch of lines that is worth sending at once.
func (r *Reader) Copy(ctx context.Context, w io.Writer, req Request, instances Instances) error {
	c := &copier{reader: r, req: req, out: newOutput(w, req.Options), buf: make([]byte, 0, bufferSize)}
	var err error
	switch {
	case req.Follow:
		err = c.follow(ctx, instances)
	case req.Onward:
		err = c.existing(ctx)
	default:
		err = c.once(ctx, req.Attempt)
	}
	if flushErr := c.out.flush(); err == nil {
		err = flushErr
	}
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}
