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

// SubPaths makes parts of volumes ready for containers.
type SubPaths interface {
	// Bind returns the host path of a part of a volume, which stays that part whatever
	// containers do to the volume.
	Bind(ctx context.Context, r subpath.Request) (hostPath string, err error)
	// Held reports which files and directories of a volume are such parts, by device and inode; nil for none.
	Held(uid types.UID, volume string) (func(device, inode uint64) bool, error)
}

// mountMaker makes mounts. Every field is needed.
type mountMaker struct {
	SubPaths SubPaths
	// Touch calls do, which touches the volume's file system and may hang there, and returns the path that do
	// does. what tells different calls for one volume apart.
	Touch func(ctx context.Context, e *volumestate.Mounted, what string,
		do func(context.Context) (string, error)) (string, error)
}

// mountRequest asks for one mount.
type mountRequest struct {
	Container *v1.Container
	// Index is that of the container's volumeMount.
	Index int
	// Volume is what is mounted of that name; nil if nothing is.
	Volume *volumestate.Mounted
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

// Mount is what becomes of a volumeMount. The error names the volume, but not the container. It is a *pod.Failure,
// which names both, for what the manifest has wrong.
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
		// A directory that is missing in what can be written to is made for those that only read, too: the
		// others may come later.
		UID: e.Place.UID, Volume: e.Place.Name, Container: c.Name, Index: r.Index, Root: e.Path, Path: part,
		Expr: vm.SubPathExpr, ReadOnly: e.ReadOnly && !e.Writable,
	})
	if err != nil {
		return nil, fmt.Errorf("volume %q at %s: %w", vm.Name, inside, err)
	}
	return mount, nil
}

// translate says how the volume is mounted, and which part of it. The error is what the manifest has wrong.
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

// hostPath is what the container gets of a volume on the host.
func (m mountMaker) hostPath(ctx context.Context, e *volumestate.Mounted, mode v1.MountPropagationMode,
	part subpath.Request) (string, error) {
	if part.Path == "" && (mode == "" || mode == v1.MountPropagationNone) {
		return e.Path, nil
	}
	return m.Touch(ctx, e, fmt.Sprintf("%s/%d", part.Container, part.Index), func(ctx context.Context) (string, error) {
		// Of the volume itself: a part's own mount may be shared, since the pods' directories are, though the volume's
		// isn't.
		if err := checkPropagation(e.Path, mode); err != nil || part.Path == "" {
			return e.Path, err
		}
		return m.SubPaths.Bind(ctx, part)
	})
}

// checkMode refuses a mount propagation that the volume, or the container, can't have (API:
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

// recursiveReadOnly decides whether what is mounted in the volume is read-only as well (API:
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

// partOf is the path of what the container gets of the volume; empty for all of it (API:
// VolumeMount.subPath, subPathExpr). Errors don't say what an expression came to: its variables may be Secrets.
func partOf(vm *v1.VolumeMount, vars []*runtimeapi.KeyValue) (string, error) {
	part, said := vm.SubPath, "subPath"
	if vm.SubPathExpr != "" {
		said = fmt.Sprintf("subPathExpr %q", vm.SubPathExpr)
		var err error
		if part, err = expand(vm.SubPathExpr, vars); err != nil {
			return "", fmt.Errorf("%s %v", said, err)
		}
	}
	if len(part) >= unix.PathMax { // nor is it to fill messages
		return "", fmt.Errorf("%s is longer than a path can be: %d bytes, where %d are allowed", said, len(part),
			unix.PathMax-1)
	}
	if path.IsAbs(part) || slices.Contains(strings.Split(part, "/"), "..") {
		if vm.SubPathExpr == "" {
			said = fmt.Sprintf("subPath %q", part)
		}
		return "", fmt.Errorf("%s must be a path in the volume, not absolute and without \"..\"", said)
	}
	return part, nil
}

// expand replaces references to the container's environment. One that can't be resolved is an error
// (https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath-expanded-environment), and so
// is what comes to nothing: the container would get all of the volume.
func expand(expr string, vars []*runtimeapi.KeyValue) (string, error) {
	var missing []string
	got, ok := pod.Expand(expr, func(name string) (string, bool) {
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
		return "", errors.New("is too long with its references replaced")
	case got == "":
		return "", errors.New("is empty with its references replaced")
	}
	return got, nil
}
