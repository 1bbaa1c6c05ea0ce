package volume

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// ErrUnsupported is what a plugin's error wraps when trying again can't help,
// because this build can't do what the volume asks for.
var ErrUnsupported = errors.New("not supported by this build")

// AwaitsError is the error for a volume that can't be made before an object is there, or
// is as it is needed. It holds no value of a Secret.
type AwaitsError struct {
	Object pod.Object
	Err    error
}

func (e *AwaitsError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the object.
func (e *AwaitsError) Unwrap() error { return e.Err }

// Awaits returns an error that waits for the object.
func Awaits(object pod.Object, format string, args ...any) error {
	return &AwaitsError{Object: object, Err: fmt.Errorf(format, args...)}
}

// Plugin makes volumes of one kind. Its methods are safe for concurrent use, for one
// volume by one caller at a time. They may take long, or for ever where a file system
// hangs: the manager calls them where nobody else waits, and never from a worker.
type Plugin interface {
	// Name is the plugin's name as directories have it: "kubernetes.io/empty-dir".
	Name() string
	// Supports reports whether it makes volumes from this. The first plugin of a list that
	// does makes the volume.
	Supports(Spec) bool
	// Mount makes the volume ready for containers. It is called again after a crash at any
	// moment, after a reboot, and while containers use the volume: what is ready stays as
	// it is, what is half made is completed or made again. It returns what containers get.
	Mount(context.Context, Request) (Mounted, error)
}

// Checker is a plugin that can tell that it won't make a volume before anything is made for
// the pod.
type Checker interface {
	Plugin
	// Check refuses a volume that it supports for what the pod's manifest says. Its errors wrap
	// ErrUnsupported. It looks at nothing else, and returns at once.
	Check(*v1.Pod, Spec) error
}

// Unmounter is a plugin whose volumes take more to go than unmounting what is mounted at
// their place and deleting that directory, which the manager does for every volume.
type Unmounter interface {
	Plugin
	// Unmount releases the volume before its directory is removed. It is called again after
	// failures and crashes, also for a volume that is half made or gone, and when
	// nothing is known of it but its paths.
	Unmount(context.Context, Place) error
}

// Rechecker is a plugin whose volumes are things of the node, which others may remove or replace at any time. Where
// there is nothing, a container runtime makes a directory.
type Rechecker interface {
	Plugin
	// Recheck fails if the volume, which was mounted, isn't what it has to be any more. It is called each time that a
	// container is about to be created or started.
	Recheck(context.Context, Spec) error
}

// Live is a plugin whose volumes follow what they are made from while containers use
// them: ConfigMaps, Secrets, the pod's own fields.
type Live interface {
	Plugin
	// Refresh makes what containers see what it should be now, and reports whether that
	// was something else. A reader never sees half of it. It is called for mounted volumes only, and
	// once more some seconds after a change, be it Mount's: what readers were on their way to may be removed then.
	Refresh(context.Context, Request) (changed bool, err error)
}

// Stager is a plugin whose volumes are brought to the node once, however many pods of
// it use them: attached devices, network shares (CSI: NodeStageVolume). The manager
// calls Stage before the first Mount of a device and Unstage after the last one is gone,
// one of them at a time for each device. Stage is called again after a restart of the agent or the
// node, also while pods use the device, and after failures: what is ready stays as it is.
// Unstage is called again after failures, also for what was never staged.
type Stager interface {
	Plugin
	// Device names what is shared by all volumes that are made from it.
	Device(Spec) string
	Stage(context.Context, Staging) error
	Unstage(context.Context, Staging) error
}

// Staging is a device that is brought to the node.
type Staging struct {
	Device string
	// Spec is that of the first volume; its zero value to Unstage after a restart, when
	// nothing else is known any more.
	Spec Spec
	// Dir is the device's own place: plugins/PLUGIN/DEVICE's hash/globalmount under the root directory.
	Dir string
}

// Request is one volume of one pod.
type Request struct {
	Pod *v1.Pod
	// Objects is what the pod may see.
	Objects object.View
	Spec    Spec
	Place
	// Held reports which files and directories of the volume containers are to mount as parts of it, by device and
	// inode: these stay where they are. nil for none.
	Held func(device, inode uint64) bool
	// InUse says that containers of the pod may use the volume already.
	InUse bool
	// Staged is Staging.Dir for plugins that stage; empty for others.
	Staged string
}

// Place is where a volume is, which is all that is known of one whose pod is gone.
type Place struct {
	UID types.UID
	// Dir is pods/UID/volumes/PLUGIN/NAME under the root directory: what containers see of most
	// kinds. Its parents may be missing.
	Dir string
	// Meta is pods/UID/plugins/PLUGIN/NAME, for what the plugin has to remember of
	// the volume. Its parents may be missing.
	Meta string
}

// Mounted is what containers get of a volume.
type Mounted struct {
	// Path is the host's path to mount. It is empty for an image.
	Path string
	// ReadOnly says that no container may write to it, whatever its mount says.
	ReadOnly bool
	// Ownership says that the manager is to give the volume's files to the pod's fsGroup: the
	// volume outlives the pod and the plugin doesn't do that itself.
	Ownership bool
	// Unpropagated says that mounts made in it never reach the host: no Bidirectional.
	Unpropagated bool
	// Kept says that the volume, which is in use, holds what it did before, because it can't be what it
	// should be now. A Refresh reports why.
	Kept bool
	// Updated says that the volume, which is in use, was brought up to date: see Live.
	Updated bool
	// Image is what the runtime mounts itself (KEP-4639); nil for all other kinds.
	Image *runtimeapi.ImageSpec
}

// Instance is a volume of a pod that is mounted, as others look at it: those who measure.
type Instance struct {
	Pod  *v1.Pod
	Spec Spec
	// Plugin is its name.
	Plugin string
	Place
	Mounted Mounted
}
