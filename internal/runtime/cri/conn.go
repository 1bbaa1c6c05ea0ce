// Package cri is deckhand's connection to a container runtime over the CRI. It offers only the calls that deckhand
// makes, reconnects as soon as the runtime answers again, and leaves the logging of errors to its callers.
package cri

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	internalapi "k8s.io/cri-api/pkg/apis"
)

// defaultTimeout is the timeout of calls if Options.Timeout is 0. It is also the kubelet's default of
// runtimeRequestTimeout.
const defaultTimeout = 2 * time.Minute

var errClosed = errors.New("the connection to the container runtime was closed")

// Observer is notified of every call to the runtime. It may be called concurrently.
type Observer interface {
	// Operation names the call as kubelet_runtime_operations_* do; err is nil on success.
	Operation(name string, took time.Duration, err error)
}

// Options configure a connection to a runtime.
type Options struct {
	// Endpoint of the runtime service: unix:///PATH or an absolute path.
	Endpoint string
	// ImageEndpoint of the image service; empty means the same as Endpoint.
	ImageEndpoint string
	// Timeout is the default timeout of calls. Some get more: starting a sandbox twice as much, stopping a
	// container its grace period in addition. 0 means 2 minutes.
	Timeout time.Duration
	// Observer may be nil.
	Observer Observer
	// Tracer creates a span for each call and passes its context (traceparent) to the runtime; nil for none.
	Tracer trace.TracerProvider
}

// Conn is a connection to a runtime. All methods may be called concurrently. Their errors are of type *Error; see
// IsNotFound and IsUnavailable.
type Conn struct {
	observer Observer
	runtime  *link[internalapi.RuntimeService]
	image    *link[internalapi.ImageManagerService]
	exec     *link[*execService]
	// timeout is the timeout of a streamed list.
	timeout time.Duration
	// receivers is a semaphore that bounds the ExecSync answers received at once.
	receivers chan struct{}

	mu sync.Mutex
	// checkpoints counts the running checkpoint calls by container ID.
	checkpoints map[string]int
}

// New validates the options and returns a connection that is established by the first call.
func New(o Options) (*Conn, error) {
	runtimeAt, err := endpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	imageAt := runtimeAt
	if o.ImageEndpoint != "" {
		if imageAt, err = endpoint(o.ImageEndpoint); err != nil {
			return nil, err
		}
	}
	timeout := cmp.Or(o.Timeout, defaultTimeout)
	return &Conn{
		observer: o.Observer,
		runtime:  newLink(dialRuntime(runtimeAt, timeout, o.Tracer)),
		image:    newLink(dialImage(imageAt, timeout, o.Tracer)),
		exec:     newLink(dialExec(runtimeAt, o.Tracer)),
		timeout:  timeout,

		receivers:   make(chan struct{}, execReceivers),
		checkpoints: map[string]int{},
	}, nil
}

// Dial is like New, but it also calls both services of the runtime, and fails if one of them doesn't answer.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	if _, err := c.Version(ctx); err != nil {
		c.Close()
		return nil, err
	}
	if _, err := c.ImageFsInfo(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection. Calls in progress may finish, later ones fail.
func (c *Conn) Close() {
	c.runtime.close(context.Background())
	c.image.close(context.Background())
	c.exec.close(context.Background())
}

// call makes one call on a link, reports it to the observer and wraps its error. If f's error means that the
// connection is broken, the link drops the connection.
func call[S service](ctx context.Context, c *Conn, l *link[S], operation, subject string,
	f func(context.Context, S) error) error {
	begin := time.Now()
	// cri-client also logs every error that it returns; the callers of this package log them.
	ctx = logr.NewContext(ctx, logr.Discard())
	s, err := l.acquire(ctx)
	if err == nil {
		err = f(ctx, s.service)
		l.release(ctx, s, IsUnavailable(err))
	}
	if c.observer != nil {
		c.observer.Operation(operation, time.Since(begin), err)
	}
	if err != nil {
		return &Error{Operation: operation, Subject: subject, err: err}
	}
	return nil
}

// get is like call, for a function that returns a value.
func get[S service, T any](ctx context.Context, c *Conn, l *link[S], operation, subject string,
	f func(context.Context, S) (T, error)) (out T, err error) {
	err = call(ctx, c, l, operation, subject, func(ctx context.Context, s S) error {
		out, err = f(ctx, s)
		return err
	})
	return out, err
}
