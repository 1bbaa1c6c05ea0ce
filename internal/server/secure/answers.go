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
	// maxAnswers is the maximum number of entries of an LRU cache of answers.
	maxAnswers = 4096
	// maxReviews is the maximum number of concurrent SubjectAccessReviews, because each uses memory. maxStrangers is
	// the maximum number of concurrent TokenReviews. It is lower, and TokenReviews wait for a slot only for a short
	// time, because unauthenticated clients cause them. Client certificates need no TokenReview.
	maxReviews, maxStrangers = 64, 16
	// maxVerified is the number of certificate chains that are verified at once. maxChain is the maximum number of
	// certificates in a chain without its root. Both are low, because an unauthenticated client chooses the keys and
	// signatures, and so the CPU time to verify them. Accepted certificates are cached.
	maxVerified, maxChain = 1, 4
	// reviewLimit is the timeout of a review; strangerWait is how long a TokenReview or a new certificate waits for a
	// slot.
	reviewLimit  = 10 * time.Second
	strangerWait = time.Second
)

// answers caches decisions about clients while they are valid: the API server's reviews and verified certificates.
// Concurrent requests for the same decision share one call.
type answers[T any] struct {
	salt  [32]byte
	known *cache.LRUExpireCache
	once  singleflight.Group
	slots chan struct{}
	// wait is how long a call waits for a slot.
	wait time.Duration
}

func newAnswers[T any](slots int, wait time.Duration) *answers[T] {
	a := &answers[T]{known: cache.NewLRUExpireCache(maxAnswers), slots: make(chan struct{}, slots), wait: wait}
	_, _ = rand.Read(a.salt[:]) // never fails
	return a
}

// get returns the cached answer to a question. If there is none, it calls the function ask, which returns the answer
// and how long the answer is valid. Only a salted hash of the question is stored, because a question may be a secret
// token.
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
			select {
			case a.slots <- struct{}{}:
				defer func() { <-a.slots }()
			case <-time.After(a.wait):
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
		if ctx.Err() != nil || !errors.Is(err, context.Canceled) { // else retry: another caller's call was cancelled
			var none T
			return none, err
		}
	}
}
