package secure

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// maxAnswers is how many answers are remembered: those used last.
	maxAnswers = 4096
	// maxReviews is how many questions of what a user may do are under way at once: each holds memory. maxStrangers is
	// how many are of who somebody is: anybody may have that asked, with as many connections as the server has, so
	// these are few and don't wait for their turn for long. Who shows a certificate needs none.
	maxReviews, maxStrangers = 64, 16
	// maxVerified is how many certificates are verified at once, maxChain of how many, the client's and those between
	// it and an authority: a client that comes for the first time chooses keys and signatures, and how much work these
	// are. One that was accepted is remembered.
	maxVerified, maxChain = 1, 4
	// reviewLimit is how long one may take, strangerWait how long one of a stranger waits for its turn.
	reviewLimit  = 10 * time.Second
	strangerWait = time.Second
)

// answers are those of the API server, or of other work, for as long as they count. Who asks the same at the same time
// is answered together.
type answers[T any] struct {
	salt  [32]byte
	known *cache.LRUExpireCache
	once  singleflight.Group
	slots chan struct{}
	// wait is how long a question waits for a slot.
	wait time.Duration
}

func newAnswers[T any](slots int, wait time.Duration) *answers[T] {
	a := &answers[T]{known: cache.NewLRUExpireCache(maxAnswers), slots: make(chan struct{}, slots), wait: wait}
	_, _ = rand.Read(a.salt[:]) // it never fails
	return a
}

// get is the answer to a question: a known one, or that of ask, with how long that counts. Questions aren't kept, for
// they may be secrets.
func (a *answers[T]) get(ctx context.Context, question []byte,
	ask func(context.Context) (T, time.Duration, error)) (T, error) {
	sum := sha256.New()
	sum.Write(a.salt[:])
	sum.Write(question)
	key := string(sum.Sum(nil))
	for {
		if known, ok := a.known.Get(key); ok {
			return known.(T), nil
		}
		got, err, _ := a.once.Do(key, func() (any, error) {
			ctx, cancel := context.WithTimeout(ctx, reviewLimit)
			defer cancel()
			turn := time.NewTimer(a.wait)
			defer turn.Stop()
			select {
			case a.slots <- struct{}{}:
				defer func() { <-a.slots }()
			case <-turn.C:
				return nil, errors.New("too much is asked for the first time at once")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			answer, counts, err := ask(ctx)
			if err != nil {
				return nil, err
			}
			if counts > 0 {
				a.known.Add(key, answer, counts)
			}
			return answer, nil
		})
		if err == nil {
			return got.(T), nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.Canceled) { // that of whose question it was may have been cancelled
			var none T
			return none, err
		}
	}
}
