package usage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Answers caches the results of queries that may take long or never return, mostly to file systems. Several queries
// run at once, but only one for each key. A result is kept until a newer query succeeds, or no caller has asked for
// it for a while. Its methods are safe for concurrent use.
type Answers[V any] struct {
	fresh  time.Duration
	query  func(key string) (V, error)
	asking sync.WaitGroup

	mu     sync.Mutex
	closed bool
	swept  time.Time
	// queue has the keys to query. working is the number of goroutines that run queries, without those whose query
	// is slow.
	queue   []string
	working int
	known   map[string]*answer[V]
}

// answer is the state of one key.
type answer[V any] struct {
	// answered is closed when the running query ends; nil if none runs. Only one query for a key runs at a time.
	answered chan struct{}
	// late says that a caller has waited for the running query in vain: other callers don't wait for it.
	late bool
	// asked is when a caller last asked for the result.
	asked time.Time
	// tried is when the last query ended, successfully or not.
	tried time.Time
	last  Answer[V]
}

// Answer is the last result for a key.
type Answer[V any] struct {
	Value V
	// At is when the query returned Value; zero if none has succeeded yet.
	At time.Time
	// Err is the error of the last query; nil if it succeeded.
	Err error
}

const (
	// forgetAfter is how long a result is kept that no caller asks for.
	forgetAfter = 10 * time.Minute
	// retryAfter is the delay after a failed query for a key that has no result yet.
	retryAfter = 10 * time.Second
)

// NewAnswers returns Answers that call query at most once for each key in the time fresh. If a key has no result
// yet, it is queried again 10 seconds after an error, unless fresh is shorter. A query may never return.
func NewAnswers[V any](fresh time.Duration, query func(key string) (V, error)) *Answers[V] {
	return &Answers[V]{fresh: fresh, query: query, known: map[string]*answer[V]{}}
}

// Get returns an answer for each key, and starts queries for the keys whose results are too old. It waits for at
// most patience for all keys without a result together, and for at most revise for the other keys. If a query takes
// longer, Get returns the older result with its time. For a key without any result it returns a zero Answer.
func (a *Answers[V]) Get(ctx context.Context, keys []string, patience, revise time.Duration) []Answer[V] {
	return a.GetWithin(ctx, keys, a.fresh, patience, revise)
}

// GetWithin is Get for results that are at most fresh old, whatever NewAnswers specified.
func (a *Answers[V]) GetWithin(ctx context.Context, keys []string, fresh, patience, revise time.Duration) []Answer[V] {
	questions := a.ask(keys, fresh)
	first, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again, cancelAgain := context.WithTimeout(first, revise)
	defer cancelAgain()
	for _, q := range questions {
		if q.answered == nil {
			continue
		}
		until := first
		if q.known {
			until = again
		}
		select {
		case <-q.answered:
		case <-until.Done():
		}
	}
	list := make([]Answer[V], len(keys))
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, q := range questions {
		list[i] = q.last
		if q.answered != nil && q.answered == q.answer.answered && ctx.Err() == nil {
			q.late = true
		}
	}
	return list
}

// question is an answer that a caller of Get waits for.
type question[V any] struct {
	*answer[V]
	// answered is closed when the query ends; nil if the caller doesn't wait for it.
	answered chan struct{}
	// known says that the key has an older result.
	known bool
}

func (a *Answers[V]) ask(keys []string, maxAge time.Duration) []question[V] {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	list := make([]question[V], len(keys))
	for i, key := range keys {
		q := a.known[key]
		if q == nil {
			q = &answer[V]{}
			a.known[key] = q
		}
		q.asked = now
		fresh := maxAge
		if q.last.Err != nil && q.last.At.IsZero() {
			fresh = min(fresh, retryAfter)
		}
		if q.answered == nil && !a.closed && (q.tried.IsZero() || now.Sub(q.tried) >= fresh) {
			q.answered = make(chan struct{})
			a.queue = append(a.queue, key)
		}
		list[i] = question[V]{answer: q, known: !q.last.At.IsZero()}
		if !q.late {
			list[i].answered = q.answered
		}
	}
	a.start()
	a.sweep(now)
	return list
}

// sweep removes results that no caller has asked for in forgetAfter.
func (a *Answers[V]) sweep(now time.Time) {
	if now.Sub(a.swept) < forgetAfter {
		return
	}
	a.swept = now
	maps.DeleteFunc(a.known, func(_ string, q *answer[V]) bool {
		return q.answered == nil && now.Sub(q.asked) >= forgetAfter
	})
}

const (
	// atOnce is how many queries run at once.
	atOnce = 16
	// slow is how long a query counts towards atOnce, so that hanging queries don't block all others.
	slow = 200 * time.Millisecond
)

// start starts workers for the queue. a.mu is held.
func (a *Answers[V]) start() {
	for ; a.working < min(atOnce, len(a.queue)); a.working++ {
		a.asking.Go(a.work)
	}
}

// work runs queries from the queue until the queue is empty, or until one of its queries is slow, so that another
// worker replaces this one.
func (a *Answers[V]) work() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.queue) > 0 {
		key := a.queue[0]
		a.queue = a.queue[1:]
		if !a.answer(key, a.known[key]) {
			return
		}
	}
	a.working--
}

// answer runs one query, and reports whether it took less than slow. a.mu is held before and after, not during the
// query.
func (a *Answers[V]) answer(key string, q *answer[V]) (quick bool) {
	quick = true
	done := false
	timer := time.AfterFunc(slow, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !done {
			quick = false
			a.working--
			a.start()
		}
	})
	a.mu.Unlock()
	v, err := a.query(key)
	timer.Stop()
	a.mu.Lock()
	done = true
	q.tried, q.late, q.last.Err = time.Now(), false, err
	if err == nil {
		q.last = Answer[V]{Value: v, At: q.tried}
	}
	close(q.answered)
	q.answered = nil
	return quick
}

// Close waits until no query is running. If ctx ends before, it returns an error that lists the keys of the running
// queries. After Close, no query is started.
func (a *Answers[V]) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	for _, key := range a.queue { // queries for these keys are never run
		close(a.known[key].answered)
		a.known[key].answered = nil
	}
	a.queue = nil
	a.mu.Unlock()
	done := make(chan struct{})
	go func() { // may never end: a query to a hanging file system can't be cancelled
		a.asking.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop asking file systems how full they are: %w: these don't answer: %s", context.Cause(ctx),
			strings.Join(a.hanging(), ", "))
	}
}

func (a *Answers[V]) hanging() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for key, q := range a.known {
		if q.answered != nil {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}
