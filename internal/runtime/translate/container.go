package translate

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// ContainerInput is the input of ContainerConfig for one instance of a container.
type ContainerInput struct {
	// Pod needs Status.QOSClass, which determines the OOM score.
	Pod *v1.Pod
	// Container is one of the pod's containers, init containers or ephemeral containers.
	Container *v1.Container
	// Attempt counts the instances of this container from 0.
	Attempt int
	// ImageRef is the runtime's reference to the image.
	ImageRef string
	// ImageUser is the user in the image's configuration.
	ImageUser ImageUser
	// RuntimeHandler is the runtime handler of the sandbox; empty for the runtime's default.
	RuntimeHandler string
	// Env is the complete environment, with resolved values. References in command and args are expanded with it.
	Env []*runtimeapi.KeyValue
	// Mounts has all mounts: volumes, hosts file, termination message. ContainerConfig adds ID mappings to them if
	// the pod has a user namespace.
	Mounts []*runtimeapi.Mount
	// Groups are the supplemental groups for the pod's volumes, in addition to the pod's own.
	Groups     []int64
	Assignment Assignment
	// Devices and CDIDevices are passed to the runtime unchanged.
	Devices    []*runtimeapi.Device
	CDIDevices []*runtimeapi.CDIDevice
	// Annotations are added to the agent's own annotations.
	Annotations map[string]string
	// Users is the range of the host's IDs for the pod's user namespace. It is required if hostUsers is false, and
	// otherwise nil.
	Users *userns.Range
	// Backoff is how long the next instance waits after this one has ended.
	Backoff time.Duration
	// TargetID is the running instance of an ephemeral container's targetContainerName; empty for none. The two
	// share a PID namespace.
	TargetID string
}

// ContainerConfig returns the CRI configuration of one container instance. An error means that the pod's security
// context forbids running it, or that it can't be run at all.
func ContainerConfig(s *Settings, in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	security, err := containerSecurity(s, in)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	annotations, err := containerAnnotations(s, in)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", c.Name, err)
	}
	command, err := env.Strings(c.Command, in.Env)
	if err != nil {
		return nil, fmt.Errorf("container %s: command: %w", c.Name, err)
	}
	args, err := env.Strings(c.Args, in.Env)
	if err != nil {
		return nil, fmt.Errorf("container %s: args: %w", c.Name, err)
	}
	if ownUsers(in.Pod) {
		mapMounts(in.Mounts, in.Users)
	}
	labels := podLabels(in.Pod)
	labels[kubelettypes.KubernetesContainerNameLabel] = c.Name
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.Attempt)},
		Image: &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image,
			RuntimeHandler: in.RuntimeHandler},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        in.Env,
		Mounts:      in.Mounts,
		Devices:     in.Devices,
		CDIDevices:  in.CDIDevices,
		Labels:      labels,
		Annotations: annotations,
		LogPath:     layout.File(c.Name, in.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       containerResources(s, in.Pod, c, in.Assignment),
			SecurityContext: security,
		},
	}, nil
}

func containerAnnotations(s *Settings, in ContainerInput) (map[string]string, error) {
	p, c := in.Pod, in.Container
	hash, err := Hash(c)
	if err != nil {
		return nil, err
	}
	a := map[string]string{
		AnnotationHash:                     hash,
		AnnotationRestartCount:             strconv.Itoa(in.Attempt),
		AnnotationTerminationMessagePath:   c.TerminationMessagePath,
		AnnotationTerminationMessagePolicy: string(c.TerminationMessagePolicy),
		AnnotationImage:                    c.Image,
	}
	if in.Backoff > 0 {
		a[AnnotationBackoff] = in.Backoff.String()
		if s.Boot != "" {
			a[AnnotationBoot] = s.Boot
		}
	}
	if g := p.DeletionGracePeriodSeconds; g != nil {
		a[AnnotationDeletionGrace] = strconv.FormatInt(*g, 10)
	}
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		a[AnnotationTerminationGrace] = strconv.FormatInt(*g, 10)
	}
	if Redacted(c) {
		a[AnnotationRedacted] = ""
	}
	if err := recordCreatedWith(a, p, c); err != nil {
		return nil, err
	}
	addOthers(a, in.Annotations)
	return a, nil
}
