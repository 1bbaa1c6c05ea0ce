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
)

// Leases are the leases of nodes at an API server (namespace kube-node-lease). Each call ends with its context, and
// returns the object as the server has it; errors are the server's (k8s.io/apimachinery/pkg/api/errors).
type Leases interface {
	Get(ctx context.Context, name string) (*coordination.Lease, error)
	Create(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error)
	Update(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error)
}

// LeaseConfig says what a Lease works with.
type LeaseConfig struct {
	Name string
	// Duration is how long the node counts as alive after a renewal (nodeLeaseDurationSeconds).
	Duration time.Duration
	API      Leases
	Facts    *nodefacts.Board
	Log      logr.Logger
}

// Lease is this node's: its renewals say that the agent is alive. It waits for nothing but the API server.
type Lease struct {
	conf LeaseConfig
	// known is the lease as the server had it last; nil if that has to be asked for.
	known *coordination.Lease
}

// NewLease returns the lease of a node.
func NewLease(c LeaseConfig) *Lease { return &Lease{conf: c} }

const (
	// renewals is how often a lease is renewed in its duration.
	renewals = 4
	// firstLeaseRetry is how soon a renewal that failed is tried again; the wait doubles up to lastLeaseRetry: it is by
	// the lease that all others find out that the server has recovered.
	firstLeaseRetry = 200 * time.Millisecond
	lastLeaseRetry  = 4 * time.Second
	leaseJitter     = 0.04
)

// Run renews the lease until ctx ends. A lease is made once the node's object is there, which owns it.
func (l *Lease) Run(ctx context.Context) error {
	registered, stop := l.conf.Facts.Watch(nodefacts.UID)
	defer stop()
	period := l.conf.Duration / renewals
	failures, told := 0, false
	for {
		next := period
		if err := l.renew(ctx, period); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			next = min(firstLeaseRetry<<min(failures, 16), lastLeaseRetry, period)
			failures++
			if !told && !apiclient.Unusable(err) {
				told = true
				l.conf.Log.Error(err, "The node's lease isn't renewed: the control plane takes the node for lost "+
					"when that lasts", "duration", l.conf.Duration)
			}
		} else {
			if told {
				l.conf.Log.Info("The node's lease is renewed again", "failures", failures)
			}
			failures, told = 0, false
		}
		timer := time.NewTimer(wait.Jitter(next, leaseJitter))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-registered:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// renew renews the lease, or makes it. It takes at most that long.
func (l *Lease) renew(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err, last error
	for range 3 { // asked for, changed by somebody meanwhile, asked for once more
		if l.known == nil {
			l.known, err = l.conf.API.Get(ctx, l.conf.Name)
		}
		uid := l.conf.Facts.Now().UID
		var now *coordination.Lease
		switch {
		case err == nil:
			now, err = l.conf.API.Update(ctx, l.renewed(l.known, uid))
		case errors.IsNotFound(err) && uid == "":
			return nil // the node isn't registered yet: that wakes
		case errors.IsNotFound(err):
			now, err = l.conf.API.Create(ctx,
				l.renewed(&coordination.Lease{
					ObjectMeta: metav1.ObjectMeta{Name: l.conf.Name, Namespace: v1.NamespaceNodeLease}}, uid))
		}
		if err == nil {
			l.known = now
			return nil
		}
		l.known, last = nil, err // whatever it is, it may be another one by now
		if !errors.IsNotFound(err) && !errors.IsConflict(err) && !errors.IsAlreadyExists(err) {
			break
		}
		err = nil
	}
	if err == nil {
		return fmt.Errorf("renew lease %s, which somebody changes at the same time, or whose namespace isn't there: %w",
			l.conf.Name, last)
	}
	return fmt.Errorf("renew lease %s: %w", l.conf.Name, err)
}

// renewed is the lease as of now. uid is that of the node's object, empty while it isn't known.
func (l *Lease) renewed(was *coordination.Lease, uid types.UID) *coordination.Lease {
	n := was.DeepCopy()
	n.Spec.HolderIdentity = ptr.To(l.conf.Name)
	n.Spec.LeaseDurationSeconds = ptr.To(int32(l.conf.Duration / time.Second))
	n.Spec.RenewTime = ptr.To(metav1.NowMicro())
	if uid != "" {
		n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.conf.Name, UID: uid}}
	}
	return n
}
