package stats

import (
	"cmp"
	"context"
	"slices"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/host/room"
)

// FullDisk is a file system of the node that is full, with its largest users.
type FullDisk struct {
	room.FileSystem
	// Holds describes which of the node's files are on the file system, such as "images".
	Holds []string
	// Most are the users of at least a twentieth of the file system, the largest first, as far as their use has been
	// measured.
	Most []DiskUser
}

// DiskUser is a user of a disk: a pod, the images, or all other files.
type DiskUser struct {
	Name          string
	Bytes, Inodes uint64
}

// holdsRoot and holdsImages are values in FullDisk.Holds.
const holdsRoot, holdsImages = "the root directory", "images"

const (
	// share is the divisor of a file system's size that gives the least use of a reported DiskUser; mostUsers is the
	// maximum number of them.
	share, mostUsers = 20, 3
	// usersPatience is how long FullDisks waits for a sample.
	usersPatience = 2 * time.Second
)

// FullDisks returns the full ones among the file systems of the root directory, images, containers and the pods' logs.
// Only if there are any, it needs a sample: it uses one that is at most a minute old, or makes one.
func (s *Sampler) FullDisks(ctx context.Context) []FullDisk {
	full := s.full(ctx)
	if len(full) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, usersPatience)
	defer cancel()
	sample, err := s.Sample(ctx, Full, walkedFor)
	if err != nil {
		return full
	}
	for i := range full {
		full[i].Most = usersOf(sample, &full[i])
	}
	return full
}

// FullFileSystems returns the file systems of FullDisks, without a sample.
func (s *Sampler) FullFileSystems(ctx context.Context) []room.FileSystem {
	var list []room.FileSystem
	for _, f := range s.full(ctx) {
		list = append(list, f.FileSystem)
	}
	return list
}

func (s *Sampler) full(ctx context.Context) []FullDisk {
	all, logs := s.MeasureFileSystems(ctx), FileSystem{Path: s.Logs}
	s.measure(ctx, &logs)
	if all.Containers.Path == all.Images.Path {
		all.Containers = FileSystem{}
	}
	var full []FullDisk
	for _, place := range [...]struct {
		of    *FileSystem
		holds string
	}{{&all.Node, holdsRoot}, {&all.Images, holdsImages}, {&all.Containers, "containers"}, {&logs, "the pods' logs"}} {
		f := place.of
		on := room.FileSystem{Point: f.Point, Path: f.Path, Size: ptr.Deref(f.Capacity, 0),
			Free: ptr.Deref(f.Available, 0), Inodes: ptr.Deref(f.Inodes, 0), FreeInodes: ptr.Deref(f.InodesFree, 0)}
		if !on.Full() {
			continue
		}
		i := slices.IndexFunc(full, func(f FullDisk) bool { return f.Point == on.Point })
		if i < 0 {
			i, full = len(full), append(full, FullDisk{FileSystem: on})
		}
		full[i].Holds = append(full[i].Holds, place.holds)
	}
	return full
}

// usersOf returns the largest users of a file system, according to a sample.
func usersOf(sample *Sample, of *FullDisk) []DiskUser {
	other := DiskUser{Name: "other files", Bytes: of.Size - of.Free, Inodes: of.Inodes - of.FreeInodes}
	var list []DiskUser
	add := func(name string, fs *statsapi.FsStats) {
		if fs == nil {
			return
		}
		u := DiskUser{Name: name, Bytes: ptr.Deref(fs.UsedBytes, 0), Inodes: ptr.Deref(fs.InodesUsed, 0)}
		subtract(&other.Bytes, u.Bytes)
		subtract(&other.Inodes, u.Inodes)
		list = append(list, u)
	}
	if slices.Contains(of.Holds, holdsRoot) {
		for i := range sample.Pods {
			p := &sample.Pods[i]
			add("pod "+p.Namespace+"/"+p.Name, p.Ephemeral)
		}
	}
	if slices.Contains(of.Holds, holdsImages) {
		add("images", sample.ImageFS)
	}
	list = append(list, other)
	used, whole := func(u DiskUser) uint64 { return u.Bytes }, of.Size
	if of.Free >= room.Enough {
		used, whole = func(u DiskUser) uint64 { return u.Inodes }, of.Inodes
	}
	list = slices.DeleteFunc(list, func(u DiskUser) bool { return used(u) < max(whole/share, 1) })
	slices.SortStableFunc(list, func(a, b DiskUser) int { return cmp.Compare(used(b), used(a)) })
	return list[:min(len(list), mostUsers)]
}
