package reset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	connection "github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

const (
	// answerIn is the timeout for containerd's answers. A containerd that doesn't answer counts as stopped.
	answerIn = 5 * time.Second
	// stopIn is the time for stopping one pod, in addition to the grace period.
	stopIn = time.Minute
	// abreast is the number of pods that are stopped concurrently.
	abreast = 8
	// pause is the delay after the first attempt to remove a pod; it grows by the same amount after each further
	// attempt.
	pause = time.Second
	// tries is the number of attempts to remove a pod: a container whose start was interrupted by the agent's end may
	// appear during the first.
	tries = 6
)

// stopPods stops and removes all pods through the CRI. If containerd doesn't answer, it does nothing: the later steps
// don't need containerd.
func (t *resetter) stopPods(ctx context.Context, f *found) error {
	conn, err := embedded.Dial(t.config.Runtime)
	if err != nil {
		return err
	}
	defer conn.Close()
	lister := connection.ListerOf(cri.NewRuntimeServiceClient(conn))
	asking, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	// The call fails at once if containerd doesn't listen, because gRPC doesn't wait for a connection by default.
	sandboxes := map[string]*cri.PodSandbox{}
	err = connection.EachSandbox(asking, lister, nil, func(s *cri.PodSandbox) { sandboxes[s.GetId()] = s })
	if err != nil {
		t.log.V(2).Info("Containerd doesn't answer; taking its pods down without it", "err", err.Error())
		return nil
	}
	running := map[string][]string{}
	ids := slices.Collect(maps.Keys(sandboxes))
	err = connection.EachContainer(asking, lister, nil, ids, func(c *cri.Container) {
		f.containers[c.GetId()] = true
		if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			running[c.GetPodSandboxId()] = append(running[c.GetPodSandboxId()], c.GetId())
		}
	})
	if err != nil {
		return fmt.Errorf("list the containers: %w", err)
	}
	// errgroup.WithContext isn't used: a failure of one pod must not cancel the others.
	var group errgroup.Group
	group.SetLimit(abreast)
	errs := make([]error, len(sandboxes))
	for i, id := range ids {
		s := sandboxes[id]
		f.containers[id] = true
		f.pods[s.GetMetadata().GetUid()] = true
		group.Go(func() error {
			errs[i] = t.stopPod(ctx, conn, s, running[id])
			return nil
		})
	}
	_ = group.Wait() // Always nil; the errors are in errs.
	return errors.Join(errs...)
}

func (t *resetter) stopPod(ctx context.Context, conn *grpc.ClientConn, s *cri.PodSandbox, containers []string) error {
	client := cri.NewRuntimeServiceClient(conn)
	ctx, cancel := context.WithTimeout(ctx, t.config.Grace+stopIn)
	defer cancel()
	var group errgroup.Group
	for _, id := range containers {
		group.Go(func() error {
			_, err := client.StopContainer(ctx,
				&cri.StopContainerRequest{ContainerId: id, Timeout: int64(t.config.Grace.Seconds())})
			return err
		})
	}
	// An error doesn't end the removal: StopPodSandbox kills the containers that didn't stop.
	err := group.Wait()
	for try := 1; ; try++ {
		gone := removePod(ctx, client, s.GetId())
		if gone == nil {
			return nil
		}
		if embedded.TaskLeft(gone) {
			err = errors.Join(err, clearTasks(ctx, conn, client, s.GetId()))
		}
		if try == tries || !wake.Sleep(ctx, time.Duration(try)*pause) {
			return fmt.Errorf("pod %s/%s: %w", s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(),
				errors.Join(err, gone))
		}
	}
}

func removePod(ctx context.Context, client cri.RuntimeServiceClient, id string) error {
	_, stopErr := client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	if _, err := client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return errors.Join(stopErr, err)
	}
	return nil
}

// clearTasks removes the containerd tasks of a pod's containers that containerd's CRI plugin has lost track of.
func clearTasks(ctx context.Context, conn *grpc.ClientConn, client cri.RuntimeServiceClient, sandbox string) error {
	list, err := client.ListContainers(ctx,
		&cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list.GetContainers() {
		errs = append(errs, embedded.ClearTask(ctx, conn, c.GetId()))
	}
	return errors.Join(errs...)
}

func (t *resetter) stopContainerd(ctx context.Context) error {
	runtime, err := embedded.New(t.config.Runtime, logr.Discard())
	if err != nil {
		return err
	}
	// This is done even if ctx has ended. If containerd were killed instead, the later steps would have more to remove.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerIn)
	defer cancel()
	return runtime.Shutdown(ctx)
}
