package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func read(t *testing.T, s *subscription[int]) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	got, err := s.Next(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return got
}

func want(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s got %v, want %v", what, got, want)
	}
}

func TestEverySubscriberGetsEveryValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFanout[int](10, time.Minute)
		a, b := q.Subscribe(), q.Subscribe()
		q.Publish(1)
		q.Publish(2)
		want(t, "a", read(t, a), 1, 2)
		a.Close()
		q.Publish(3)
		want(t, "b", read(t, b), 1, 2, 3)
		want(t, "closed a", read(t, a))
		b.Close()
	})
}

func TestSlowSubscriberMissesOnlyItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFanout[int](2, time.Minute)
		slow, quick := q.Subscribe(), q.Subscribe()
		defer slow.Close()
		defer quick.Close()
		for v := range 4 {
			q.Publish(v)
			want(t, "quick", read(t, quick), v)
		}
		want(t, "slow", read(t, slow), 0, 1)
		if q.Dropped() != 2 {
			t.Errorf("dropped %d, want 2", q.Dropped())
		}
	})
}

func TestValuesWaitForASubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFanout[int](2, time.Minute)
		q.Publish(0) // will be too old
		time.Sleep(time.Minute + time.Second)
		q.Publish(1)
		q.Publish(2)
		q.Publish(3) // pushes 1 out
		s := q.Subscribe()
		want(t, "first subscriber", read(t, s), 2, 3)
		if q.Dropped() != 2 {
			t.Errorf("dropped %d, want 2", q.Dropped())
		}
		s.Close()
		q.Publish(4)
		q.Forget()
		s = q.Subscribe()
		defer s.Close()
		want(t, "subscriber after Forget", read(t, s))
	})
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFanout[int](2, time.Minute)
		s := q.Subscribe()
		defer s.Close()
		q.Publish(1)
		q.Shutdown()
		q.Publish(2)
		want(t, "reader", read(t, s), 1)
		if _, err := s.Next(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("after Shutdown: %v, want ErrClosed", err)
		}
	})
}
