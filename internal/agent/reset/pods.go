package reset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

const (
	// answerIn is how long containerd may take to answer before it counts as gone.
	answerIn = 5 * time.Second
	// stopIn is what stopping one pod may take beyond the grace; then it is killed.
	stopIn = time.Minute
	// abreast is how many pods are stopped at once.
	abreast = 8
	// pause is between the first two tries, and as much longer each time.
	pause = time.Second
	// tries is how often a pod is removed: a container whose start the agent's end cut
	// off may come up in the midst of the first.
	tries = 6
)

// stopPods stops and removes all pods by way of the CRI, if containerd answers.
// If not, the later steps do without.
func (t *resetter) stopPods(ctx context.Context, f *found) error {
	conn, err := embedded.Dial(t.config.Runtime)
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	asking, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	// Fails fast where nobody listens: gRPC waits for a connection only on request.
	list, err := client.ListPodSandbox(asking, &cri.ListPodSandboxRequest{})
	if err != nil {
		t.log.V(2).Info("Containerd doesn't answer; taking its pods down without it", "err", err.Error())
		return nil
	}
	containers, err := client.ListContainers(asking, &cri.ListContainersRequest{})
	if err != nil {
		return fmt.Errorf("list the containers: %w", err)
	}
	running := map[string][]string{}
	for _, c := range containers.GetContainers() {
		f.containers[c.GetId()] = true
		if c.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			running[c.GetPodSandboxId()] = append(running[c.GetPodSandboxId()], c.GetId())
		}
	}
	// Not WithContext: one pod's failure is no reason to drop the others.
	var group errgroup.Group
	group.SetLimit(abreast)
	errs := make([]error, len(list.GetItems()))
	for i, s := range list.GetItems() {
		f.containers[s.GetId()] = true
		f.pods[s.GetMetadata().GetUid()] = true
		group.Go(func() error {
			errs[i] = t.stopPod(ctx, conn, s, running[s.GetId()])
			return nil
		})
	}
	_ = group.Wait() // Always nil: the errors are in errs.
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
	// What doesn't stop is killed with the sandbox.
	err := group.Wait()
	for try := 1; ; try++ {
		gone := removePod(ctx, client, s.GetId())
		if gone == nil {
			return nil
		}
		if embedded.TaskLeft(gone) {
			err = errors.Join(err, clearTasks(ctx, conn, client, s.GetId()))
		}
		if try == tries || !rest(ctx, time.Duration(try)*pause) {
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

// clearTasks clears away what containerd's CRI has lost sight of in a pod's containers.
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

// rest waits, and reports false if ctx ends before.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *resetter) stopContainerd(ctx context.Context) error {
	runtime, err := embedded.New(t.config.Runtime, logr.Discard())
	if err != nil {
		return err
	}
	// Also when ctx has ended: a containerd that is killed leaves more for later steps.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerIn)
	defer cancel()
	return runtime.Shutdown(ctx)
}
