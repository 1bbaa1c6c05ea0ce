package observed

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

const (
	defaultRelistPeriod = 5 * time.Minute
	// pollPeriod is the time between two complete lists while the event stream is down.
	pollPeriod = time.Second
	// subscribeTime is how long a subscription may take to become effective in the runtime: a list that started
	// earlier may miss changes, and is repeated.
	subscribeTime = time.Second
	// incompletePeriod is the time between attempts to get details that the runtime refused.
	incompletePeriod = 10 * time.Second
	// statusConcurrency bounds how many statuses are fetched at a time.
	statusConcurrency = 4
)

// relistLoop calls Relist on request and periodically.
func (s *Store) relistLoop(ctx context.Context) {
	retry := minRetry
	// The stream requests the first list as soon as it is up.
	wait := minRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-time.After(wait):
		}
		err := s.Relist(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if retry == minRetry {
				s.log.Info("The container runtime doesn't answer: trying again until it does", "err", err.Error())
			}
			wait = retry
			retry = min(retry*2, maxRetry)
		default:
			if retry != minRetry {
				s.log.Info("The container runtime answers again")
			}
			retry = minRetry
			wait = s.state.nextList(s.period)
		}
	}
}

// Relist lists all sandboxes and containers now. Run calls it; others may call it concurrently.
func (s *Store) Relist(ctx context.Context) error {
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	begun := time.Now()
	s.state.beginList(begun)
	incomplete, err := s.list(ctx, begun, "")
	var interval time.Duration
	if err == nil {
		interval = s.state.endList(begun, incomplete)
	}
	s.observer.Relisted(begun, time.Since(begun), interval, err)
	if err != nil {
		return fmt.Errorf("listing what runs: %w", err)
	}
	s.once.Do(func() { close(s.synced) })
	return nil
}

// refreshPod lists the sandboxes and containers of one pod.
func (s *Store) refreshPod(ctx context.Context, uid types.UID) {
	begun := time.Now()
	_, err := s.list(ctx, begun, uid)
	s.observer.PodRelisted(time.Since(begun))
	if err != nil && ctx.Err() == nil {
		// The next complete list tries again, and logs an error if the runtime is unavailable.
		s.log.V(4).Info("Failed to list the containers of a pod: listing all pods instead",
			"podUID", uid, "err", err.Error())
		s.kick.Wake()
	}
}

// list merges the runtime's list of one pod, or of all pods if uid is empty. incomplete means that the runtime
// refused details of an instance.
func (s *Store) list(ctx context.Context, begun time.Time, uid types.UID) (incomplete bool, err error) {
	var labels map[string]string
	if uid != "" {
		labels = map[string]string{kubelettypes.KubernetesPodUIDLabel: string(uid)}
	}
	l := &listing{rt: s.rt, log: s.log, cache: s.cache, ends: s.ends, boot: s.boot, begun: begun,
		newest: map[slot][detailed]instance{}, listed: map[string]struct{}{}}
	l.reading.AsOf = begun
	if err := cri.EachSandbox(ctx, s.rt, labels, l.sandbox); err != nil {
		return false, err
	}
	if err := cri.EachContainer(ctx, s.rt, labels, l.sandboxIDs, l.container); err != nil {
		return false, err
	}
	l.split()
	if err := l.fetch(ctx); err != nil {
		return false, err
	}
	s.cache.Merge(l.reading)
	s.cache.Listed(begun, uid, func(id string) bool { _, ok := l.listed[id]; return ok })
	return l.incomplete, nil
}
