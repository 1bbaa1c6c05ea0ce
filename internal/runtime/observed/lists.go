package observed

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An answer of the runtime has a maximum size, 16 MiB on both sides: 33,000 dead containers don't fit. A list that is
// too long is requested as a stream, or in parts from a runtime without streams, or if a part of the stream is too
// long: containerd sends 5,000 items in one, whatever their size. Our parts are in the order in which states follow one
// another, so that an instance that changes its state meanwhile is in one of them at least.
var (
	sandboxStates = [...]runtimeapi.PodSandboxState{
		runtimeapi.PodSandboxState_SANDBOX_READY,
		runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
	}
	containerStates = [...]runtimeapi.ContainerState{
		runtimeapi.ContainerState_CONTAINER_CREATED,
		runtimeapi.ContainerState_CONTAINER_RUNNING,
		runtimeapi.ContainerState_CONTAINER_UNKNOWN,
		runtimeapi.ContainerState_CONTAINER_EXITED,
	}
)

// tooLong reports whether a list failed because it is too long for one answer.
func tooLong(err error) bool { return status.Code(err) == codes.ResourceExhausted }

// noStream reports whether the runtime doesn't implement a streamed list.
func noStream(err error) bool { return status.Code(err) == codes.Unimplemented }

// eachSandbox calls yield with each sandbox that has the labels, at least once.
func (s *Store) eachSandbox(ctx context.Context, labels map[string]string, yield func(*runtimeapi.PodSandbox)) error {
	all := &runtimeapi.PodSandboxFilter{LabelSelector: labels}
	err := s.listSandboxes(ctx, all, yield)
	if !tooLong(err) {
		return err
	}
	if err := s.rt.StreamPodSandboxes(ctx, all, yield); !noStream(err) && !tooLong(err) {
		return err
	}
	for _, state := range sandboxStates {
		f := &runtimeapi.PodSandboxFilter{LabelSelector: labels, State: &runtimeapi.PodSandboxStateValue{State: state}}
		if err := s.listSandboxes(ctx, f, yield); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) listSandboxes(ctx context.Context, f *runtimeapi.PodSandboxFilter,
	yield func(*runtimeapi.PodSandbox)) error {
	list, err := s.rt.ListPodSandbox(ctx, f)
	for _, sb := range list {
		yield(sb)
	}
	return err
}

// eachContainer calls yield with each container that has the labels, at least once. The containers of a state that
// doesn't fit in one answer are listed by sandbox: sandboxes has the IDs of all sandboxes with these labels that
// existed before. Calls of yield don't overlap.
func (s *Store) eachContainer(ctx context.Context, labels map[string]string, sandboxes []string,
	yield func(*runtimeapi.Container)) error {
	all := &runtimeapi.ContainerFilter{LabelSelector: labels}
	err := s.listContainers(ctx, all, yield)
	if !tooLong(err) {
		return err
	}
	if err := s.rt.StreamContainers(ctx, all, yield); !noStream(err) && !tooLong(err) {
		return err
	}
	for _, state := range containerStates {
		value := &runtimeapi.ContainerStateValue{State: state}
		err := s.listContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels, State: value}, yield)
		if tooLong(err) {
			err = s.containersIn(ctx, sandboxes, value, yield)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// containersIn calls yield with each container in one of the sandboxes that is in the given state.
func (s *Store) containersIn(ctx context.Context, sandboxes []string, state *runtimeapi.ContainerStateValue,
	yield func(*runtimeapi.Container)) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(statusConcurrency)
	for _, id := range sandboxes {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			return s.listContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: id, State: state},
				func(c *runtimeapi.Container) {
					mu.Lock()
					defer mu.Unlock()
					yield(c)
				})
		})
	}
	return g.Wait()
}

func (s *Store) listContainers(ctx context.Context, f *runtimeapi.ContainerFilter,
	yield func(*runtimeapi.Container)) error {
	list, err := s.rt.ListContainers(ctx, f)
	for _, c := range list {
		yield(c)
	}
	return err
}
