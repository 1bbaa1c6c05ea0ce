package manager

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
)

// SubPaths bind-mounts parts of volumes for containers.
type SubPaths interface {
	// Bind bind-mounts the part and returns the host path of the mount. The path refers to the same file whatever
	// containers do to the volume.
	Bind(ctx context.Context, r subpath.Request) (hostPath string, err error)
	// Held reports which files and directories of a volume are parts that containers mount, by device and inode; nil
	// if there are none.
	Held(uid types.UID, volume string) (func(device, inode uint64) bool, error)
}

// mountMaker converts volumeMounts to the CRI's mounts. Every field is required.
type mountMaker struct {
	SubPaths SubPaths
	// Touch runs the function do, which accesses the volume's file system and may hang, and returns the path that do
	// returns. The argument what names the call, to distinguish it from others for the same volume.
	Touch func(ctx context.Context, e *volumestate.Mounted, what string,
		do func(context.Context) (string, error)) (string, error)
}

// mountRequest is a request for one mount of a container.
type mountRequest struct {
	Container *v1.Container
	// Index is the index of the container's volumeMount.
	Index int
	// Volume is the mounted volume that the volumeMount names; nil if there is none.
	Volume *volumestate.Mounted
	// Env is the container's environment, for subPathExpr.
	Env []*runtimeapi.KeyValue
	// RecursiveReadOnly says that the runtime supports recursive read-only mounts (KEP-3857).
	RecursiveReadOnly bool
}

// propagations maps the API's mount propagation modes to the CRI's; the default is None.
var propagations = map[v1.MountPropagationMode]runtimeapi.MountPropagation{
	"":                                 runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	v1.MountPropagationNone:            runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	v1.MountPropagationHostToContainer: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	v1.MountPropagationBidirectional:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
}

// Mount converts a volumeMount to a CRI mount. Errors name the volume, but not the container. An error in the
// manifest is a *pod.Failure, which names both.
func (m mountMaker) Mount(ctx context.Context, r mountRequest) (*runtimeapi.Mount, error) {
	c := r.Container
	vm := &c.VolumeMounts[r.Index]
	inside := path.Join("/", vm.MountPath)
	mount, part, err := translate(r, vm)
	if err != nil {
		return nil, &pod.Failure{Reason: pod.ReasonCreateContainerConfigError,
			Message: fmt.Sprintf("container %q: volume %q at %s: %v", c.Name, vm.Name, inside, err), Permanent: true}
	}
	mount.ContainerPath = inside
	if mount.Image != nil {
		mount.ImageSubPath = part
		return mount, nil
	}
	e := r.Volume
	mount.HostPath, err = m.hostPath(ctx, e, ptr.Deref(vm.MountPropagation, ""), subpath.Request{
		// If another volume of the pod makes the same claim writable, a missing directory is made for this read-only
		// mount, too: the container with the writable mount may start later.
		UID: e.Place.UID, Volume: e.Place.Name, Container: c.Name, Index: r.Index, Root: e.Path, Path: part,
		Expr: vm.SubPathExpr, ReadOnly: e.ReadOnly && !e.Writable,
	})
	if err != nil {
		return nil, fmt.Errorf("volume %q at %s: %w", vm.Name, inside, err)
	}
	return mount, nil
}

// translate returns the CRI mount without paths, and the path of the part to mount. An error means that the manifest
// is invalid.
func translate(r mountRequest, vm *v1.VolumeMount) (mount *runtimeapi.Mount, part string, err error) {
	e, mode := r.Volume, ptr.Deref(vm.MountPropagation, "")
	if e == nil {
		return nil, "", errors.New("the pod has no such volume")
	}
	if err := checkMode(e, r.Container, mode); err != nil {
		return nil, "", err
	}
	recursive, err := recursiveReadOnly(vm, mode, r.RecursiveReadOnly)
	if err != nil {
		return nil, "", err
	}
	if part, err = partOf(vm, r.Env); err != nil {
		return nil, "", err
	}
	return &runtimeapi.Mount{Image: e.Image, Readonly: vm.ReadOnly || e.ReadOnly, RecursiveReadOnly: recursive,
		Propagation: propagations[mode]}, part, nil
}

