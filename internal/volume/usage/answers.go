package usage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Answers asks questions that may take long or never be answered, of file systems mostly: some at once, and the same
// one once at a time. What is known stays until something newer is. Its methods may be called by many goroutines.
type Answers[V any] struct {
	fresh  time.Duration
	query  func(key string) (V, error)
	asking sync.WaitGroup

	mu     sync.Mutex
	closed bool
	swept  time.Time
	// queue holds what is to be asked, working is how many goroutines do that.
	queue   []string
	working int
	known   map[string]*answer[V]
}

// answer is what is known of one question.
type answer[V any] struct {
	// answered is closed when the question that is under way is answered; nil if none is. Until then nobody asks again.
	answered chan struct{}
	// late says that it was waited for once in vain: it isn't waited for again.
	late bool
	// asked is when somebody was interested in it last.
	asked time.Time
	// tried is when it was answered last, or couldn't be.
	tried time.Time
	last  Answer[V]
}

// Answer is the last one that there is to a question.
type Answer[V any] struct {
	Value V
	// At is when the value was given; zero if there is none yet.
	At time.Time
	// Err is why there is no newer one.
	Err error
}

const (
	// forgetAfter is for how long an answer is kept that nobody asks for any more.
	forgetAfter = 10 * time.Minute
	// retryAfter is for how long nobody asks again what could never be answered yet.
	retryAfter = 10 * time.Second
)

// NewAnswers returns what asks query, for each key at most once in fresh; while there were only errors, also 10 seconds
// after the last. A query may never return.
func NewAnswers[V any](fresh time.Duration, query func(key string) (V, error)) *Answers[V] {
	return &Answers[V]{fresh: fresh, query: query, known: map[string]*answer[V]{}}
}

// Get returns an answer for each key, and asks for those that aren't fresh. It waits at most for patience altogether
// for keys that there is no answer to, and at most for revise for the others, whose older answer is given, with its own
// time, if there is no newer one by then. Of a key without any answer it gives a zero Answer.
func (a *Answers[V]) Get(ctx context.Context, keys []string, patience, revise time.Duration) []Answer[V] {
	questions := a.ask(keys)
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

// question is one that somebody waits for.
type question[V any] struct {
	*answer[V]
	// answered is nil if it isn't waited for.
	answered chan struct{}
	// known says that there is an older answer.
	known bool
}

func (a *Answers[V]) ask(keys []string) []question[V] {
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
		fresh := a.fresh
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

// sweep forgets what nobody asks for any more.
func (a *Answers[V]) sweep(now time.Time) {
	if now.Sub(a.swept) < forgetAfter {
		return
	}
	a.swept = now
	for key, q := range a.known {
		if q.answered == nil && now.Sub(q.asked) >= forgetAfter {
			delete(a.known, key)
		}
	}
}

const (
	// atOnce is how many questions are asked at once.
	atOnce = 16
	// slow is after how long a question isn't counted among those any more, lest some that hang keep all others from
	// being asked.
	slow = 200 * time.Millisecond
)

// start has what is in the queue asked. a.mu is held.
func (a *Answers[V]) start() {
	for ; a.working < min(atOnce, len(a.queue)); a.working++ {
		a.asking.Go(a.work)
	}
}

// work asks what is in the queue, until nothing is, or somebody has taken its place.
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

// answer asks one question, and reports whether that took no longer than it may. a.mu is held before and after.
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

// Close waits until no question is under way, or ctx ends: then it says which ones aren't answered. No
// question is asked after it.
func (a *Answers[V]) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	for _, key := range a.queue { // nobody answers these any more
		close(a.known[key].answered)
		a.known[key].answered = nil
	}
	a.queue = nil
	a.mu.Unlock()
	done := make(chan struct{})
	go func() { // as long as a file system doesn't answer: nothing in the process can end that
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
