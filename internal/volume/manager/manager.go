// Package volume keeps what pods have on the node's disk: their folders, their
// volumes and the files mounted into their containers. Each kind of volume is a
// plugin in a folder of its own.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pathelement"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// Waiting reasons, as the kubelet gives them.
const (
	reasonMount  = "FailedMount"
	reasonConfig = "CreateContainerConfigError"
)

// Config says where things are and what kinds of volumes there are.
type Config struct {
	// RootDir is the agent's root folder; pods' folders are in RootDir/pods. Only
	// root may be able to write to it.
	RootDir string
	// Plugins are asked in order; the first one that supports a volume makes it.
	Plugins []Plugin
	// ClusterDomain ends the full names in pods' /etc/hosts; empty leaves full names out.
	ClusterDomain string
	// HostsFile is the node's own hosts file; empty counts as /etc/hosts.
	HostsFile string
}

// Manager prepares and cleans pods' folders. It keeps no state but what is on
// disk and is safe for concurrent use, for one pod by one caller at a time.
type Manager struct {
	conf Config
	log  logr.Logger
}

// New makes a manager.
func New(c Config, log logr.Logger) *Manager {
	if c.HostsFile == "" {
		c.HostsFile = "/etc/hosts"
	}
	return &Manager{conf: c, log: log}
}

// Prepare makes the pod's folders and volumes. It may be called again, also for a
// pod that runs: what is ready stays as it is.
//
// The error is a *pod.Failure that names the volume, or the context's error.
func (m *Manager) Prepare(ctx context.Context, p *v1.Pod) error {
	if err := pathelement.Check("pod UID", string(p.UID)); err != nil {
		return &pod.Failure{Reason: reasonMount, Message: err.Error(), Permanent: true}
	}
	// Nothing is made for a pod that can't run here anyway.
	for i := range p.Spec.Volumes {
		if _, _, err := m.find(p, &p.Spec.Volumes[i]); err != nil {
			return volumeFailure(&p.Spec.Volumes[i], err)
		}
	}
	if err := os.MkdirAll(m.podDir(p.UID), 0o750); err != nil {
		return &pod.Failure{Reason: reasonMount, Message: fmt.Sprintf("make the pod's folder: %v", err)}
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		plugin, r, err := m.find(p, v)
		if err == nil {
			err = plugin.Prepare(ctx, r)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return volumeFailure(v, err)
		}
	}
	m.log.V(4).Info("volumes are ready", "pod", p.Namespace+"/"+p.Name, "volumes", len(p.Spec.Volumes))
	return nil
}

// EmptyDir returns the host's path of what containers see of an emptyDir of the pod's,
// which has to be prepared. Pods can write there: what is in it has to be opened with care.
func (m *Manager) EmptyDir(p *v1.Pod, name string) (string, error) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Name != name {
			continue
		}
		if v.EmptyDir == nil {
			return "", fmt.Errorf("volume %q is of the kind %s, where an emptyDir is needed", name, Kind(v))
		}
		plugin, r, err := m.find(p, v)
		if err != nil {
			return "", fmt.Errorf("volume %q: %w", name, err)
		}
		return plugin.HostPath(r), nil
	}
	return "", fmt.Errorf("the pod has no volume %q", name)
}

// find returns the volume's plugin and what to ask it.
func (m *Manager) find(p *v1.Pod, v *v1.Volume) (Plugin, Request, error) {
	if err := pathelement.Check("volume name", v.Name); err != nil {
		return nil, Request{}, err
	}
	for _, plugin := range m.conf.Plugins {
		if plugin.Supports(v) {
			return plugin, Request{Pod: p, Volume: v, Dir: m.volumeDir(p.UID, plugin, v.Name)}, nil
		}
	}
	return nil, Request{}, fmt.Errorf("volumes of this kind are %w", ErrUnsupported)
}

func volumeFailure(v *v1.Volume, err error) error {
	return &pod.Failure{
		Reason:    reasonMount,
		Message:   fmt.Sprintf("volume %q (%s): %v", v.Name, Kind(v), err),
		Permanent: errors.Is(err, ErrUnsupported),
	}
}

// Clean takes down everything that is on disk for the pod: it unmounts what is
// mounted in its folder and deletes the rest, without following links or entering mounts.
// No container of the pod may be left. Nothing to clean is no error; what is
// still in use is, and calling again later is right.
func (m *Manager) Clean(ctx context.Context, uid types.UID) error {
	err := pathelement.Check("pod UID", string(uid))
	if err == nil {
		err = teardown.Remove(ctx, m.podsDir(), string(uid))
	}
	if err != nil {
		return fmt.Errorf("clean up volumes of pod %s: %w", uid, err)
	}
	return nil
}

// Orphans lists the pods that have a folder on disk, wanted or not, in order.
func (m *Manager) Orphans() ([]types.UID, error) {
	entries, err := os.ReadDir(m.podsDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list pods' folders: %w", err)
	}
	uids := make([]types.UID, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && pathelement.Check("pod UID", e.Name()) == nil {
			uids = append(uids, types.UID(e.Name()))
		}
	}
	return slices.Clip(uids), nil
}
