package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventBuffer is how many received events can wait for the handler.
const eventBuffer = 64

// GetContainerEvents subscribes to the runtime's events and calls handle with each, until the stream breaks or ctx
// ends; it always returns an error. established is called once the subscription has been sent, before any handle;
// both are called from this goroutine. If the runtime doesn't support events, the error after established shows it
// (IsUnimplemented).
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
		// cri-client sends to the channel without checking ctx, so this loop has to drain it.
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
