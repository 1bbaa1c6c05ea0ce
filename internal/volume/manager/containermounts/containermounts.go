// Package containermounts makes the runtime's mounts from a container's volumeMounts.
package containermounts

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
	"github.com/deckhand-node/deckhand/internal/volume/manager/propagation"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumeset"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
)

// Reason is the waiting reason of a container that can't be made as its manifest stands, as the kubelet
// gives it.
const Reason = "CreateContainerConfigError"

// SubPaths makes parts of volumes ready for containers.
type SubPaths interface {
	// Bind returns the host path of a part of a volume, which stays that part whatever
	// containers do to the volume.
	Bind(ctx context.Context, r subpath.Request) (hostPath string, err error)
}

// Maker makes mounts. Every field is needed.
type Maker struct {
	SubPaths SubPaths
	// Touch calls do, which touches the volume's file system and may hang there, and returns the path that do
	// does. what tells different calls for one volume apart.
	Touch func(ctx context.Context, e *volumeset.Mounted, what string, do func(context.Context) (string, error)) (string, error)
}

// Request asks for one mount.
type Request struct {
	Container *v1.Container
	// Index is that of the container's volumeMount.
	Index int
	// Volume is what is mounted of that name; nil if nothing is.
	Volume *volumeset.Mounted
	// Env is the container's environment, for subPathExpr.
	Env []*runtimeapi.KeyValue
	// RecursiveReadOnly says that the runtime can do that (KEP-3857).
	RecursiveReadOnly bool
}

// propagations are the CRI's words for the API's; none is the default.
var propagations = map[v1.MountPropagationMode]runtimeapi.MountPropagation{
	"":                                 runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	v1.MountPropagationNone:            runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	v1.MountPropagationHostToContainer: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	v1.MountPropagationBidirectional:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
}

// refuse is the failure of a container that asks for what it can't get as its manifest stands.
func refuse(c *v1.Container, format string, args ...any) error {
	return &pod.Failure{Reason: Reason, Message: fmt.Sprintf("container %q: %s", c.Name, fmt.Sprintf(format, args...)), Permanent: true}
}

// Mount is what becomes of a volumeMount. The error is a *pod.Failure for what the manifest has wrong.
func (m Maker) Mount(ctx context.Context, r Request) (*runtimeapi.Mount, error) {
	c, e := r.Container, r.Volume
	vm := &c.VolumeMounts[r.Index]
	if e == nil {
		return nil, refuse(c, "the pod has no volume %q to mount at %s", vm.Name, vm.MountPath)
	}
	mode := ptr.Deref(vm.MountPropagation, "")
	if err := checkMode(e, c, vm, mode); err != nil {
		return nil, err
	}
	recursive, err := recursiveReadOnly(c, vm, mode, r.RecursiveReadOnly)
	if err != nil {
		return nil, err
	}
	part, err := partOf(c, vm, r.Env)
	if err != nil {
		return nil, err
	}
	mount := &runtimeapi.Mount{
		ContainerPath: path.Join("/", vm.MountPath), Readonly: vm.ReadOnly || e.ReadOnly, RecursiveReadOnly: recursive, Propagation: propagations[mode],
	}
	if e.Image != nil {
		mount.Image, mount.ImageSubPath = e.Image, part
		return mount, nil
	}
	mount.HostPath, err = m.hostPath(ctx, e, mode, subpath.Request{
		UID: e.Place.UID, Volume: e.Place.Name, Container: c.Name, Index: r.Index, Root: e.Path, Path: part, ReadOnly: mount.Readonly,
	})
	if err != nil {
		return nil, fmt.Errorf("volume %q at %s: %w", vm.Name, mount.ContainerPath, err)
	}
	return mount, nil
}

// hostPath is what the container gets of a volume on the host.
func (m Maker) hostPath(ctx context.Context, e *volumeset.Mounted, mode v1.MountPropagationMode, part subpath.Request) (string, error) {
	if part.Path == "" && (mode == "" || mode == v1.MountPropagationNone) {
		return e.Path, nil
	}
	return m.Touch(ctx, e, fmt.Sprintf("%s/%d", part.Container, part.Index), func(ctx context.Context) (string, error) {
		host := e.Path
		if part.Path != "" {
			var err error
			if host, err = m.SubPaths.Bind(ctx, part); err != nil {
				return "", err
			}
		}
		return host, propagation.Check(host, mode)
	})
}

