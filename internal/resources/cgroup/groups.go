package cgroup

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// Reader returns a reader of the counters of this host's cgroups.
func (m *Manager) Reader(ctx context.Context) (*counters.Reader, error) {
	l, err := m.usable(ctx)
	if err != nil {
		return nil, err
	}
	return l.reader(), nil
}

// reader returns a reader of the counters of the host's cgroups.
func (l layout) reader() *counters.Reader { return counters.New(l.v2, l.mounts) }

// PodsGroup returns the name of the group that contains all pods.
func (m *Manager) PodsGroup() string { return m.qosCgroup(classes[0]) }

// PodGroup returns the name of the pod's group. The error is fs.ErrNotExist if there is none.
func (m *Manager) PodGroup(ctx context.Context, uid types.UID) (string, error) {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return "", err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return "", err
	}
	for _, class := range classes {
		name := m.name(class, uid)
		if unix.Access(filepath.Join(l.mounts["memory"], name), unix.F_OK) == nil {
			return name, nil
		}
	}
	return "", &fs.PathError{Op: "look for the cgroup of pod", Path: string(uid), Err: fs.ErrNotExist}
}

// Own returns the name of the group that this process is in. It is empty if that is the root, or differs between
// hierarchies.
func Own() string {
	groups, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	own, v1 := groups["memory"]
	if !v1 {
		own = groups[""]
	}
	if cpu, ok := groups["cpu"]; own == "/" || ok && cpu != own {
		return ""
	}
	return own
}
