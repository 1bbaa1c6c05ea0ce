package cri

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// parallelLists is how many lists of single sandboxes are under way at a time.
const parallelLists = 4

// An answer of the runtime has a maximum size, 16 MiB on both sides: 33,000 dead containers don't fit. A list that is
// too long is requested as a stream. It is requested in parts, one for each state, from a runtime without streams, or
// if a message of the stream is too long: containerd sends 5,000 items in one message, whatever their size. The parts
// are requested in the order in which states follow one another. So an instance that changes its state meanwhile is in
// at least one part.
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

// Lister lists the objects of a runtime: a Conn, or ListerOf a client.
type Lister interface {
	ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	// StreamPodSandboxes and StreamContainers are for lists that don't fit in one answer.
	StreamPodSandboxes(context.Context, *runtimeapi.PodSandboxFilter, func(*runtimeapi.PodSandbox)) error
	StreamContainers(context.Context, *runtimeapi.ContainerFilter, func(*runtimeapi.Container)) error
}

// tooLong reports whether a list failed because it is too long for one answer.
func tooLong(err error) bool { return code(err) == codes.ResourceExhausted }

// EachSandbox calls yield with each sandbox that has the labels, at least once.
func EachSandbox(ctx context.Context, rt Lister, labels map[string]string,
	yield func(*runtimeapi.PodSandbox)) error {
	all := &runtimeapi.PodSandboxFilter{LabelSelector: labels}
	err := listSandboxes(ctx, rt, all, yield)
	if !tooLong(err) {
		return err
	}
	if err := rt.StreamPodSandboxes(ctx, all, yield); !IsUnimplemented(err) && !tooLong(err) {
		return err
	}
	for _, state := range sandboxStates {
		f := &runtimeapi.PodSandboxFilter{LabelSelector: labels, State: &runtimeapi.PodSandboxStateValue{State: state}}
		if err := listSandboxes(ctx, rt, f, yield); err != nil {
			return err
		}
	}
	return nil
}

func listSandboxes(ctx context.Context, rt Lister, f *runtimeapi.PodSandboxFilter,
	yield func(*runtimeapi.PodSandbox)) error {
	list, err := rt.ListPodSandbox(ctx, f)
	for _, sb := range list {
		yield(sb)
	}
	return err
}

// EachContainer calls yield with each container that has the labels, at least once. The containers of a state that
// doesn't fit in one answer are listed by sandbox: sandboxes has the IDs of all sandboxes with these labels that
// existed before. Calls of yield don't overlap.
func EachContainer(ctx context.Context, rt Lister, labels map[string]string, sandboxes []string,
	yield func(*runtimeapi.Container)) error {
	all := &runtimeapi.ContainerFilter{LabelSelector: labels}
	err := listContainers(ctx, rt, all, yield)
	if !tooLong(err) {
		return err
	}
	if err := rt.StreamContainers(ctx, all, yield); !IsUnimplemented(err) && !tooLong(err) {
		return err
	}
	for _, state := range containerStates {
		value := &runtimeapi.ContainerStateValue{State: state}
		err := listContainers(ctx, rt, &runtimeapi.ContainerFilter{LabelSelector: labels, State: value}, yield)
		if tooLong(err) {
			err = containersIn(ctx, rt, sandboxes, value, yield)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// containersIn calls yield with each container in one of the sandboxes that is in the given state.
func containersIn(ctx context.Context, rt Lister, sandboxes []string, state *runtimeapi.ContainerStateValue,
	yield func(*runtimeapi.Container)) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLists)
	for _, id := range sandboxes {
		g.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			return listContainers(ctx, rt, &runtimeapi.ContainerFilter{PodSandboxId: id, State: state},
				func(c *runtimeapi.Container) {
					mu.Lock()
					defer mu.Unlock()
					yield(c)
				})
		})
	}
	return g.Wait()
}

func listContainers(ctx context.Context, rt Lister, f *runtimeapi.ContainerFilter,
	yield func(*runtimeapi.Container)) error {
	list, err := rt.ListContainers(ctx, f)
	for _, c := range list {
		yield(c)
	}
	return err
}
