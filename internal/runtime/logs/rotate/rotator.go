// Package rotate keeps the logs of running containers within bounds: a log that has grown too
// large is renamed, the runtime is asked to begin a new one, and renamed files are compressed,
// and in the end removed. The files are those of the kubelet:
//
//	N.log                what the runtime writes
//	N.log.STAMP          rotated away last; left as it is, for the runtime may still be writing to it
//	N.log.STAMP.gz       rotated away before that
//
// No line is lost or doubled: a file is only ever renamed, and it is compressed once the kernel
// says that nobody has it open for writing. All state is on disk, so the next look at a
// container finishes what a killed agent began.
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

// Config is how much of a log is kept. The fields mean what their namesakes in
// the kubelet's configuration mean. All but Root can be changed: see SetLimits.
type Config struct {
	// Root is the directory of all pods' logs, by convention /var/log/pods. Logs elsewhere are left alone.
	Root string
	// MaxSize is how large a log grows, in bytes, before it is rotated
	// (containerLogMaxSize). 0 or less turns rotation off, as it does with the kubelet.
	MaxSize int64
	// MaxFiles is how many files of an instance there are at most, the one being written
	// among them; at least 2 (containerLogMaxFiles).
	MaxFiles int
	// Interval is the longest time between two looks at a log (containerLogMonitorInterval). One that grows is looked
	// at more often, so that a container that writes fast doesn't fill the disk meanwhile.
	Interval time.Duration
	// Workers is how many containers' logs are rotated at once; at least 1 (containerLogMaxWorkers).
	Workers int
}

// ConfigOf returns the bounds of a configuration, which is valid, for the logs below root.
func ConfigOf(root string, k *v1beta1.KubeletConfiguration) Config {
	maxSize, _ := validation.ContainerLogMaxBytes(k) // it has been validated
	return Config{Root: filepath.Clean(root), MaxSize: maxSize, MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers: int(*k.ContainerLogMaxWorkers), Interval: k.ContainerLogMonitorInterval.Duration}
}

// Container is one that runs.
type Container struct {
	// ID is the runtime's.
	ID string
	// Pod and Name are for messages.
	Pod, Name string
	// Path is where the runtime writes the log.
	Path string
}

// Containers knows which containers run.
type Containers interface {
	// Running returns the containers that run now.
	Running() []Container
}

// Runtime writes the logs.
type Runtime interface {
	// ReopenContainerLog has the runtime go on in a new file at the log's path. It may
	// have failed because the container has ended.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Writes notices when a log that didn't grow is written to.
type Writes interface {
	// Run notices writes until ctx ends. It is called once. An error means that it can't.
	Run(ctx context.Context) error
	// Watch has the next write to the file that is at path be reported. An error means that it isn't.
	Watch(path string) error
	// Written returns the channel of paths of files that were written to.
	Written() <-chan []string
}

// Rotator rotates the logs of running containers.
type Rotator struct {
	conf atomic.Pointer[Config]
	// changed is filled when conf is another than before, and Slot when other containers may run.
	changed wake.Slot
	wake.Slot
	containers Containers
	runtime    Runtime
	writes     Writes
	log        logr.Logger
	open       func(root, name string) (directory, error)
	queue      *queue
	// known are the containers that ran at the last look, by ID. Only look uses it.
	known map[string]*container
}

// New returns a rotator. Its Wake has it look whether other containers run, within a second.
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

// SetLimits changes what Config has under these names. The logs are looked at at once then:
// those that are too large by now are rotated, and what there is too many of is
// removed. It may be called at any time.
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
	workers.Go(func() {
		if err := r.writes.Run(ctx); ctx.Err() == nil {
			r.log.Error(err, "Can't watch container logs: polling them every second")
		}
	})
	for ctx.Err() == nil {
		r.watch(ctx, r.conf.Load(), &workers)
	}
	return ctx.Err()
}

// watch looks at the running containers until ctx ends or the limits change.
func (r *Rotator) watch(ctx context.Context, conf *Config, workers *sync.WaitGroup) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for _, k := range r.known {
		k.next = time.Time{} // the limits may be others
	}
	for {
		pause := conf.Interval
		if conf.MaxSize > 0 {
			pause = r.look(conf)
			for r.queue.hire(conf.Workers) {
				workers.Go(func() { r.work(ctx) })
			}
		}
		if !r.await(ctx, timer, pause) {
			return
		}
	}
}

// await waits until the next look is due: after pause, or a second after other containers may run or a log was
// written to. It is false if ctx ended or the limits changed.
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

// look queues the containers that something is to be done for, and says how long it is until the next look.
func (r *Rotator) look(conf *Config) (pause time.Duration) {
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

// work rotates the queued logs, and then tidies up after that: a log that
// grows fast doesn't wait until another's files are compressed. It ends when nothing is left to do.
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

// tryRotate rotates a container's log, if that didn't fail just now.
func (r *Rotator) tryRotate(ctx context.Context, c *container) {
	if !time.Now().Before(c.rotating.retry) {
		r.logTry(c, &c.rotating, r.rotate(ctx, c, r.conf.Load()))
	}
}
