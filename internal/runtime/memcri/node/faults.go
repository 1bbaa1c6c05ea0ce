package node

import (
	"context"
	"maps"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Injector injects faults into a gRPC server: calls that fail, take long, hang, or are executed but lose their
// answer. It also counts calls. Methods are named by their last part ("RunPodSandbox"), for unary and streaming
// calls alike.
//
// An Injector belongs to one server. The zero value is not usable; see NewFaults. All methods may be called at any
// time.
type Injector struct {
	mu      sync.Mutex
	calls   map[string]int
	fail    map[string]*failure
	lose    map[string]int
	delays  map[string]time.Duration
	hangs   map[string]chan struct{}
	arrived chan struct{} // closed and replaced when a call arrives
}

type failure struct {
	left int
	err  error
}

// NewFaults returns an Injector without faults.
func NewFaults() *Injector {
	return &Injector{
		calls:   make(map[string]int),
		fail:    make(map[string]*failure),
		lose:    make(map[string]int),
		delays:  make(map[string]time.Duration),
		hangs:   make(map[string]chan struct{}),
		arrived: make(chan struct{}),
	}
}

// FailNext makes the next n calls of method fail with err, without executing them. An err without a gRPC status
// reaches the client with code Unknown. n = 0 cancels the failures.
func (i *Injector) FailNext(method string, n int, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fail[method] = &failure{left: n, err: err}
}

// LoseNext executes the next n calls of method but loses their answers: the client sees Unavailable, as if the
// connection broke.
func (i *Injector) LoseNext(method string, n int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lose[method] = n
}

// Delay delays every call of method by d. 0 removes the delay.
func (i *Injector) Delay(method string, d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.delays[method] = d
}

// Hang blocks every call of method until release is called or the client gives up. After release, the waiting calls
// are executed. release may be called more than once. A second Hang of a method before release replaces the first
// one for later calls.
func (i *Injector) Hang(method string) (release func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	gate := make(chan struct{})
	i.hangs[method] = gate
	return sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.hangs[method] == gate {
			delete(i.hangs, method)
		}
		close(gate)
	})
}

// Calls returns how often method has been called.
func (i *Injector) Calls(method string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[method]
}

// AllCalls returns how often each method has been called.
func (i *Injector) AllCalls() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.calls)
}

// AwaitCalls waits until method has been called at least n times since the server was created. It returns ctx's
// error if ctx ends first.
func (i *Injector) AwaitCalls(ctx context.Context, method string, n int) error {
	for {
		i.mu.Lock()
		got, arrived := i.calls[method], i.arrived
		i.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-arrived:
		}
	}
}

// Unary is the interceptor for unary calls.
func (i *Injector) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler) (any, error) {
	lost, err := i.before(ctx, path.Base(info.FullMethod))
	if err != nil {
		return nil, err
	}
	resp, err := next(ctx, req)
	if lost {
		return nil, status.Error(codes.Unavailable, "connection lost before the answer arrived")
	}
	return resp, err
}

// Stream is the interceptor for streaming calls.
func (i *Injector) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if _, err := i.before(s.Context(), path.Base(info.FullMethod)); err != nil {
		return err
	}
	return next(srv, s)
}

// before counts the call and applies the faults for it.
func (i *Injector) before(ctx context.Context, method string) (lost bool, err error) {
	i.mu.Lock()
	i.calls[method]++
	close(i.arrived)
	i.arrived = make(chan struct{})
	delay, gate := i.delays[method], i.hangs[method]
	if f := i.fail[method]; f != nil && f.left > 0 {
		f.left--
		err = f.err
	} else if i.lose[method] > 0 {
		i.lose[method]--
		lost = true
	}
	i.mu.Unlock()

	if gate != nil {
		select {
		case <-ctx.Done():
			return false, status.FromContextError(ctx.Err()).Err()
		case <-gate:
		}
	}
	if delay > 0 {
		select {
		case <-ctx.Done():
			return false, status.FromContextError(ctx.Err()).Err()
		case <-time.After(delay):
		}
	}
	return lost, err
}
