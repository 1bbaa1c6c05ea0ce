package node_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
)

// call makes a call of method and reports whether it was carried out.
func call(ctx context.Context, i *node.Injector, method string) (done bool, err error) {
	_, err = i.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/runtime.v1.RuntimeService/" + method},
		func(context.Context, any) (any, error) { done = true; return "answer", nil })
	return done, err
}

func TestFailNext(t *testing.T) {
	i := node.NewFaults()
	boom := errors.New("boom")
	i.FailNext("A", 2, boom)
	for n, want := range []error{boom, boom, nil} {
		done, err := call(t.Context(), i, "A")
		if !errors.Is(err, want) || done != (want == nil) {
			t.Errorf("call %d: carried out %t, error %v; want error %v", n, done, err, want)
		}
	}
	if _, err := call(t.Context(), i, "B"); err != nil {
		t.Errorf("another method failed: %v", err)
	}
	if i.Calls("A") != 3 || i.AllCalls()["B"] != 1 {
		t.Errorf("counted %v, want A 3 and B 1", i.AllCalls())
	}
}

func TestLoseNext(t *testing.T) {
	i := node.NewFaults()
	i.LoseNext("A", 1)
	done, err := call(t.Context(), i, "A")
	if !done || status.Code(err) != codes.Unavailable {
		t.Errorf("carried out %t, error %v; want it carried out and Unavailable", done, err)
	}
	if _, err := call(t.Context(), i, "A"); err != nil {
		t.Errorf("the call after the lost one: %v", err)
	}
}

func TestDelayAndHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := node.NewFaults()
		i.Delay("A", time.Minute)
		began := time.Now()
		if done, err := call(t.Context(), i, "A"); !done || err != nil || time.Since(began) != time.Minute {
			t.Errorf("delayed call: carried out %t, error %v after %s", done, err, time.Since(began))
		}
		i.Delay("A", 0)

		release := i.Hang("A")
		hung := make(chan error, 1)
		go func() { _, err := call(t.Context(), i, "A"); hung <- err }()
		if err := i.AwaitCalls(t.Context(), "A", 2); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(hung) != 0 {
			t.Fatal("the call didn't hang")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if done, err := call(ctx, i, "A"); done || status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("hanging call given up: carried out %t, error %v", done, err)
		}
		release()
		release()
		if err := <-hung; err != nil {
			t.Errorf("released call: %v", err)
		}
		if done, err := call(t.Context(), i, "A"); !done || err != nil {
			t.Errorf("call after the release: carried out %t, error %v", done, err)
		}
	})
}
