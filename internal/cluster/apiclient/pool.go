package apiclient

import (
	"context"
	"sync"
)

// callsAtOnce is how many calls of a Pool are in progress at most: one slow answer must not hold up all, and a server
// that recovers must not receive all calls at once.
const callsAtOnce = 10

// Pool makes calls and returns their results to the goroutine that uses it. Its methods are for that goroutine only.
type Pool[R any] struct {
	inFlight int
	calls    sync.WaitGroup
	results  chan R
}

// NewPool returns a pool without calls.
func NewPool[R any]() *Pool[R] { return &Pool[R]{results: make(chan R)} }

// Full reports whether a call has to end before the next one.
func (p *Pool[R]) Full() bool { return p.inFlight == callsAtOnce }

// Go makes a call. Its result comes from Results, unless ctx ends before.
func (p *Pool[R]) Go(ctx context.Context, call func() R) {
	p.inFlight++
	p.calls.Go(func() {
		r := call()
		select {
		case p.results <- r:
		case <-ctx.Done():
		}
	})
}

// Results returns the results of calls that have ended; Ended has to be called for each.
func (p *Pool[R]) Results() <-chan R { return p.results }

// Ended makes room for another call. It has to be called for each result.
func (p *Pool[R]) Ended() { p.inFlight-- }

// Wait waits until no call is in progress. The caller has to end the calls' context first.
func (p *Pool[R]) Wait() { p.calls.Wait() }
