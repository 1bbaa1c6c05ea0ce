package nodeobject

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Leases are the leases of nodes at an API server (namespace kube-node-lease). Each call ends with its context, and
// returns the object as the server has it; errors are the server's (k8s.io/apimachinery/pkg/api/errors).
type Leases interface {
	Get(ctx context.Context, name string) (*coordination.Lease, error)
	Create(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error)
	Update(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error)
}

// LeaseConfig configures a Lease.
type LeaseConfig struct {
	Name string
	// Duration is how long the node counts as alive after a renewal (nodeLeaseDurationSeconds).
	Duration time.Duration
	API      Leases
	Facts    *nodefacts.Board
	Log      logr.Logger
}

// Lease maintains this node's lease: its renewals say that the agent is alive. They depend on nothing but the API
// server.
type Lease struct {
	conf LeaseConfig
	// known is the lease as the server returned it last; nil if it has to be read.
	known *coordination.Lease
	// clock receives after the clock was set.
	clock wake.Slot
}

// NewLease returns the lease of a node.
func NewLease(c LeaseConfig) *Lease { return &Lease{conf: c, clock: wake.NewSlot()} }

// ClockChanged renews the lease now, because the clock was set or the machine was suspended.
func (l *Lease) ClockChanged() { l.clock.Wake() }

const (
	// renewals is how many times a lease is renewed within its duration.
	renewals = 4
	// firstLeaseRetry is the delay before a failed renewal is tried again. It doubles up to lastLeaseRetry. It is
	// short because all other calls resume when a renewal shows that the server has recovered.
	firstLeaseRetry = 200 * time.Millisecond
	lastLeaseRetry  = 4 * time.Second
	leaseJitter     = 0.04
)

// Run renews the lease until ctx ends. It creates the lease once the node's object exists, which owns the lease.
func (l *Lease) Run(ctx context.Context) error {
	registered, stop := l.conf.Facts.Watch(nodefacts.UID)
	defer stop()
	period := l.conf.Duration / renewals
	failures, reported := 0, false
	for {
		next := period
		if err := l.renew(ctx, period); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			next = min(firstLeaseRetry<<min(failures, 16), lastLeaseRetry, period)
			failures++
			if !reported && !apiclient.Unusable(err) {
				reported = true
				l.conf.Log.Error(err, "The node's lease isn't renewed: the control plane takes the node for lost "+
					"when that lasts", "duration", l.conf.Duration)
			}
		} else {
			if reported {
				l.conf.Log.Info("The node's lease is renewed again", "failures", failures)
			}
			failures, reported = 0, false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-registered:
		case <-l.clock:
		case <-time.After(wait.Jitter(next, leaseJitter)):
		}
	}
}

// renew renews the lease, or creates it, within the time limit.
func (l *Lease) renew(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err, last error
	for range 3 { // read, update, read again after a conflict
		if l.known == nil {
			l.known, err = l.conf.API.Get(ctx, l.conf.Name)
		}
		uid := l.conf.Facts.Now().UID
		var now *coordination.Lease
		switch {
		case err == nil:
			now, err = l.conf.API.Update(ctx, l.renewed(l.known, uid))
		case errors.IsNotFound(err) && uid == "":
			return nil // Run is woken once the node is registered
		case errors.IsNotFound(err):
			now, err = l.conf.API.Create(ctx,
				l.renewed(&coordination.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: l.conf.Name, Namespace: v1.NamespaceNodeLease}}, uid))
		}
		if err == nil {
			l.known = now
			return nil
		}
		l.known, last = nil, err // it may have been replaced: read it again
		if !errors.IsNotFound(err) && !errors.IsConflict(err) && !errors.IsAlreadyExists(err) {
			break
		}
		err = nil
	}
	if err == nil {
		return fmt.Errorf("renew lease %s: another client changes it at the same time, or its namespace doesn't "+
			"exist: %w",
			l.conf.Name, last)
	}
	return fmt.Errorf("renew lease %s: %w", l.conf.Name, err)
}

// renewed returns a copy of a lease with the current time as its renewal time. If the clock was set back, so that the
// current time isn't later than the last renewal time, it adds a microsecond to the last one instead: the control plane
// ignores a renewal to an earlier time, and would consider the node lost. uid is the UID of the node's object, the
// lease's owner; empty if the object hasn't been read.
func (l *Lease) renewed(was *coordination.Lease, uid types.UID) *coordination.Lease {
	n := was.DeepCopy()
	n.Spec.HolderIdentity = ptr.To(l.conf.Name)
	n.Spec.LeaseDurationSeconds = ptr.To(int32(l.conf.Duration / time.Second))
	now := time.Now()
	if last := was.Spec.RenewTime; last != nil && !now.After(last.Time) {
		now = last.Add(time.Microsecond)
	}
	n.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
	if uid != "" {
		n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.conf.Name, UID: uid}}
	}
	return n
}
