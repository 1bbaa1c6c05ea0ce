package volume

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pathelement"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// hostsPath is where containers have their hosts file.
const hostsPath = "/etc/hosts"

// Mounts makes the files that the container's next instance needs, and returns all
// that is to be mounted into it, and the host path of the file for its
// termination message ("" if it has none). podIPs are the sandbox's addresses;
// attempt is the instance's number. The pod has to be prepared.
//
// The error is a *pod.Failure.
func (m *Manager) Mounts(p *v1.Pod, container string, podIPs []string, attempt int) ([]*runtimeapi.Mount, string, error) {
	mounts, message, err := m.mounts(p, container, podIPs, attempt)
	if err != nil {
		var f *pod.Failure
		if errors.As(err, &f) {
			return nil, "", f
		}
		return nil, "", &pod.Failure{Reason: reasonConfig, Message: fmt.Sprintf("container %q: %v", container, err)}
	}
	return mounts, message, nil
}

func (m *Manager) mounts(p *v1.Pod, name string, podIPs []string, attempt int) ([]*runtimeapi.Mount, string, error) {
	if err := pathelement.Check("pod UID", string(p.UID)); err != nil {
		return nil, "", err
	}
	c := pod.ContainerNamed(p, name)
	if c == nil {
		return nil, "", fmt.Errorf("pod %s/%s has no such container", p.Namespace, p.Name)
	}
	mounts := make([]*runtimeapi.Mount, 0, len(c.VolumeMounts)+2)
	ownHosts := false
	for i := range c.VolumeMounts {
		mount, err := m.volumeMount(p, c, &c.VolumeMounts[i])
		if err != nil {
			return nil, "", err
		}
		mounts = append(mounts, mount)
		ownHosts = ownHosts || mount.ContainerPath == hostsPath
	}
	if !ownHosts && (p.Spec.HostNetwork || len(podIPs) > 0) {
		file, err := m.writeHosts(p, podIPs)
		if err != nil {
			return nil, "", err
		}
		mounts = append(mounts, &runtimeapi.Mount{HostPath: file, ContainerPath: hostsPath})
	}
	if c.TerminationMessagePath == "" {
		return mounts, "", nil
	}
	message, err := m.messageFile(p, c, attempt)
	if err != nil {
		return nil, "", err
	}
	return append(mounts, &runtimeapi.Mount{HostPath: message, ContainerPath: c.TerminationMessagePath}), message, nil
}

// BlockVolumes returns the volumes that the container has as devices, by their names in
// the pod. None of the plugins makes such volumes yet. The error is a *pod.Failure.
func (m *Manager) BlockVolumes(_ *v1.Pod, c *v1.Container) (map[string]translate.BlockVolume, error) {
	if len(c.VolumeDevices) > 0 {
		return nil, refuse(c, "volumeDevices (block volumes) are not supported by this build")
	}
	return nil, nil
}

// refuse is the failure for what this build can't do.
func refuse(c *v1.Container, why string) error {
	return &pod.Failure{Reason: reasonConfig, Message: fmt.Sprintf("container %q: %s", c.Name, why), Permanent: true}
}

func (m *Manager) volumeMount(p *v1.Pod, c *v1.Container, vm *v1.VolumeMount) (*runtimeapi.Mount, error) {
	switch {
	case vm.SubPath != "" || vm.SubPathExpr != "":
		return nil, refuse(c, fmt.Sprintf("subPath of volume %q is not supported by this build: mount the whole volume", vm.Name))
	case vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled:
		return nil, refuse(c, fmt.Sprintf("recursiveReadOnly: Enabled of volume %q is not supported by this build: use IfPossible", vm.Name))
	}
	propagation, ok := propagations[deref(vm.MountPropagation)]
	if !ok {
		return nil, refuse(c, fmt.Sprintf("volume %q: unknown mountPropagation %q", vm.Name, *vm.MountPropagation))
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Name != vm.Name {
			continue
		}
		plugin, r, err := m.find(p, v)
		if err != nil {
			return nil, volumeFailure(v, err)
		}
		return &runtimeapi.Mount{
			HostPath:      plugin.HostPath(r),
			ContainerPath: path.Join("/", vm.MountPath),
			Readonly:      vm.ReadOnly,
			Propagation:   propagation,
		}, nil
	}
	return nil, refuse(c, fmt.Sprintf("the pod has no volume %q to mount at %s", vm.Name, vm.MountPath))
}

// propagations are the CRI's words for the API's; none is the default.
var propagations = map[v1.MountPropagationMode]runtimeapi.MountPropagation{
	"":                                 runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	v1.MountPropagationNone:            runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	v1.MountPropagationHostToContainer: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	v1.MountPropagationBidirectional:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
}

func deref(m *v1.MountPropagationMode) v1.MountPropagationMode {
	if m == nil {
		return ""
	}
	return *m
}

// messageFile makes the empty file that the instance may leave its last words in.
// Its name is the instance's number, so that creating an instance again finds the
// same file. Only the files of this instance and the one before it are kept.
func (m *Manager) messageFile(p *v1.Pod, c *v1.Container, attempt int) (string, error) {
	if err := pathelement.Check("container name", c.Name); err != nil {
		return "", err
	}
	dir := filepath.Join(m.podDir(p.UID), "containers", c.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make the folder for termination messages: %w", err)
	}
	instance := func(n int) string { return filepath.Join(dir, fmt.Sprintf("%08x", n)) }
	if attempt >= 2 {
		_ = os.Remove(instance(attempt - 2)) // goes with the pod at the latest
	}
	f, err := os.OpenFile(instance(attempt), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		return "", fmt.Errorf("make the file for the termination message: %w", err)
	}
	defer f.Close()
	// Whatever user the container runs as may write to it.
	if err := f.Chmod(0o666); err != nil {
		return "", fmt.Errorf("make the file for the termination message: %w", err)
	}
	return f.Name(), nil
}
