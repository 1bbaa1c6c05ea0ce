package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// saveEvery is the shortest time between two attempts to save stops on a full disk.
const saveEvery = time.Minute

// ErrAllStopped is returned by Stopper.Run after a call of StopAll, once all pods are completely removed.
var ErrAllStopped = errors.New("all pods were stopped")

// Stopper stops and restarts pods for users, and waits for their end. Run ends after StopAll has stopped all pods. It
// is safe for concurrent use.
type Stopper struct {
	stops *desired.Stops
	pool  *Pool
	log   logr.Logger
	wake  wake.Slot
	ended atomic.Bool

	mu sync.Mutex
	// all is the time of StopAll; zero if it wasn't called. since has the time of Stop or Resume by pod name, but not
	// for pods that an earlier agent stopped.
	all   time.Time
	since map[types.NamespacedName]time.Time
}

// NewStopper returns a Stopper of the pool's pods; stops has the pods that users have stopped.
func NewStopper(stops *desired.Stops, pool *Pool, log logr.Logger) *Stopper {
	return &Stopper{stops: stops, pool: pool, log: log, wake: wake.NewSlot(),
		since: map[types.NamespacedName]time.Time{}}
}

// Stop stops pods until they are started again; with restart set, they are started again at once. It returns when the
// pods are gone, or when their restart has begun. If ctx is done, it returns earlier, but the pods are stopped
// nevertheless. They are also stopped if the disk is too full to save the stop. If the disk is still full when the pods
// are gone, Stop returns an error.
func (s *Stopper) Stop(ctx context.Context, restart bool, names ...types.NamespacedName) error {
	turned, end := s.pool.turned.Subscribe()
	defer end()
	if err := s.stops.Stop(restart, names...); err != nil {
		return err
	}
	s.mu.Lock()
	for _, n := range names {
		s.since[n] = time.Now()
	}
	s.mu.Unlock()
	s.wake.Wake()
	for _, n := range names {
		for !s.settled(n, restart) {
			select {
			case <-turned:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if restart {
		return nil
	}
	return s.stops.Save()
}

// Resume restarts a pod that has ended, unless a user has stopped it. It doesn't wait.
func (s *Stopper) Resume(name types.NamespacedName) error {
	if err := s.stops.Resume(name); err != nil {
		return err
	}
	s.mu.Lock()
	s.since[name] = time.Now()
	s.mu.Unlock()
	s.wake.Wake()
	return nil
}

// settled reports whether a stopped pod is completely removed, or whether a pod that is being restarted may start
// again.
func (s *Stopper) settled(name types.NamespacedName, restart bool) bool {
	if !restart {
		return s.gone(name)
	}
	return !slices.ContainsFunc(s.stops.List(), func(h desired.Hold) bool {
		return h.Namespace == name.Namespace && h.Name == name.Name && h.Restart
	})
}

// Start starts stopped pods again.
func (s *Stopper) Start(names ...types.NamespacedName) error { return s.stops.Start(names...) }

// StopAll stops all pods. Run returns when they are gone.
func (s *Stopper) StopAll() {
	s.stops.StopAll()
	s.mu.Lock()
	s.all = time.Now()
	s.mu.Unlock()
	s.wake.Wake()
}

// AllStopped reports whether Run has returned ErrAllStopped.
func (s *Stopper) AllStopped() bool { return s.ended.Load() }

// Run starts the pods that are being restarted, including pods whose restart an earlier agent began, until ctx is done.
// It returns ErrAllStopped when all pods were stopped by StopAll and are gone.
func (s *Stopper) Run(ctx context.Context) error {
	turned, end := s.pool.turned.Subscribe()
	defer end()
	var saved time.Time
	for {
		s.startAgain()
		if now := time.Now(); now.Sub(saved) >= saveEvery {
			// A user who didn't wait for the end of Stop hasn't seen whether the stop is on disk. If it can't be saved
			// now, the next iteration tries again.
			saved = now
			_ = s.stops.Save()
		}
		if s.allGone() {
			s.ended.Store(true)
			return ErrAllStopped
		}
		select {
		case <-ctx.Done():
			return nil
		case <-turned:
		case <-s.wake:
		}
	}
}

// startAgain starts the pods that are being restarted and of which nothing is left.
func (s *Stopper) startAgain() {
	for _, h := range s.stops.List() {
		name := types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
		if !h.Restart || !s.gone(name) {
			continue
		}
		if err := s.stops.Start(name); err != nil {
			s.log.Error(err, "A pod that is to be restarted stays stopped until its restart can be saved",
				"pod", klog.KRef(name.Namespace, name.Name))
			continue
		}
		s.pool.turned.Wake() // wakes calls of Stop with restart, which wait for the start
	}
}

// gone reports whether the pool has applied the stop and nothing is left of the pod.
func (s *Stopper) gone(name types.NamespacedName) bool {
	s.mu.Lock()
	since := s.since[name]
	s.mu.Unlock()
	return s.pool.Heartbeat().After(since) && !s.pool.left(name.String())
}

func (s *Stopper) allGone() bool {
	s.mu.Lock()
	all := s.all
	s.mu.Unlock()
	return !all.IsZero() && s.pool.Heartbeat().After(all) && !s.pool.anyLeft()
}
