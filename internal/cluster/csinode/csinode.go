// Package csinode maintains this node's CSINode object at an API server: which CSI drivers the node has, under which
// IDs, and how many volumes of each. The scheduler and the attach-detach controller rely on it. The drivers' labels
// of the node are written by package nodeobject.
package csinode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

// CSINodes are the CSINode objects of an API server. Each call ends with its context, and returns the object as the
// server has it; errors are the server's (k8s.io/apimachinery/pkg/api/errors). A node may not watch them.
type CSINodes interface {
	Get(ctx context.Context, name string) (*storage.CSINode, error)
	Create(ctx context.Context, n *storage.CSINode) (*storage.CSINode, error)
	Update(ctx context.Context, n *storage.CSINode) (*storage.CSINode, error)
	// Delete deletes the object with this UID.
	Delete(ctx context.Context, name string, uid types.UID) error
}

// Fields are the facts that an Object writes.
const Fields = nodefacts.CSINode | nodefacts.CSINodeMissing

// Config configures an Object.
type Config struct {
	// Node is the node's name; its UID and its drivers are in Board. Facts writes Fields.
	Node  string
	Board *nodefacts.Board
	Facts *nodefacts.Writer
	API   CSINodes
	// Settled is how long after the start the object keeps drivers that haven't registered (again) yet.
	Settled time.Duration
	// Reached receives when the API server has recovered: calls that failed because of it are retried soon
	// (apiclient.Client.Recovered).
	Reached <-chan struct{}
	Log     logr.Logger
}

// Object maintains the CSINode object of this node. It reads the object when it starts, when a driver registers and
// after the API server has recovered. Between these times it doesn't notice changes by other clients.
type Object struct {
	conf Config

	// The rest belongs to Run. known is the object as the server returned it last; nil if it has to be read.
	known *storage.CSINode
	// results are the results of the last calls, by driver; nil before the first one was answered.
	results map[string]nodefacts.CSIEntry
	// missing is nodefacts.Facts.CSINodeMissing.
	missing string
	// settled is when drivers that haven't registered are removed.
	settled time.Time
}

// uninitialized is the kubelet's reason for a node that isn't ready without a CSINode object.
const uninitialized = "CSINode is not yet initialized"

// New returns an Object. It does nothing before Run. But it sets CSINodeMissing at once, so that the node isn't ready
// until its CSINode object is written.
func New(c Config) *Object {
	o := &Object{conf: c, missing: uninitialized}
	o.publish()
	return o
}

const (
	// tries is how many times in a row a write of the object is tried if other clients change the object at the same
	// time.
	tries = 5
	// pause is the shortest delay after these tries before the next ones.
	pause = 250 * time.Millisecond
)

// errOutdated means that another client has changed the object since the agent read it.
var errOutdated = errors.New("another client changes it at the same time")

// Run keeps the object up to date until ctx ends. Failed calls are repeated. The error is nil.
func (o *Object) Run(ctx context.Context) error {
	changed, stop := o.conf.Board.Watch(nodefacts.CSIDrivers | nodefacts.UID | nodefacts.CSILabels)
	defer stop()
	o.settled = time.Now().Add(o.conf.Settled)
	var failing apiclient.Backoff
	var last logging.LastError
	for {
		err := o.update(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var next time.Time
		switch {
		case err == nil:
			failing.Succeeded()
			if last.Clear() {
				o.conf.Log.Info("The CSINode object is up to date again")
			}
			if time.Now().Before(o.settled) {
				next = o.settled
			}
		case errors.Is(err, errOutdated):
			next = time.Now().Add(pause + rand.N(pause))
		default:
			failing.Failed(err)
			next = failing.Due()
		}
		if err != nil && !apiclient.Unusable(err) {
			last.Log(o.conf.Log, err, "The CSINode object isn't up to date: pods with CSI volumes may have to wait")
		}
		if !o.await(ctx, changed, next, &failing) {
			return nil
		}
	}
}

// await waits until there may be something to do, at most until next (zero for no limit). It returns false when ctx
// ended.
func (o *Object) await(ctx context.Context, changed <-chan struct{}, next time.Time, failing *apiclient.Backoff) bool {
	for {
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-changed:
			return true
		case <-o.conf.Reached:
			o.known = nil // the server's data may have been restored from a backup
			next = time.Now().Add(rand.N(pause))
			if failing.Failures() > 0 {
				failing.Recovered()
				next = failing.Due()
			}
		}
	}
}

// update makes the object agree with the facts, and publishes the result.
func (o *Object) update(ctx context.Context) (err error) {
	defer o.publish()
	for range tries {
		if err = o.reconcile(ctx, o.conf.Board.Now()); !errors.Is(err, errOutdated) {
			return err
		}
		o.known = nil
	}
	return err
}

