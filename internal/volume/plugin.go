package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// ErrUnsupported is wrapped by errors of plugins for which a retry can't help, because this build doesn't support
// the volume.
var ErrUnsupported = errors.New("not supported by this build")

// AwaitsError is the error for a volume that has to wait for an API object: the object doesn't exist yet, or isn't
// usable yet. It contains no value of a Secret.
type AwaitsError struct {
	Object pod.Object
	Err    error
	// Step is the step that waits, as messages of the kubelet name it, such as "WaitForAttach"; empty for SetUp.
	Step string
	// NotBefore is the time of the next try if no change of the object is certain to be reported; else zero.
	NotBefore time.Time
	// Expected says that the volume waits for others to do their part as always: that isn't worth an event, unless it
	// takes too long.
	Expected bool
}

func (e *AwaitsError) Error() string { return e.Err.Error() }

// Unwrap returns the problem with the object.
func (e *AwaitsError) Unwrap() error { return e.Err }

// Awaits returns an AwaitsError for the object.
func Awaits(object pod.Object, format string, args ...any) error {
	return &AwaitsError{Object: object, Err: fmt.Errorf(format, args...)}
}

// Plugin provides volumes of one type. Its methods are safe for concurrent use, but the manager makes only one call at
// a time for each volume. A call may take long, or for ever if a file system hangs, so the manager never makes it on
// the goroutine of a pod's worker.
type Plugin interface {
	// Name is the plugin's name, such as "kubernetes.io/empty-dir". Names of directories contain it, with "~" for
	// "/".
	Name() string
	// Supports reports whether the plugin provides this volume. The manager uses the first plugin in its list that
	// does.
	Supports(Spec) bool
	// Mount makes the volume ready for containers. It is called again after a crash at any moment, after a reboot,
	// and while containers use the volume: a complete volume is left alone, a partial one is completed or
	// recreated. It returns the mount for containers.
	Mount(context.Context, Request) (Mounted, error)
}

// Checker is a plugin that can refuse a volume before anything is created for the pod.
type Checker interface {
	Plugin
	// Check returns an error if the plugin can't provide the volume as the pod's manifest specifies it. It is
	// called for supported volumes only. Its errors wrap ErrUnsupported. It only reads its arguments, and returns
	// at once.
	Check(*v1.Pod, Spec) error
}

// Unmounter is a plugin whose volumes need more cleanup than the manager does for all volumes: the manager unmounts
// everything at the volume's directory and deletes the directory.
type Unmounter interface {
	Plugin
	// Unmount releases the volume before its directory is removed. It is called again after failures and crashes,
	// also for a volume that is incomplete or gone. say receives what it waits for.
	Unmount(ctx context.Context, at Place, say Say) error
}

// Say receives what a call waits for, for messages. A nil Say receives nothing.
type Say func(text string)

// Waits says what the call waits for.
func (s Say) Waits(text string) {
	if s != nil {
		s(text)
	}
}

// Rechecker is a plugin whose volumes are paths of the host, which may be removed or replaced at any time. A
// container runtime creates a directory for a missing path.
type Rechecker interface {
	Plugin
	// Recheck fails if the mounted volume isn't of the specified type any more. It is called each time before a
	// container is created or started.
	Recheck(context.Context, Spec) error
}

// Live is a plugin whose mounted volumes follow changes of their source: ConfigMaps, Secrets, the pod's own fields.
type Live interface {
	Plugin
	// Refresh updates the mounted volume, and reports whether its content changed. Readers see all of an update or
	// nothing. Some seconds after Mount or Refresh changed the content, it is called again to remove the old files:
	// until then, readers may still be opening them.
	Refresh(context.Context, Request) (changed bool, err error)
}

// Stager is a plugin whose volumes are set up once per node, however many pods use them: attached devices, network
// shares (CSI: NodeStageVolume). The manager calls Stage before the first Mount of a device and Unstage after the
// last unmount, one call at a time for each device. Stage is called again after failures and after a restart of the
// agent or the node, also while pods use the device: it leaves a staged device alone. Unstage is called again after
// failures, also for devices that were never staged.
type Stager interface {
	Plugin
	// Device returns the key of the device that volumes with this spec share, and the device's directory: a path below
	// plugins/ under the root directory, the same as that of the kubelet's plugin of this type. Only the plugin creates
	// and uses the directory, which is removed after Unstage. The key is empty for a volume that isn't staged.
	Device(Spec) (key, dir string)
	Stage(context.Context, Staging) error
	Unstage(context.Context, Staging) error
	// Note reads the note in the directory of a device, or of a volume of a pod. The error is fs.ErrNotExist if there
	// is none.
	Note(dir string) (Note, error)
	// Noted lists the directories of devices with a note, also those of a kubelet.
	Noted() []string
}

