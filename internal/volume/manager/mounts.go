package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// hostsPath is the path of the hosts file in containers.
const hostsPath = "/etc/hosts"

// MountRequest is a request for the mounts of one instance of a container.
type MountRequest struct {
	Pod       *v1.Pod
	Container string
	// PodIPs are the IP addresses of the sandbox.
	PodIPs []string
	// Attempt is the number of the instance: the CRI's attempt.
	Attempt int
	// Env is the container's environment, for subPathExpr.
	Env []*runtimeapi.KeyValue
	// RecursiveReadOnly says that the pod's runtime handler supports recursive read-only mounts (KEP-3857).
	RecursiveReadOnly bool
}

// Mounts makes the files that the container's next instance needs, and bind-mounts the parts of volumes that it
// mounts. It returns all mounts of the instance, and the host path of its termination message file ("" if it has
// none). The pod's volumes have to be mounted: see Prepare.
//
// The error is a *pod.Failure, or the context's error.
func (m *Manager) Mounts(ctx context.Context, r MountRequest) ([]*runtimeapi.Mount, string, error) {
	mounts, message, err := m.mountsOf(ctx, r)
	if err != nil {
		return nil, "", refusal(ctx, r.Container, err)
	}
	return mounts, message, nil
}

// Recheck fails if a path of the host that the container mounts is missing or has become another type of file. The
// container must not be created or started then.
//
// The error is a *pod.Failure, or the context's error.
func (m *Manager) Recheck(ctx context.Context, p *v1.Pod, c *v1.Container) error {
	for i := range p.Spec.Volumes {
		name := p.Spec.Volumes[i].Name
		e := m.mounted(p.UID, name)
		if e == nil || !pod.Mounts(c, name) {
			continue
		}
		thing, ok := e.Plugin.(volume.Rechecker)
		if !ok {
			continue
		}
		_, err := m.touch(ctx, e, "check "+name, func(ctx context.Context) (string, error) {
			return "", thing.Recheck(ctx, e.Spec)
		})
		if err != nil {
			return refusal(ctx, c.Name, fmt.Errorf("volume %q: %w", name, err))
		}
	}
	return nil
}

// refusal converts a mount error to a *pod.Failure. If ctx has ended, it returns the context's error.
func refusal(ctx context.Context, container string, err error) error {
	var f *pod.Failure
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &f):
		return f
	}
	return &pod.Failure{Reason: pod.ReasonCreateContainerConfigError,
		Message: fmt.Sprintf("container %q: %v", container, err), Permanent: errors.Is(err, volume.ErrUnsupported),
		Disk: atomicfile.DiskFails(err)}
}

func (m *Manager) mountsOf(ctx context.Context, r MountRequest) ([]*runtimeapi.Mount, string, error) {
	p := r.Pod
	if err := safeopen.Check("pod UID", string(p.UID)); err != nil {
		return nil, "", err
	}
	c := pod.ContainerNamed(p, r.Container)
	if c == nil {
		return nil, "", fmt.Errorf("pod %s/%s has no such container", p.Namespace, p.Name)
	}
	// Recheck checks this container's volumes only: a hanging file system delays no other container.
	if err := m.Recheck(ctx, p, c); err != nil {
		return nil, "", err
	}
	mounts := make([]*runtimeapi.Mount, 0, len(c.VolumeMounts)+2)
	ownHosts := false
	for i := range c.VolumeMounts {
		name := c.VolumeMounts[i].Name
		e := m.mounted(p.UID, name)
		if e == nil && slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name }) {
			return nil, "", fmt.Errorf("volume %q isn't mounted", name)
		}
		mount, err := m.mounts.Mount(ctx,
			mountRequest{Container: c, Index: i, Volume: e, Env: r.Env, RecursiveReadOnly: r.RecursiveReadOnly})
		if err != nil {
			return nil, "", err
		}
		mounts = append(mounts, mount)
		ownHosts = ownHosts || mount.ContainerPath == hostsPath
	}
	if !ownHosts && (p.Spec.HostNetwork || len(r.PodIPs) > 0) {
		file, err := m.files.Hosts(p, r.PodIPs)
		if err != nil {
			return nil, "", err
		}
		mounts = append(mounts, &runtimeapi.Mount{HostPath: file, ContainerPath: hostsPath})
	}
	if c.TerminationMessagePath == "" {
		return mounts, "", nil
	}
	message, err := m.files.Message(p, c.Name, r.Attempt)
	if err != nil {
		return nil, "", err
	}
	return append(mounts, &runtimeapi.Mount{HostPath: message, ContainerPath: c.TerminationMessagePath}), message, nil
}

// BlockVolumes returns the container's block devices by the names of their volumes. No plugin provides block
// devices yet. The error is a *pod.Failure.
func (m *Manager) BlockVolumes(_ *v1.Pod, c *v1.Container) (map[string]pod.BlockVolume, error) {
	if len(c.VolumeDevices) == 0 {
		return nil, nil
	}
	return nil, &pod.Failure{Reason: pod.ReasonCreateContainerConfigError, Permanent: true,
		Message: fmt.Sprintf("container %q: volumeDevices (volume %q) are not supported by this build: use a claim "+
			"with volumeMode Filesystem, and volumeMounts", c.Name, c.VolumeDevices[0].Name)}
}

// Unsupported returns why a container that is added to the pod could never start: the container uses volumes or block
// devices that aren't supported. It returns nil if it uses none.
func (m *Manager) Unsupported(p *v1.Pod, c *v1.Container) *pod.Failure {
	if problems := volumestate.Unsupported(m.conf.Plugins, p, c); len(problems) > 0 {
		return volumestate.Failure(problems)
	}
	if _, err := m.BlockVolumes(p, c); err != nil {
		f, _ := errors.AsType[*pod.Failure](err)
		return f
	}
	return nil
}

// EmptyDir returns the host path of a prepared emptyDir of the pod. Pods can write to it: its content must not be
// trusted.
func (m *Manager) EmptyDir(p *v1.Pod, name string) (string, error) {
	i := slices.IndexFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	if i < 0 {
		return "", fmt.Errorf("the pod has no volume %q", name)
	}
	if v := &p.Spec.Volumes[i]; v.EmptyDir == nil {
		return "", fmt.Errorf("volume %q is of the kind %s, where an emptyDir is needed", name,
			volume.Spec{Volume: v}.Kind())
	}
	e := m.mounted(p.UID, name)
	if e == nil {
		return "", fmt.Errorf("volume %q isn't mounted: a container has to mount it to write the file", name)
	}
	return e.Path, nil
}
