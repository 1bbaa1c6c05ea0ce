package rig

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podspec "github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// Floor makes pods of one container each by calling a CRI directly, with nothing in between.
type Floor struct {
	// Runtime is the CRI.
	Runtime runtimeapi.RuntimeServiceClient
	// Image is present in the runtime; Args are given to its entry point.
	Image string
	Args  []string
	// LogDir is where pods' directories of logs are made, and CgroupRoot the cgroup
	// above those of the pods.
	LogDir, CgroupRoot string
	// Grace is how long a stopped container may take, in whole seconds.
	Grace time.Duration
}

// FloorPod is one that Start made.
type FloorPod struct {
	Sandbox, Container string

	config *runtimeapi.PodSandboxConfig
	spec   *v1.Pod
}

// spec is the pod that the agent is given as well: the runtime is asked for the
// same sandbox (with its seccomp profile) and the same container by both. What
// only the agent adds, its volumes and files mounted into the container, isn't here.
func spec(name, image string, args []string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "bench", UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: image, Args: args}}},
	}
	podspec.SetDefaults(p)
	p.Status.QOSClass = v1.PodQOSBestEffort
	return p
}

// Start makes n pods, concurrency of them at a time, and returns them with the
// time from the first RunPodSandbox until every container was started. After an
// error the pods that have come to be are returned too.
func (f *Floor) Start(ctx context.Context, n, concurrency int) ([]FloorPod, time.Duration, error) {
	pods := make([]FloorPod, n)
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrency)
	for i := range pods {
		g.Go(func() error { return f.start(gctx, i, &pods[i]) })
	}
	err := g.Wait()
	return pods, time.Since(began), err
}

func (f *Floor) start(ctx context.Context, i int, p *FloorPod) error {
	name := fmt.Sprintf("floor-%04d", i)
	p.spec = spec(name, f.Image, f.Args)
	settings := translate.Settings{PodLogsDir: f.LogDir}
	config, err := translate.SandboxConfig(&settings, translate.SandboxInput{Pod: p.spec, CgroupParent: f.CgroupRoot + "/kubepods/besteffort/pod" + name})
	if err != nil {
		return fmt.Errorf("floor: configure sandbox %s: %w", name, err)
	}
	p.config = config
	r, err := f.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return fmt.Errorf("floor: run sandbox %s: %w", name, err)
	}
	p.Sandbox = r.GetPodSandboxId()
	return f.StartContainer(ctx, p, 0)
}

// StartContainer creates and starts a container in p, the attempt-th of its name.
func (f *Floor) StartContainer(ctx context.Context, p *FloorPod, attempt uint32) error {
	name := p.config.GetMetadata().GetName()
	settings := translate.Settings{PodLogsDir: f.LogDir}
	config, err := translate.ContainerConfig(&settings, translate.ContainerInput{Pod: p.spec, Container: &p.spec.Spec.Containers[0], Attempt: int(attempt), ImageRef: f.Image})
	if err != nil {
		return fmt.Errorf("floor: configure container of %s: %w", name, err)
	}
	r, err := f.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.Sandbox, SandboxConfig: p.config, Config: config})
	if err != nil {
		return fmt.Errorf("floor: create container of %s: %w", name, err)
	}
	p.Container = r.GetContainerId()
	if _, err := f.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.Container}); err != nil {
		return fmt.Errorf("floor: start container of %s: %w", name, err)
	}
	return nil
}

// Restart kills p's container and makes another in the same sandbox. It returns
// the time from the kill's end until the new container was started: what a
// restart costs the runtime.
func (f *Floor) Restart(ctx context.Context, p *FloorPod, attempt uint32) (time.Duration, error) {
	if _, err := f.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.Container}); err != nil {
		return 0, fmt.Errorf("floor: kill container: %w", err)
	}
	began := time.Now()
	err := f.StartContainer(ctx, p, attempt)
	return time.Since(began), err
}

// Remove stops and removes pods, concurrency of them at a time, and returns how
// long that took. Pods that never came to be are fine.
func (f *Floor) Remove(ctx context.Context, pods []FloorPod, concurrency int) (time.Duration, error) {
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(concurrency)
	for _, p := range pods {
		g.Go(func() error { return f.remove(ctx, p) })
	}
	err := g.Wait()
	return time.Since(began), err
}

func (f *Floor) remove(ctx context.Context, p FloorPod) error {
	if p.Container != "" {
		stop := &runtimeapi.StopContainerRequest{ContainerId: p.Container, Timeout: int64(f.Grace / time.Second)}
		if _, err := f.Runtime.StopContainer(ctx, stop); err != nil {
			return fmt.Errorf("floor: stop container: %w", err)
		}
	}
	if p.Sandbox == "" {
		return nil
	}
	if _, err := f.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.Sandbox}); err != nil {
		return fmt.Errorf("floor: stop sandbox: %w", err)
	}
	if _, err := f.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.Sandbox}); err != nil {
		return fmt.Errorf("floor: remove sandbox: %w", err)
	}
	return nil
}
