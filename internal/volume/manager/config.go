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
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
)

// Config is what a Manager is built from. Every field without a default is needed.
type Config struct {
	// RootDir is the agent's root directory; pods' directories are in RootDir/pods, staged devices in
	// RootDir/plugins. Only root may be able to write to it.
	RootDir string
	// Plugins are asked in order; the first one that supports a volume makes it.
	Plugins []volume.Plugin
	// Claims resolves persistentVolumeClaim and ephemeral volumes.
	Claims volumestate.Claims
	// SubPaths makes parts of volumes ready for containers.
	SubPaths SubPaths
	// ApplyFSGroup gives the files of a volume to the pod's fsGroup: filetree.Apply.
	ApplyFSGroup func(ctx context.Context, dir string, o filetree.Options) error

	// Changed wakes Run for the objects and pods that have changed, and volumestate.Node; the zero object is any.
	Changed *wake.Keyed[pod.Object]
	// Pod is the newest version of a pod with its allocated resources, or nil if it isn't
	// wanted any more. It answers at once.
	Pod func(types.UID) *v1.Pod
	// Running reports whether containers of the pod may be there. It answers at once.
	Running func(types.UID) bool
	// Freed is called when a claim that only one pod may use is free again: pods that wait for an
	// object (pod.Failure.Awaits) are to be looked at again. It must not block.
	Freed func()

	Recorder Recorder
	Meter    Meter

	// ClusterDomain ends the full names in pods' /etc/hosts; empty leaves full names out.
	ClusterDomain string
	// HostsFile is the node's own hosts file; empty counts as /etc/hosts.
	HostsFile string
	// Parallel is how many volumes are worked on at once; 0 means 16. Those that hang don't count for long.
	Parallel int
	// Early is when an event says that a volume takes long, and how long a clean-up waits for
	// what is under way; 0 means 10 s.
	Early time.Duration
	// Patience is when a volume counts as hanging; 0 means 2 min.
	Patience time.Duration
	// FirstBackoff is how long to wait after the first failure, which doubles with each that
	// follows; 0 means 500 ms.
	FirstBackoff time.Duration
	// FirstProgress is when an event first says how far the change of a volume's owner has
	// come, and NextProgress how long after that another one follows; 0 means 10 s and 1 min.
	FirstProgress, NextProgress time.Duration
	// Stop is how long Run waits at its end for what is under way; 0 means 2 s.
	Stop time.Duration
}

// SubPath is a part of a volume, as Config.SubPaths is asked for it.
type SubPath = subpath.Request

// Recorder takes in events.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Meter counts operations.
type Meter interface {
	// Operation takes in that an operation on a volume has ended: volume_mount, volume_unmount. To bring the
	// content of a mounted volume up to date is volume_mount, as the kubelet, which mounts it again for that, counts
	// it.
	Operation(plugin, operation string, took time.Duration, failed bool)
	// Completed takes in how long it took to do it, from when it was asked for.
	Completed(plugin, operation string, took time.Duration)
	// Reconstructed takes in that a volume of a pod that runs was taken over from an agent before this
	// one, or couldn't be.
	Reconstructed(failed bool)
}

// orDefault fills in what is left out.
func (c Config) orDefault() Config {
	for d, value := range map[*time.Duration]time.Duration{
		&c.Early: 10 * time.Second, &c.Patience: 2 * time.Minute, &c.FirstProgress: 10 * time.Second,
		&c.NextProgress: time.Minute, &c.Stop: 2 * time.Second,
	} {
		if *d == 0 {
			*d = value
		}
	}
	if c.HostsFile == "" {
		c.HostsFile = "/etc/hosts"
	}
	return c
}
