// Package mirror maintains a mirror pod at the API server for each static pod of this node: it creates them, and
// deletes them when their static pods have ended. Package podobject writes their statuses. No pod waits for this
// package.
package mirror

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// API creates and deletes pods. Its errors are the server's (k8s.io/apimachinery/pkg/api/errors).
type API interface {
	Create(ctx context.Context, p *v1.Pod) (*v1.Pod, error)
	// Delete deletes the object with this UID immediately, without a grace period.
	Delete(ctx context.Context, namespace, name string, uid types.UID) error
}

// Objects are the mirror pods at the API server.
type Objects interface {
	// Mirrors returns the mirror pods, and whether the list is complete.
	Mirrors() ([]*v1.Pod, bool)
	Subscribe() (changed *wake.Keyed[types.UID], stop func())
}

// Statuses are the statuses of the pods on this node.
type Statuses interface {
	List() []*podstatus.Entry
	Watch() (changed <-chan struct{}, cancel func())
}

// Config configures Mirrors.
type Config struct {
	// Node is the node's name; its UID is in the Facts.
	Node     string
	Facts    *nodefacts.Board
	API      API
	Objects  Objects
	Statuses Statuses
	// Awaited reports whether a static pod with this name may exist on the node without a status: a manifest defines
	// it, it hasn't ended yet, or pods and manifests haven't been listed. The caller of New has to call Wake when the
	// result changes.
	Awaited func(namespace, name string) bool
	// Reached receives when the API server has recovered: calls that failed because of it are retried soon
	// (apiclient.Client.Recovered).
	Reached <-chan struct{}
	Log     logr.Logger
}

// Mirrors maintains the mirror pods of this node.
type Mirrors struct {
	wake.Slot
	conf Config

	// The rest belongs to Run. attempts are the last calls, by pod name.
	attempts map[string]*attempt
	calls    *apiclient.Pool[result]
}

// attempt is the last call about a pod, in progress or not.
type attempt struct {
	call *call
	busy bool
	// backoff says when the call is made again, if it is still needed then.
	backoff apiclient.Backoff
	last    logging.LastError
}

// result is the result of a call.
type result struct {
	name string
	made *v1.Pod
	err  error
}

// New returns Mirrors. It does nothing before Run.
func New(c Config) *Mirrors {
	return &Mirrors{Slot: wake.NewSlot(), conf: c, attempts: map[string]*attempt{}, calls: apiclient.NewPool[result]()}
}

// awaitWatch is how long the watch has to report the effect of a call, before the call is repeated.
const awaitWatch = 5 * time.Second

// Run maintains the mirror pods until ctx ends. Failed calls are repeated. The error is nil.
func (m *Mirrors) Run(ctx context.Context) error {
	objects, stopObjects := m.conf.Objects.Subscribe()
	defer stopObjects()
	statuses, stopStatuses := m.conf.Statuses.Watch()
	defer stopStatuses()
	facts, stopFacts := m.conf.Facts.Watch(nodefacts.UID)
	defer stopFacts()
	calling, cancel := context.WithCancel(ctx)
	defer m.calls.Wait()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if next := m.startCalls(calling); !next.IsZero() {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
		case <-m.Slot:
		case <-statuses:
		case <-facts:
		case <-objects.Woken():
			objects.Drain()
		case <-m.conf.Reached:
			for _, a := range m.attempts {
				a.backoff.Recovered()
			}
		case r := <-m.calls.Results():
			m.calls.Ended()
			m.handleResult(r)
		}
	}
}

// startCalls starts the calls that are due, as far as the pool has room. It returns when the next one is due; zero if
// there is none, or if another call has to end first.
func (m *Mirrors) startCalls(ctx context.Context) (next time.Time) {
	mirrors, known := m.conf.Objects.Mirrors()
	if !known {
		return time.Time{}
	}
	todo := plan(owner{m.conf.Node, m.conf.Facts.Now().UID}, m.conf.Statuses.List(), mirrors, m.conf.Awaited)
	now := time.Now()
	for name, a := range m.attempts {
		if c := todo[name]; !a.busy && (c == nil || !c.same(a.call)) {
			delete(m.attempts, name) // it has had its effect
		}
	}
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		a := m.attempts[name]
		switch {
		case a == nil:
			a = &attempt{}
			m.attempts[name] = a
		case a.busy:
			continue
		case a.backoff.Due().After(now):
			if due := a.backoff.Due(); next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		if m.calls.Full() {
			return time.Time{}
		}
		c := todo[name]
		a.call, a.busy = c, true
		m.calls.Go(ctx, func() result {
			r := result{name: name}
			if c.make != nil {
				r.made, r.err = m.conf.API.Create(ctx, c.make)
			} else {
				r.err = m.conf.API.Delete(ctx, c.namespace, c.name, c.remove)
			}
			return r
		})
	}
	return next
}

// handleResult processes the result of a call.
func (m *Mirrors) handleResult(r result) {
	a := m.attempts[r.name]
	a.busy = false
	log := m.conf.Log.WithValues("pod", logging.Ref(r.name))
	removes := a.call.make == nil
	switch {
	case r.err == nil && !removes:
		log.V(2).Info("Mirror pod created", "podUID", r.made.UID)
	case r.err == nil, removes && (errors.IsNotFound(r.err) || errors.IsConflict(r.err)): // it is gone already
		log.V(2).Info("Mirror pod deleted", "podUID", a.call.remove)
	default:
		a.backoff.Failed(r.err)
		if !apiclient.Unusable(r.err) {
			a.last.Log(log, r.err, "The API server doesn't show a static pod as it is; the pod itself runs")
		}
		return
	}
	a.last.Clear()
	a.backoff.Succeeded()
	a.backoff.Wait(awaitWatch)
}