// Note is a plugin's note on disk about a device, or about a volume of a pod.
type Note struct {
	// Device is the key of the device, or of the device that the pod's volume uses; it is empty if the volume uses
	// none.
	Device string
	// Program is the name of the program that holds the volume, and Handle the program's name of the volume.
	Program, Handle string
	// Attached says that the volume may still be in use as an attached one, in this boot of the machine.
	Attached bool
}

// Attacher is a Stager whose volumes a controller of the cluster may have to attach to the node. The manager reports
// such a volume as in use from the time when a pod wants it until nothing of the volume is left on the node; meanwhile
// the controller doesn't detach the volume. Stage and Mount fail with an AwaitsError until the volume is attached.
type Attacher interface {
	Stager
	// Attaches reports whether a controller has to attach the volume. The error is that of reading an API object.
	Attaches(context.Context, object.View, Spec) (bool, error)
	// Dir returns the directory of the device with this key, which may be invalid.
	Dir(key string) string
}

// UniqueName is the name of a volume with this key in the lists of attached volumes of a Node.
func UniqueName(p Plugin, key string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(p.Name() + "/" + key)
}

// Forgetter is a plugin whose volumes are held by another program that may never come back: a CSI driver.
type Forgetter interface {
	Stager
	// Forget unmounts a volume (a device if staged is set) and removes its note, without calling the program. It is
	// called for volumes that are not in use, and for volumes that are already gone.
	Forget(ctx context.Context, dir string, staged bool) error
}

// Staging is a device to stage or unstage.
type Staging struct {
	// Device is the device's key, Dir its directory.
	Device, Dir string
	// Spec, Pod and Objects are those of the first volume on the device. Unstage gets none.
	Spec    Spec
	Pod     *v1.Pod
	Objects object.View
	// InUse says that containers already use the first volume. Used says that other volumes use the device, too: the
	// device must not be unstaged then.
	InUse, Used bool
	Say         Say
}

// Request is a volume of a pod, to mount or to refresh.
type Request struct {
	Pod *v1.Pod
	// Objects are the API objects that the pod may use.
	Objects object.View
	Spec    Spec
	Place
	// Held reports whether containers mount the file or directory with this device and inode as a subPath: such a
	// file must not be removed. It is nil if containers mount no subPaths of the volume.
	Held func(device, inode uint64) bool
	// InUse says that containers of the pod may already use the volume.
	InUse bool
	Say   Say
}

// Place has the paths of a volume. They are still available after the pod was removed.
type Place struct {
	UID types.UID
	// Dir is the volume's directory, pods/UID/volumes/PLUGIN/NAME under the root directory. For most types of
	// volumes, containers mount it. Its parents may be missing.
	Dir string
	// Meta is the directory for the plugin's own data about the volume: pods/UID/plugins/PLUGIN/NAME under the root
	// directory. Its parents may be missing.
	Meta string
	// Device is the key of the volume's device, according to the manager's records, and Spec the parts of the volume's
	// source that the manager has. They are set only for Unmount, which uses them if the volume's own note can't be
	// read.
	Device string
	Spec   Spec
}

// Mounted describes the mount of a volume for containers.
type Mounted struct {
	// Path is the path on the host that containers mount. It is empty for an image volume.
	Path string
	// ReadOnly makes the mounts of all containers read-only.
	ReadOnly bool
	// Ownership says that the manager has to apply the pod's fsGroup to the volume's files: the volume outlives the
	// pod, and the plugin doesn't apply the fsGroup itself.
	Ownership bool
	// Unpropagated says that mounts inside the volume never reach the host: Bidirectional propagation isn't
	// possible.
	Unpropagated bool
	// Retained says that Mount failed to update a volume in use, which therefore still has its previous content. The
	// next Refresh reports the error.
	Retained bool
	// Updated says that Mount updated the content of a volume in use. Refresh has to be called again to remove the
	// old files: see Live.
	Updated bool
	// Image is the image that the runtime mounts (KEP-4639); nil for all other types.
	Image *runtimeapi.ImageSpec
}

// Instance is a mounted volume of a pod, for readers outside of the manager such as measurements.
type Instance struct {
	Pod  *v1.Pod
	Spec Spec
	// Plugin is the plugin's name.
	Plugin string
	Place
	Mounted Mounted
}

// Path is the path on the host that containers mount, or the volume's directory if there is none.
func (i *Instance) Path() string { return cmp.Or(i.Mounted.Path, i.Dir) }