func (o *Object) publish() {
	o.conf.Facts.Set(func(f *nodefacts.Facts) { f.CSINode, f.CSINodeMissing = maps.Clone(o.results), o.missing })
}

// reconcile makes the object agree with the facts. A driver that the server rejects doesn't affect other drivers.
func (o *Object) reconcile(ctx context.Context, facts *nodefacts.Facts) error {
	if facts.UID == "" {
		return nil // Run is woken once the node is registered
	}
	registered := map[string]bool{}
	for _, d := range facts.CSIDrivers {
		registered[d.Name] = true
		if labelled(facts, &d) && !o.has(&d) {
			o.known = nil
		}
	}
	maps.DeleteFunc(o.results, func(name string, _ nodefacts.CSIEntry) bool { return !registered[name] })
	failed := o.initialize(ctx, facts.UID, func(driver string) bool {
		return registered[driver] || time.Now().Before(o.settled)
	})
	switch {
	case failed == nil:
		o.missing = ""
	case !rejected(failed):
		return failed
	case o.missing != "":
		o.missing = uninitialized + ": " + failed.Error()
	}
	if o.results == nil {
		o.results = map[string]nodefacts.CSIEntry{}
	}
	initialized := failed == nil
	for _, d := range facts.CSIDrivers {
		if !labelled(facts, &d) || !initialized && o.has(&d) {
			continue // Run is woken once the node's object has its labels
		}
		entry := facts.CSILabels[d.Name]
		if entry.Refused == "" {
			err := failed
			if initialized {
				err = o.add(ctx, &d)
			}
			if err != nil {
				if !rejected(err) {
					return err
				}
				entry.Refused, failed = err.Error(), err
			}
		}
		o.results[d.Name] = entry
	}
	return failed
}

// rejected reports whether the server rejects the object, so that another try can't succeed.
func rejected(err error) bool { return apiclient.Rejected(err) && !errors.Is(err, errOutdated) }

// labelled reports whether the labels of this registration were written to the node's object, or were refused.
func labelled(facts *nodefacts.Facts, d *nodefacts.CSIDriver) bool {
	labels, tried := facts.CSILabels[d.Name]
	return tried && labels.Generation == d.Generation
}

// has reports whether there is a result of this registration.
func (o *Object) has(d *nodefacts.CSIDriver) bool {
	entry, tried := o.results[d.Name]
	return tried && entry.Generation == d.Generation
}

// initialize reads or creates the object, and writes everything except the entries of new drivers. It removes the
// entries of drivers for which stays returns false.
func (o *Object) initialize(ctx context.Context, uid types.UID, stays func(driver string) bool) error {
	if o.known == nil {
		known, err := o.conf.API.Get(ctx, o.conf.Node)
		if err != nil && !apierrors.IsNotFound(err) {
			return o.explain("get", err)
		}
		o.known = known
	}
	if o.known != nil && isOfAnother(o.known, uid) {
		err := o.conf.API.Delete(ctx, o.conf.Node, o.known.UID)
		if err != nil && !apierrors.IsNotFound(err) {
			return o.explain("delete", err)
		}
		o.known = nil
	}
	return o.write(ctx, only(initialized(o.known, o.conf.Node, uid), stays))
}

// add adds a driver to the object.
func (o *Object) add(ctx context.Context, d *nodefacts.CSIDriver) error {
	next, immutable := with(o.known, d)
	if immutable {
		if err := o.write(ctx, only(o.known, func(name string) bool { return name != d.Name })); err != nil {
			return err
		}
		next, _ = with(o.known, d)
	}
	return o.write(ctx, next)
}

// write creates or updates the object, unless the server's object already equals next.
func (o *Object) write(ctx context.Context, next *storage.CSINode) error {
	verb, call := "update", o.conf.API.Update
	if o.known == nil {
		verb, call = "create", o.conf.API.Create
	} else if equality.Semantic.DeepEqual(o.known, next) {
		return nil
	}
	written, err := call(ctx, next)
	if err != nil {
		return o.explain(verb, err)
	}
	o.known = written
	return nil
}

// explain wraps the error of a call.
func (o *Object) explain(verb string, err error) error {
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && verb == "update":
		return fmt.Errorf("%s CSINode %s: %w: %w", verb, o.conf.Node, errOutdated, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s CSINode %s: %w: allow the node's user to get, create, update and delete its CSINode "+
			"object, as the Node authorizer does", verb, o.conf.Node, err)
	}
	return fmt.Errorf("%s CSINode %s: %w", verb, o.conf.Node, err)
}
