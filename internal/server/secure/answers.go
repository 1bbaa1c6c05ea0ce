package secure

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// maxAnswers is how many answers are remembered: those used last.
	maxAnswers = 4096
	// maxReviews is how many questions of a kind are under way at once: each holds memory, and strangers may ask.
	maxReviews = 64
	// reviewLimit is how long one may take.
	reviewLimit = 10 * time.Second
)

// answers are those of the API server, for as long as they count. Who asks the same at the same time is answered together.
type answers[T any] struct {
	salt  [32]byte
	known *cache.LRUExpireCache
	once  singleflight.Group
	slots chan struct{}
}

func newAnswers[T any]() *answers[T] {
	a := &answers[T]{known: cache.NewLRUExpireCache(maxAnswers), slots: make(chan struct{}, maxReviews)}
	_, _ = rand.Read(a.salt[:]) // it never fails
	return a
}

// get is the answer to a question: a known one, or that of ask, with how long that counts. Questions aren't kept, for they may be
// secrets.
func (a *answers[T]) get(ctx context.Context, question []byte, ask func(context.Context) (T, time.Duration, error)) (T, error) {
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
			select {
			case a.slots <- struct{}{}:
				defer func() { <-a.slots }()
			case <-ctx.Done():
				return nil, fmt.Errorf("too much is asked of the API server: %w", ctx.Err())
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
