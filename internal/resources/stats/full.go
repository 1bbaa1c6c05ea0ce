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

// FullDisk is a file system of the node without room, and its largest users.
type FullDisk struct {
	room.FileSystem
	// Holds are the node's files on it, in words.
	Holds []string
	// Most are the users of at least a twentieth of it, the largest first, as far as that has been measured.
	Most []DiskUser
}

// DiskUser is a pod, the images, or all other files of a disk.
type DiskUser struct {
	Name          string
	Bytes, Inodes uint64
}

const (
	// share is the part of a file system, as a divisor, from which a DiskUser is reported; mostUsers is how many are.
	share, mostUsers = 20, 3
	// usersPatience is how long FullDisks waits for a sample.
	usersPatience = 2 * time.Second
)

// FullDisks returns the file systems of the root directory, images, containers and the pods' logs that are full. Only
// if there are any it makes a sample, unless there is one of the last minute.
func (s *Sampler) FullDisks(ctx context.Context) []FullDisk {
	images, containers, _ := s.imageFileSystems(ctx) // without an answer they are empty
	store, layers := images.GetFsId().GetMountpoint(), containers.GetFsId().GetMountpoint()
	if layers == store {
		layers = ""
	}
	var full []FullDisk
	for _, place := range [...]struct{ dir, holds string }{
		{s.RootDir, "the root directory"}, {store, "images"}, {layers, "containers"}, {s.Logs, "the pods' logs"},
	} {
		if place.dir == "" {
			continue
		}
		on, err := room.Measure(place.dir)
		if err != nil || !on.Full() {
			continue
		}
		i := slices.IndexFunc(full, func(f FullDisk) bool { return f.Point == on.Point })
		if i < 0 {
			i, full = len(full), append(full, FullDisk{FileSystem: on})
		}
		full[i].Holds = append(full[i].Holds, place.holds)
	}
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
		full[i].Most = usersOf(sample, &full[i], store)
	}
	return full
}

// usersOf returns the largest users of a file system, according to a sample. store is a directory on the file system
// of images.
func usersOf(sample *Sample, of *FullDisk, store string) []DiskUser {
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
	if slices.Contains(of.Holds, "the root directory") {
		for i := range sample.Pods {
			p := &sample.Pods[i]
			add("pod "+p.Namespace+"/"+p.Name, p.Ephemeral)
		}
	}
	if on, err := room.Measure(store); store != "" && err == nil && on.Point == of.Point {
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
