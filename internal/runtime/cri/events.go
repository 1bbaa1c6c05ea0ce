package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventBuffer evens out bursts between the network and the handler.
const eventBuffer = 64

// GetContainerEvents subscribes to the runtime's events and calls handle with
// each, until the stream breaks or ctx ends; it always returns an error. Once
// the subscription has been sent, established is called, and before any handle;
// both are called from this goroutine. A runtime without events is only known
// by the error after that (IsUnimplemented).
func (c *Conn) GetContainerEvents(ctx context.Context, established func(),
	handle func(*runtimeapi.ContainerEventResponse)) error {
	return call(ctx, c, c.runtime, "get_container_events", "", func(ctx context.Context, s rt) error {
		events := make(chan *runtimeapi.ContainerEventResponse, eventBuffer)
		ready := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			err := s.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) {
				close(ready)
			})
			close(events)
			done <- err
		}()
		select {
		case <-ready:
			established()
		case err := <-done:
			if !isClosed(ready) {
				return err
			}
			done <- err
			established()
		}
		// cri-client sends without looking at ctx, so this loop has to go on to the end.
		for e := range events {
			if ctx.Err() == nil {
				handle(e)
			}
		}
		return <-done
	})
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
