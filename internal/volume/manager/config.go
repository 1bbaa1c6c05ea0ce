package manager

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// Config configures a Manager. Fields without a default are required.
type Config struct {
	// RootDir is the agent's root directory. Pods' directories are in RootDir/pods, staged devices in
	// RootDir/plugins. Only root may be able to write to it.
	RootDir string
	// Plugins are tried in order; the first one that supports a volume provides it.
	Plugins []volume.Plugin
	// Claims binds the claims of persistentVolumeClaim and ephemeral volumes.
	Claims volumestate.Claims
	// SubPaths bind-mounts parts of volumes for containers.
	SubPaths SubPaths
	// ApplyFSGroup changes the group of a volume's files to the pod's fsGroup: filetree.Apply.
	ApplyFSGroup func(ctx context.Context, dir string, o filetree.Options) error

	// Changed wakes Run for objects and pods that have changed, and for volumestate.Node. The zero object means that
	// any object may have changed.
	Changed *wake.Keyed[pod.Object]
	// Pod returns the newest version of a pod with its allocated resources, or nil if the pod isn't desired any
	// more. It returns at once.
	Pod func(types.UID) *v1.Pod
	// Running reports whether containers of the pod may exist. It returns at once.
	Running func(types.UID) bool
	// ContainerRuns reports whether an instance of the pod's container runs or may still be started. It returns at
	// once.
	ContainerRuns func(uid types.UID, container string) bool
	// Freed is called when a ReadWriteOncePod claim is free again: pods that wait for an object
	// (pod.Failure.Awaits) have to be retried. It must not block.
	Freed func()
	// Attached is the node's list of attached volumes; nil if no controller attaches volumes.
	Attached Attached
	// DiskFailed reports that the content of a volume couldn't be updated because its disk can't be written: DiskFreed
	// is expected later. It must not block for long.
	DiskFailed func(error)

	Recorder Recorder
	Meter    Meter

	// ClusterDomain is the suffix of FQDNs in pods' /etc/hosts; if it is empty, there are no FQDNs.
	ClusterDomain string
	// Parallel is how many operations run at once; 0 means 16. After a short time, an operation that hangs doesn't
	// count any more.
	Parallel int
	// Early is the time after which an unfinished mount is reported in an event, and the time that a clean-up waits
	// for running operations; 0 means 10 s.
	Early time.Duration
	// Patience is the time after which an operation counts as hanging, and after which a volume's expected wait
	// (volume.AwaitsError) is reported; 0 means 2 min.
	Patience time.Duration
	// FirstBackoff is the delay after the first failure, which doubles with each further one; 0 means 500 ms.
	FirstBackoff time.Duration
	// FirstProgress is the time after which an event first reports how many files were changed to the fsGroup; 0
	// means 10 s. NextProgress is the interval of further such events; 0 means 1 min.
	FirstProgress, NextProgress time.Duration
	// Stop is how long Run waits for running operations when it ends; 0 means 2 s.
	Stop time.Duration
}

// Attached is the state of attached volumes in the node's object. When it changes, Config.Changed is woken for objects
// of the kind VolumeAttachment.
type Attached interface {
	// SetInUse sets the sorted names of the volumes that must not be detached. It must not block.
	SetInUse([]v1.UniqueVolumeName)
	// Reported returns the names that the node's object lists; nil if the object hasn't been read yet.
	Reported() []v1.UniqueVolumeName
	// Detached reports whether a volume is listed as in use, but not as attached.
	Detached(v1.UniqueVolumeName) bool
}

// Recorder records events about pods.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Meter records metrics of operations.
type Meter interface {
	// Operation records the end of an operation on a volume: "volume_mount" or "volume_unmount". took is how long
	// the operation worked, without the time that it waited. An update of the content of a mounted volume counts as
	// volume_mount, because the kubelet mounts a volume again to update it. migrated says that the volume is of a kind
	// that a CSI driver has replaced.
	Operation(plugin, operation string, migrated bool, took time.Duration, failed bool)
	// Completed records the time from the request for an operation to its success.
	Completed(plugin, operation string, took time.Duration)
	// Reconstructed records that a volume of a running pod was taken over from an earlier agent, or couldn't be.
	Reconstructed(failed bool)
}

// orDefault returns the configuration with defaults for durations.
func (c Config) orDefault() Config {
	for d, value := range map[*time.Duration]time.Duration{
		&c.Early: 10 * time.Second, &c.Patience: 2 * time.Minute, &c.FirstProgress: 10 * time.Second,
		&c.NextProgress: time.Minute, &c.Stop: 2 * time.Second,
	} {
		if *d == 0 {
			*d = value
		}
	}
	return c
}
