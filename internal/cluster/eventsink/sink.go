// Package eventsink sends the events of a node and its pods to the API server. It reads them from the ring of events,
// so that no reporter waits for the API server.
package eventsink

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// Ring is the source of the events (events.Recorder).
type Ring interface {
	Watch() (changed <-chan struct{}, cancel func())
	Since(seq uint64) []events.Entry
}

// API creates and patches events. Its errors are the server's (k8s.io/apimachinery/pkg/api/errors).
type API interface {
	Create(ctx context.Context, e *v1.Event) error
	// Patch applies a strategic merge patch.
	Patch(ctx context.Context, namespace, name string, body []byte) error
}

// Why an event was lost.
const (
	// LostOverload: there were more events than could be sent.
	LostOverload = "overload"
	// LostRefused: the API server refuses the event, for instance because its namespace is terminating.
	LostRefused = "refused"
	// LostFailed: sending it failed again and again, though the server answers.
	LostFailed = "failed"
)

// Meter counts events. Its methods may be called concurrently.
type Meter interface {
	// EventSent counts sent events, new ones and updates; EventLost counts lost ones.
	EventSent()
	EventLost(why string)
}

// Config configures a Sink.
type Config struct {
	Ring Ring
	API  API
	// Node is the node's name.
	Node string
	// Reached receives when the API server answers again after an outage.
	Reached <-chan struct{}
	Meter   Meter
	Log     logr.Logger
}

const (
	// maxQueued is how many entries wait at most. The ring holds no more.
	maxQueued = 1000
	// remembered is the number of entries whose state at the API server is remembered.
	remembered = 4096
	// maxTries is how many times an event is sent at most while the server answers.
	maxTries = 8
	// serverFails is the number of failed events in a row that count as a failure of the server.
	serverFails = 3
)

// Sink sends events to the API server.
type Sink struct {
	conf  Config
	queue *queue
	// known maps an entry's ID to a *sentState, the state of the entry's event at the API server.
	known *lru.Cache
}

// New returns a sink. It does nothing before Run.
func New(c Config) *Sink {
	return &Sink{conf: c, queue: newQueue(maxQueued), known: lru.New(remembered)}
}

// Run sends events until ctx ends, beginning with those in the ring. The error is nil.
func (s *Sink) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { s.read(ctx) })
	for failures := 0; ; {
		i, ok, next := s.queue.pop(time.Now())
		if !ok {
			if !s.wait(ctx, s.queue.woken, next) {
				return nil
			}
			continue
		}
		err := s.send(ctx, i)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
			continue
		case apiclient.Unusable(err):
			failures = max(failures+1, serverFails)
		case i.tries == 0: // repeated failures of one event don't indicate a failing server
			failures++
		default:
			continue
		}
		if failures >= serverFails {
			_, after := apiclient.Retry(err, failures-serverFails)
			if !s.wait(ctx, nil, time.Now().Add(after)) {
				return nil
			}
		}
	}
}

// read moves new entries from the ring to the queue immediately: the ring keeps only the newest entries.
func (s *Sink) read(ctx context.Context) {
	changed, stop := s.conf.Ring.Watch()
	defer stop()
	for seq := uint64(0); ; {
		for _, e := range s.conf.Ring.Since(seq) {
			seq = e.Seq
			s.put(item{Entry: e})
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (s *Sink) put(i item) {
	if s.queue.put(i) {
		s.conf.Meter.EventLost(LostOverload)
	}
}

// wait waits until a time (zero for no limit), until woken receives, or until the server answers again: then all
// entries are due. It returns false when ctx ended.
func (s *Sink) wait(ctx context.Context, woken <-chan struct{}, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		due = time.After(time.Until(until))
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-woken:
	case <-s.conf.Reached:
		s.queue.hurry()
	}
	return true
}

// send sends one entry. If it fails, the entry is queued again, or lost after maxTries. Other entries don't wait for
// it.
func (s *Sink) send(ctx context.Context, i item) error {
	before := s.before(i.ID)
	c, err := plan(s.conf.Node, before, &i.Entry)
	if err != nil || c == nil {
		s.lose(&i, LostRefused, err)
		return nil
	}
	_, message := subject(s.conf.Node, &i.Entry)
	if c.event != nil {
		err = s.conf.API.Create(ctx, c.event)
	} else {
		err = s.conf.API.Patch(ctx, c.namespace, c.name, c.patch)
	}
	switch again, _ := apiclient.Retry(err, 0); {
	case err == nil:
		s.known.Add(i.ID, &sentState{i.Count, message})
		s.conf.Meter.EventSent()
		return nil
	case c.event != nil && errors.IsAlreadyExists(err): // the answer to an earlier try was lost
		s.known.Add(i.ID, &sentState{message: message})
	case c.event == nil && errors.IsNotFound(err): // events are deleted after an hour
		s.known.Remove(i.ID)
	case !again || errors.IsForbidden(err): // its namespace is terminating, or is gone
		s.lose(&i, LostRefused, err)
		return nil
	case !apiclient.Unusable(err) && i.tries+1 == maxTries:
		s.lose(&i, LostFailed, err)
		return err
	case !apiclient.Unusable(err):
		_, after := apiclient.Retry(err, i.tries)
		i.tries, i.due = i.tries+1, time.Now().Add(after)
		s.put(i)
		return err
	default:
		s.put(i)
		return err
	}
	s.put(i)
	return nil
}

func (s *Sink) before(id uint64) *sentState {
	known, ok := s.known.Get(id)
	if !ok {
		return nil
	}
	before, _ := known.(*sentState) // it holds nothing else
	return before
}

// lose counts and logs an entry that won't be sent. If err is nil, nothing is lost: there was no update to send.
func (s *Sink) lose(i *item, why string, err error) {
	if err != nil {
		s.conf.Meter.EventLost(why)
		s.conf.Log.V(2).Info("Dropping an event: it isn't sent to the API server",
			"object", klog.KRef(i.Object.Namespace, i.Object.Name), "reason", i.Reason, "message", i.Message,
			"err", err)
	}
}
