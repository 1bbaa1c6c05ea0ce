// Package rotate limits the size of running containers' logs: a log that has grown too large is renamed, the
// runtime creates a new one, and renamed files are compressed and finally removed. The files are those of the
// kubelet:
//
//	N.log                the runtime writes to it
//	N.log.STAMP          the last rotation; uncompressed, because the runtime may still write to it
//	N.log.STAMP.gz       earlier rotations
//
// No line is lost or duplicated: files are only renamed, and compressed once the kernel reports that no process has
// them open for writing. All state is on disk, so the rotator completes the work of a killed agent.
package rotate

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// Config limits the logs. The fields have the meaning of the same fields in the kubelet's configuration. All but
// Root can be changed: see SetLimits.
type Config struct {
	// Root is the directory of all pods' logs, by convention /var/log/pods. Logs elsewhere are ignored.
	Root string
	// MaxSize is the size in bytes at which a log is rotated (containerLogMaxSize). 0 or less disables rotation, as
	// with the kubelet.
	MaxSize int64
	// MaxFiles is the maximum number of files of an instance, including the current one; at least 2
	// (containerLogMaxFiles).
	MaxFiles int
	// Interval is the longest time between two checks of a log (containerLogMonitorInterval). Growing logs are
	// checked more often, so that a container that writes fast doesn't fill the disk.
	Interval time.Duration
	// Workers is how many logs are rotated at once; at least 1 (containerLogMaxWorkers).
	Workers int
}

// ConfigOf returns the limits in a validated configuration, for the logs below root.
func ConfigOf(root string, k *v1beta1.KubeletConfiguration) Config {
	maxSize, _ := validation.ContainerLogMaxBytes(k) // k was validated
	return Config{Root: filepath.Clean(root), MaxSize: maxSize, MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers: int(*k.ContainerLogMaxWorkers), Interval: k.ContainerLogMonitorInterval.Duration}
}

// Container is a running container.
type Container struct {
	// ID is the runtime's ID of the container.
	ID string
	// Pod and Name are for messages.
	Pod, Name string
	// Path is the log that the runtime writes.
	Path string
}

// Containers lists running containers.
type Containers interface {
	// Running returns the containers that are running at the time of the call.
	Running() []Container
}

// Runtime writes the logs.
type Runtime interface {
	// ReopenContainerLog makes the runtime continue in a new file at the log's path. It also fails if the container
	// has ended.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Writes reports writes to logs that didn't grow.
type Writes interface {
	// Run reports writes until ctx ends. It is called once.
	Run(ctx context.Context)
	// Watch requests a report of the next write to the file at path. An error means that there won't be one.
	Watch(path string) error
	// Written returns the channel of paths of files that were written to.
	Written() <-chan []string
}

// Rotator rotates the logs of running containers.
type Rotator struct {
	conf atomic.Pointer[Config]
	// changed is signaled after a change of conf. The embedded Slot is signaled when the set of running containers
	// may be different.
	changed wake.Slot
	wake.Slot
	containers Containers
	runtime    Runtime
	writes     Writes
	log        logr.Logger
	open       func(root, name string) (directory, error)
	queue      *queue
	// known has the containers that ran at the last scan, by ID. Only scan uses it.
	known map[string]*container
}

// New returns a rotator. Its Wake makes it list the running containers again within a second.
func New(conf Config, containers Containers, runtime Runtime, writes Writes, log logr.Logger) *Rotator {
	r := &Rotator{
		changed: wake.NewSlot(), Slot: wake.NewSlot(),
		containers: containers, runtime: runtime, writes: writes, log: log,
		open:  func(root, name string) (directory, error) { return layout.Open(root, name) },
		queue: newQueue(), known: map[string]*container{},
	}
	r.conf.Store(&conf)
	return r
}

// SetLimits replaces the configuration, except Root. Then it triggers a check of all logs, which rotates logs that
// exceed the new size and removes excess files. It may be called at any time.
func (r *Rotator) SetLimits(next Config) {
	next.Root = r.conf.Load().Root
	if old := r.conf.Swap(&next); *old != next {
		r.changed.Wake()
	}
}

// Run rotates logs until ctx ends. It may be called once. It returns ctx's error.
func (r *Rotator) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	workers.Go(func() { r.writes.Run(ctx) })
	for ctx.Err() == nil {
		r.watch(ctx, r.conf.Load(), &workers)
	}
	return ctx.Err()
}

// watch checks the running containers until ctx ends or the limits change.
func (r *Rotator) watch(ctx context.Context, conf *Config, workers *sync.WaitGroup) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for _, k := range r.known {
		k.next = time.Time{} // the limits may have changed
	}
	for {
		pause := conf.Interval
		if conf.MaxSize > 0 {
			pause = r.scan(conf)
			for r.queue.hire(conf.Workers) {
				workers.Go(func() { r.work(ctx) })
			}
		}
		if !r.await(ctx, timer, pause) {
			return
		}
	}
}

// await waits for the next check: until pause has passed, or a second after other containers may run or a log was
// written to. It returns false if ctx ended or the limits changed.
func (r *Rotator) await(ctx context.Context, timer *time.Timer, pause time.Duration) bool {
	due := time.Now().Add(pause)
	timer.Reset(pause)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-r.changed:
			return false
		case <-timer.C:
			return true
		case <-r.Slot:
		case paths := <-r.writes.Written():
			for _, k := range r.known {
				if slices.Contains(paths, k.Path) {
					k.watched, k.next = 0, time.Time{}
				}
			}
		}
		if soon := time.Now().Add(longest); soon.Before(due) {
			due = soon
			timer.Reset(longest)
		}
	}
}

// scan queues the containers that need work, and returns the time until the next scan.
func (r *Rotator) scan(conf *Config) (pause time.Duration) {
	now := time.Now()
	running := r.containers.Running()
	pause = conf.Interval
	quiet := min(conf.Interval, longest*time.Duration(1+len(running)/quietAtOnce))
	known := make(map[string]*container, len(running))
	for _, c := range running {
		k := r.known[c.ID]
		if k == nil {
			k = r.newContainer(c)
		}
		known[c.ID] = k
		if k.foreign {
			continue
		}
		if r.queue.has(k) {
			pause = min(pause, longest)
			continue
		}
		k.untidy = k.untidy || k.files > conf.MaxFiles
		due := r.due(k, now, conf, quiet)
		pause = min(pause, k.pause(now, conf.MaxSize))
		if due {
			r.queue.add(k)
		}
	}
	r.known = known
	return pause
}

// work rotates the queued logs, and then tidies: a log that grows fast doesn't wait until another's files are
// compressed. It returns when the queue is empty.
func (r *Rotator) work(ctx context.Context) {
	for {
		conf := r.conf.Load()
		c, tidy := r.queue.next(ctx, conf.Workers)
		switch {
		case c == nil:
			return
		case tidy:
			r.logTry(c, &c.tidying, r.tidy(ctx, c, conf))
			r.queue.done(c)
		default:
			r.tryRotate(ctx, c)
			if c.untidy && !time.Now().Before(c.tidying.retry) {
				r.queue.later(c)
			} else {
				r.queue.done(c)
			}
		}
	}
}

// tryRotate rotates a container's log unless it waits for a retry.
func (r *Rotator) tryRotate(ctx context.Context, c *container) {
	if !time.Now().Before(c.rotating.retry) {
		r.logTry(c, &c.rotating, r.rotate(ctx, c, r.conf.Load()))
	}
}