// checkMode refuses a mount propagation that the volume, or the container, can't have (API:
// MountPropagationMode).
func checkMode(e *volumeset.Mounted, c *v1.Container, vm *v1.VolumeMount, mode v1.MountPropagationMode) error {
	if _, known := propagations[mode]; !known {
		return refuse(c, "volume %q: unknown mountPropagation %q: use None, HostToContainer or Bidirectional", vm.Name, mode)
	}
	if mode != v1.MountPropagationBidirectional {
		return nil
	}
	if e.Unpropagated {
		return refuse(c, "volume %q: mounts made in a volume of the kind %s never reach the node: leave out mountPropagation Bidirectional", vm.Name, e.Spec.Kind())
	}
	if sc := c.SecurityContext; sc == nil || !ptr.Deref(sc.Privileged, false) {
		return refuse(c, "volume %q: mountPropagation Bidirectional is for privileged containers only: use HostToContainer", vm.Name)
	}
	return nil
}

// recursiveReadOnly decides whether what is mounted in the volume is read-only as well (API:
// VolumeMount.recursiveReadOnly, KEP-3857).
func recursiveReadOnly(c *v1.Container, vm *v1.VolumeMount, mode v1.MountPropagationMode, able bool) (bool, error) {
	switch asked := ptr.Deref(vm.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled); {
	case asked == v1.RecursiveReadOnlyDisabled:
		return false, nil
	case asked != v1.RecursiveReadOnlyEnabled && asked != v1.RecursiveReadOnlyIfPossible:
		return false, refuse(c, "volume %q: unknown recursiveReadOnly %q: use Disabled, IfPossible or Enabled", vm.Name, asked)
	case !vm.ReadOnly:
		return false, refuse(c, "volume %q: recursiveReadOnly %s needs readOnly: true", vm.Name, asked)
	case mode != "" && mode != v1.MountPropagationNone:
		return false, refuse(c, "volume %q: recursiveReadOnly %s needs mountPropagation None", vm.Name, asked)
	case asked == v1.RecursiveReadOnlyEnabled && !able:
		return false, refuse(c, "volume %q: recursiveReadOnly Enabled isn't supported by the pod's runtime: use IfPossible, or a runtime that tells that it can (Linux 5.12 or later)", vm.Name)
	}
	return able, nil
}

// partOf is the path of what the container gets of the volume; empty for all of it (API:
// VolumeMount.subPath, subPathExpr).
func partOf(c *v1.Container, vm *v1.VolumeMount, vars []*runtimeapi.KeyValue) (string, error) {
	part, field := vm.SubPath, "subPath"
	if vm.SubPathExpr != "" {
		var err error
		if part, err = expand(vm.SubPathExpr, vars); err != nil {
			return "", refuse(c, "volume %q: subPathExpr %q %v", vm.Name, vm.SubPathExpr, err)
		}
		field = "subPathExpr"
	}
	if path.IsAbs(part) || slices.Contains(strings.Split(part, "/"), "..") {
		return "", refuse(c, "volume %q: %s %q must be a path in the volume: not absolute, and without ..", vm.Name, field, part)
	}
	return part, nil
}

// expand replaces references to the container's environment. One that can't be resolved is an error
// (https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath-expanded-environment), and so
// is what comes to nothing: the container would get all of the volume.
func expand(expr string, vars []*runtimeapi.KeyValue) (string, error) {
	var missing []string
	got, ok := env.Expand(expr, func(name string) (string, bool) {
		for _, kv := range slices.Backward(vars) { // the last one counts
			if kv.GetKey() == name {
				return string(kv.GetValue()), true
			}
		}
		missing = append(missing, name)
		return "", false
	})
	switch {
	case len(missing) > 0:
		return "", fmt.Errorf("refers to the environment variable %s, which the container doesn't have", missing[0])
	case !ok:
		return "", fmt.Errorf("is too long with its references replaced")
	case got == "":
		return "", fmt.Errorf("is empty with its references replaced")
	}
	return got, nil
}
