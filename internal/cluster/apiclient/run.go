package apiclient

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// firstRead is the first delay before an unusable kubeconfig is read again if no file has changed.
	firstRead = time.Second
	// readGap is the shortest time between readings that failing calls trigger.
	readGap = 5 * time.Second
)

var errEnded = errors.New("the client of the API server has ended")

// Run reads the kubeconfig and the files that it names, again whenever they change, until ctx ends. A kubeconfig that
// can't be used isn't an error: the session of an earlier one stays.
func (c *Client) Run(ctx context.Context) error {
	files := &files{client: c}
	defer c.end()
	defer files.stop()
	failures := 0
	for {
		began := time.Now()
		named, err := c.load()
		files.watch(ctx, named)
		wait := time.Duration(-1)
		if err != nil {
			wait = backoff(firstRead, failures)
			failures++
		} else {
			failures = 0
		}
		changed, ok := c.await(ctx, files, wait, began)
		if !ok {
			return nil
		}
		if changed {
			failures = 0
		}
	}
}

// await waits until the kubeconfig has to be read again: files have changed, the wait is over (never if it is
// negative), or calls fail as if the files were out of date. ok is false when ctx ended.
func (c *Client) await(ctx context.Context, f *files, wait time.Duration, began time.Time) (changed, ok bool) {
	var due <-chan time.Time
	if wait >= 0 {
		due = time.After(wait)
	}
	stale := (<-chan struct{})(c.stale)
	for {
		select {
		case <-ctx.Done():
			return false, false
		case <-f.changed:
			return true, true
		case <-due:
			return false, true
		case <-stale:
			stale = nil
			timer := time.NewTimer(time.Until(began.Add(readGap)))
			defer timer.Stop()
			if due == nil {
				due = timer.C
			}
		}
	}
}

// load reads the kubeconfig, and starts a session if it has changed. It returns the files that were read.
func (c *Client) load() ([]string, error) {
	id, named, err := readKubeconfig(c.conf.Kubeconfig, c.conf.Rotated, time.Now())
	c.mu.Lock()
	was := c.now
	c.mu.Unlock()
	var next *session
	if err == nil && (was == nil || was.id.sum != id.sum) {
		next, err = newSession(id, &c.conf, c.codecs)
	}
	c.mu.Lock()
	if next != nil {
		c.now, c.problem = next, nil
		c.sessions++
	} else if was == nil {
		c.problem = err
	}
	c.mu.Unlock()
	switch {
	case err != nil && was == nil:
		c.reach.failed(&Error{Err: err, trouble: badKubeconfig})
		if !(c.conf.Awaited && missing(c.conf.Kubeconfig)) {
			c.warned = ""
			c.last.Log(c.conf.Log, err,
				"The kubeconfig can't be used; the node isn't part of a cluster until it is corrected")
		}
	case err != nil:
		c.warned = ""
		c.last.Log(c.conf.Log, err, "The changed kubeconfig can't be used; the one read before stays in use")
	default:
		c.last.Clear()
		if id.warning != c.warned && id.warning != "" {
			c.conf.Log.Info("The kubeconfig is used, but something is wrong with it", "path", id.path,
				"reason", id.warning)
		}
		c.warned = id.warning
	}
	if next != nil && was != nil {
		c.conf.Log.Info("The kubeconfig has changed: new connections are made with it", "path", id.path,
			"url", id.server.String())
		c.draining.Go(func() { was.drain(drainLimit) })
	}
	c.readOnce.Do(func() { close(c.read) })
	if next != nil {
		c.reach.changed.Wake()
		c.reach.recovered.Wake()
	}
	return named, err
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// end closes all connections, and waits for calls in progress.
func (c *Client) end() {
	c.mu.Lock()
	was := c.now
	c.now, c.problem = nil, errEnded
	c.mu.Unlock()
	if was != nil {
		was.drain(0)
	}
	c.draining.Wait()
}

// files watches the kubeconfig and the files that it names.
type files struct {
	client  *Client
	named   []string
	changed <-chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// watch watches these files instead of the previous ones.
func (f *files) watch(ctx context.Context, named []string) {
	if slices.Equal(f.named, named) {
		return
	}
	f.stop()
	f.named = named
	s := f.client.conf.Files.NewSettled(named, func(string) bool { return true }, f.client.conf.Log)
	f.changed = s.Changed()
	ctx, f.cancel = context.WithCancel(ctx)
	f.running.Go(func() {
		if err := s.Run(ctx); err != nil {
			f.client.conf.Log.Error(err, "Changes of the kubeconfig aren't noticed", "advice",
				"restart the agent after changing it")
		}
	})
}

func (f *files) stop() {
	if f.cancel != nil {
		f.cancel()
	}
	f.running.Wait()
}
