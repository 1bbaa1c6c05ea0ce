package nodeobject

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
)

// fakeLeases has one lease as an API server has it: with versions, which an update has to name.
type fakeLeases struct {
	mu      sync.Mutex
	lease   *coordination.Lease
	version int
	calls   []string
	// down is what each call fails with; hangs has it wait for its context.
	down  error
	hangs bool
}

var group = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (s *fakeLeases) call(ctx context.Context, name string, do func() error) (*coordination.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name)
	if s.hangs {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return nil, ctx.Err()
	}
	if s.down != nil {
		return nil, s.down
	}
	if err := do(); err != nil {
		return nil, err
	}
	return s.lease.DeepCopy(), nil
}

func (s *fakeLeases) Get(ctx context.Context, name string) (*coordination.Lease, error) {
	return s.call(ctx, "get", func() error {
		if s.lease == nil {
			return errors.NewNotFound(group, name)
		}
		return nil
	})
}

func (s *fakeLeases) Create(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error) {
	return s.call(ctx, "create", func() error {
		if s.lease != nil {
			return errors.NewAlreadyExists(group, l.Name)
		}
		s.store(l)
		return nil
	})
}

func (s *fakeLeases) Update(ctx context.Context, l *coordination.Lease) (*coordination.Lease, error) {
	return s.call(ctx, "update", func() error {
		switch {
		case s.lease == nil:
			return errors.NewNotFound(group, l.Name)
		case s.lease.ResourceVersion != l.ResourceVersion:
			return errors.NewConflict(group, l.Name, fmt.Errorf("it has changed"))
		}
		s.store(l)
		return nil
	})
}

func (s *fakeLeases) store(l *coordination.Lease) {
	s.version++
	s.lease = l.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
}

// did returns the calls since the last time.
func (s *fakeLeases) did() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// has returns the lease as it is.
func (s *fakeLeases) has() *coordination.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

func (s *fakeLeases) now(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := nodefacts.NewBoard(nodefacts.Facts{})
		object, err := board.Writer("a test", nodefacts.UID)
		if err != nil {
			t.Fatal(err)
		}
		server := &fakeLeases{}
		l := NewLease(LeaseConfig{Name: "node1", Duration: 40 * time.Second, API: server, Facts: board, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		defer func() { cancel(); <-done }()
		want := func(when string, calls ...string) {
			t.Helper()
			synctest.Wait()
			if got := server.did(); !slices.Equal(got, calls) {
				t.Errorf("%s: the calls are %v, want %v", when, got, calls)
			}
		}
		const period = 10500 * time.Millisecond // with jitter

		want("without a node's object", "get")
		object.Set(func(f *nodefacts.Facts) { f.UID = "1" })
		want("once it is registered", "get", "create")
		made := server.has()
		if o, s := made.OwnerReferences, made.Spec; len(o) != 1 || o[0].Kind != "Node" || o[0].UID != "1" || *s.HolderIdentity != "node1" || *s.LeaseDurationSeconds != 40 {
			t.Errorf("the lease is %+v", made)
		}
		time.Sleep(period)
		want("a quarter of the duration later", "update")
		if !server.has().Spec.RenewTime.After(made.Spec.RenewTime.Time) {
			t.Error("the time of renewal hasn't moved")
		}
		server.now(func() { server.lease.ResourceVersion = "other" })
		time.Sleep(period)
		want("changed by somebody", "update", "get", "update")
		server.now(func() { server.lease = nil })
		time.Sleep(period)
		want("removed by somebody", "update", "get", "create")
		object.Set(func(f *nodefacts.Facts) { f.UID = "2" })
		want("another object of the node", "update")
		if o := server.has().OwnerReferences; len(o) != 1 || o[0].UID != "2" {
			t.Errorf("the owners are %v", o)
		}

		server.now(func() { server.down = errors.NewServiceUnavailable("down") })
		time.Sleep(10 * period)
		synctest.Wait()
		if n := len(server.did()); n < 20 || n > 35 { // others find out by it that the server is back
			t.Errorf("%d calls in ten periods to a server that is down", n)
		}
		server.now(func() { server.down = nil; server.hangs = true })
		time.Sleep(10 * period)
		synctest.Wait()
		if n := len(server.did()); n < 5 || n > 20 {
			t.Errorf("%d calls in ten periods to a server that hangs", n)
		}
		server.now(func() { server.hangs = false })
		time.Sleep(2 * period)
		synctest.Wait()
		if age := time.Since(server.has().Spec.RenewTime.Time); age > period {
			t.Errorf("the lease was renewed last %s ago", age)
		}
	})
}

// After the clock was set, the lease is renewed at once. After it was set back, each renewal is later than the last one
// nevertheless: the node lifecycle controller takes no other for a sign of life.
func TestLeaseAfterTheClockWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := nodefacts.NewBoard(nodefacts.Facts{UID: "1"})
		future := metav1.NewMicroTime(time.Now().Add(time.Hour))
		server := &fakeLeases{}
		server.store(&coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Spec: coordination.LeaseSpec{RenewTime: &future}})
		l := NewLease(LeaseConfig{Name: "node1", Duration: 40 * time.Second, API: server, Facts: board, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		last := server.has().Spec.RenewTime.Time
		if !last.After(future.Time) || last.After(future.Add(time.Second)) {
			t.Errorf("renewed at %v after %v", last, future)
		}
		for range 3 {
			server.did()
			l.ClockChanged()
			synctest.Wait()
			if got := server.did(); !slices.Equal(got, []string{"update"}) {
				t.Errorf("the calls are %v", got)
			}
			now := server.has().Spec.RenewTime.Time
			if !now.After(last) {
				t.Errorf("renewed at %v after %v", now, last)
			}
			last = now
		}
		time.Sleep(2 * time.Hour)
		if now := server.has().Spec.RenewTime.Time; time.Since(now) > 15*time.Second {
			t.Errorf("the clock has caught up, but it was renewed at %v", now)
		}
	})
}