// hostPath returns the host path that the container mounts.
func (m mountMaker) hostPath(ctx context.Context, e *volumestate.Mounted, mode v1.MountPropagationMode,
	part subpath.Request) (string, error) {
	if part.Path == "" && (mode == "" || mode == v1.MountPropagationNone) {
		return e.Path, nil
	}
	return m.Touch(ctx, e, fmt.Sprintf("%s/%d", part.Container, part.Index), func(ctx context.Context) (string, error) {
		// Check the mount of the volume itself: the bind mount of a part is in the pods' directory, and may be
		// shared even if the volume's mount isn't.
		if err := checkPropagation(e.Path, mode); err != nil || part.Path == "" {
			return e.Path, err
		}
		return m.SubPaths.Bind(ctx, part)
	})
}

// checkMode returns an error for a mount propagation mode that isn't possible for the volume or the container (API:
// MountPropagationMode).
func checkMode(e *volumestate.Mounted, c *v1.Container, mode v1.MountPropagationMode) error {
	if _, known := propagations[mode]; !known {
		return fmt.Errorf("unknown mountPropagation %q: use None, HostToContainer or Bidirectional", mode)
	}
	if mode != v1.MountPropagationBidirectional {
		return nil
	}
	if e.Unpropagated {
		return fmt.Errorf("mounts made in a volume of the kind %s never reach the node: leave out mountPropagation "+
			"Bidirectional", e.Spec.Kind())
	}
	if sc := c.SecurityContext; sc == nil || !ptr.Deref(sc.Privileged, false) {
		return errors.New("mountPropagation Bidirectional is for privileged containers only: use HostToContainer")
	}
	return nil
}

// recursiveReadOnly decides whether mounts below the volume are read-only as well (API:
// VolumeMount.recursiveReadOnly, KEP-3857).
func recursiveReadOnly(vm *v1.VolumeMount, mode v1.MountPropagationMode, able bool) (bool, error) {
	switch asked := ptr.Deref(vm.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled); {
	case asked == v1.RecursiveReadOnlyDisabled:
		return false, nil
	case asked != v1.RecursiveReadOnlyEnabled && asked != v1.RecursiveReadOnlyIfPossible:
		return false, fmt.Errorf("unknown recursiveReadOnly %q: use Disabled, IfPossible or Enabled", asked)
	case !vm.ReadOnly:
		return false, fmt.Errorf("recursiveReadOnly %s needs readOnly: true", asked)
	case mode != "" && mode != v1.MountPropagationNone:
		return false, fmt.Errorf("recursiveReadOnly %s needs mountPropagation None", asked)
	case asked == v1.RecursiveReadOnlyEnabled && !able:
		return false, errors.New(
			"recursiveReadOnly Enabled isn't supported by the pod's runtime: use IfPossible, or a runtime that " +
				"reports that it can (Linux 5.12 or later)")
	}
	return able, nil
}

// partOf returns the path of the part of the volume to mount; empty for the whole volume (API: VolumeMount.subPath,
// subPathExpr). Errors don't contain the value of an expression, because its variables may be Secrets.
func partOf(vm *v1.VolumeMount, vars []*runtimeapi.KeyValue) (string, error) {
	part, fieldName := vm.SubPath, "subPath"
	if vm.SubPathExpr != "" {
		fieldName = fmt.Sprintf("subPathExpr %q", vm.SubPathExpr)
		var err error
		if part, err = expand(vm.SubPathExpr, vars); err != nil {
			return "", fmt.Errorf("%s %v", fieldName, err)
		}
	}
	if len(part) >= unix.PathMax { // the error doesn't contain the path either: it is too long
		return "", fmt.Errorf("%s is longer than a path can be: %d bytes, where %d are allowed", fieldName, len(part),
			unix.PathMax-1)
	}
	if path.IsAbs(part) || slices.Contains(strings.Split(part, "/"), "..") {
		if vm.SubPathExpr == "" {
			fieldName = fmt.Sprintf("subPath %q", part)
		}
		return "", fmt.Errorf("%s must be a path in the volume, not absolute and without \"..\"", fieldName)
	}
	return part, nil
}

// expand replaces references to the container's environment. An unresolved reference is an error
// (https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath-expanded-environment), and so is an empty
// result, which would mount the whole volume.
func expand(expr string, vars []*runtimeapi.KeyValue) (string, error) {
	var missing []string
	got, ok := pod.Expand(expr, func(name string) (string, bool) {
		for _, kv := range slices.Backward(vars) { // the last one wins
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
		return "", errors.New("is too long with its references replaced")
	case got == "":
		return "", errors.New("is empty with its references replaced")
	}
	return got, nil
}
