package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// callError is the error of a call to a driver. It contains the driver's error text, but no argument of the call:
// arguments may be secret.
type callError struct {
	// driver is the driver's name, method the name of the call without its service.
	driver, method, text string
	code                 codes.Code
	// final says that the driver hasn't executed the call. If it is false, the driver may have executed the call, or
	// may still be executing it.
	final bool
}

func (e *callError) Error() string {
	return fmt.Sprintf("CSI driver %s: %s: rpc error: code = %s desc = %s", e.driver, e.method, e.code, e.text)
}

// isFinal reports whether the error of a call means that the driver hasn't executed the call (CSI: "Error Scheme";
// ResourceExhausted and Aborted are transient as well, as they are for Kubernetes).
func isFinal(err error) bool {
	if _, ok := status.FromError(err); !ok {
		return false
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	default:
		return true
	}
}

// refused reports whether an error is a *callError of a call that the driver certainly hasn't executed.
func refused(err error) bool {
	failed, ok := errors.AsType[*callError](err)
	return ok && failed.final
}

// maxText is the maximum size in bytes of a driver's text in a message.
const maxText = 1 << 10

// bounded is a driver's text for a message: not longer than maxText, and on one line.
func bounded(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	return strings.ToValidUTF8(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' }), " "), "?")
}

// rpc describes a call to a driver.
type rpc struct {
	// driver is the driver's name, method the gRPC name of the method.
	driver, method string
	// migrated says that the call is for a volume of a kind that the driver has replaced.
	migrated bool
	// hidden are texts that must not be in messages. A driver may repeat them.
	hidden []string
}

// ask makes a call, and records its metrics. The error is a *callError.
func ask[Q, A any](ctx context.Context, d *Drivers, r rpc, call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q) (A, error) {
	began := time.Now()
	answer, err := call(ctx, request)
	code := status.Code(err)
	if code > codes.Unauthenticated { // a code that the driver made up, which would become a label of metrics
		code = codes.Unknown
	}
	d.conf.Meter.CSICall(r.driver, r.method, code.String(), r.migrated, time.Since(began))
	if err != nil {
		err = &callError{driver: r.driver, method: path.Base(r.method), code: code, final: isFinal(err),
			text: bounded(hide(status.Convert(err).Message(), r.hidden))}
	}
	return answer, err
}

// shortest is the length in bytes from which on a text is hidden: shorter texts aren't secret, and hiding them would
// make messages unreadable.
const shortest = 4

// hide replaces the hidden texts, the longest first: one may be a part of another. A strings.Replacer would need hours
// for one text of 1 MiB.
func hide(text string, hidden []string) string {
	for _, h := range slices.SortedFunc(slices.Values(hidden), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	}) {
		if len(h) >= shortest {
			text = strings.ReplaceAll(text, h, "(secret)")
		}
	}
	return text
}

// call calls the function do, which makes a call to the driver's node service, with the driver's newest registration.
// It first waits for earlier calls if there are too many. The context of do ends at the time limit of a call. If no
// driver with this name has registered, do isn't called, and the error is a *volume.AwaitsError. say receives the
// reason for which the call waits.
func (d *Drivers) call(ctx context.Context, name, method string, say volume.Say,
	do func(context.Context, *registration) error) error {
	var r *registration
	called := path.Base(method)
	for {
		var replaced <-chan struct{}
		if r, replaced = d.newest(name); r == nil {
			return absent(name)
		}
		say.Waits(fmt.Sprintf("%s waits for other calls of the CSI driver %s", called, name))
		leave, err := r.acquire(ctx, replaced)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			continue // it was replaced meanwhile
		}
		if d.beginCall(name, r) {
			defer leave()
			break
		}
		leave()
	}
	defer d.endCall(r)
	say.Waits(fmt.Sprintf("the CSI driver %s hasn't answered %s yet", name, called))
	defer say.Waits("")
	ctx, cancel := context.WithTimeout(ctx, d.conf.Patience)
	defer cancel()
	return do(ctx, r)
}

// acquire waits for a place among the registration's calls, until the registration is replaced.
func (r *registration) acquire(ctx context.Context, replaced <-chan struct{}) (leave func(), err error) {
	own, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-replaced:
			cancel()
		case <-own.Done():
		}
	})
	defer watching.Wait()
	defer cancel()
	return r.gate.Acquire(own, 0)
}

// reachable reports whether the driver's socket is still connected after a call. A connection may break a moment after
// the failure of its last call.
func (r *registration) reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return r.conn.GetState() == connectivity.Ready && !r.conn.WaitForStateChange(ctx, connectivity.Ready)
}

// absent is the error for a driver that hasn't registered.
func absent(name string) error {
	return volume.Awaits(awaited(name), "the CSI driver %s hasn't registered on this node", name)
}
