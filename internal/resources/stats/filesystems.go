package stats

import (
	"context"
	"errors"
	"fmt"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// FileSystem is a file system that contains files of pods.
type FileSystem struct {
	// Path is a directory on the file system; empty if the runtime hasn't reported one.
	Path string
	// Device is the same for all paths on this file system, even for different subvolumes of btrfs: the device number,
	// such as 253:0. Point is the file system's mount point, and Source its name in the mount table. They are empty if
	// they can't be determined.
	Device, Point, Source string
	usage.Space
	// Err is the reason why Space is missing.
	Err error
}

// FileSystems are the file systems that can become full.
type FileSystems struct {
	// Node contains the agent's root directory, Images the images, and Containers the writable layers of containers.
	Node, Images, Containers FileSystem
	// Unknown is the error of a runtime that has never answered which file systems it uses; else nil. Until then, files
	// of images and containers may be on any file system.
	Unknown error
}

var errNoImageFS = errors.New("the container runtime doesn't report which file system its images are on")

// MeasureFileSystems measures the file systems now. Unlike Sample, it reads no directories and reuses no figures. If
// file systems or the runtime don't respond, the first call takes up to 3 s, and later calls don't wait for these.
func (s *Sampler) MeasureFileSystems(ctx context.Context) FileSystems {
	images, containers, failed := s.imageFileSystems(ctx)
	err := errNoImageFS
	if failed != nil {
		err = fmt.Errorf("%w: %w", errNoImageFS, failed)
	}
	all := FileSystems{Node: FileSystem{Path: s.RootDir},
		Images:     FileSystem{Path: images.GetFsId().GetMountpoint(), Err: err},
		Containers: FileSystem{Path: containers.GetFsId().GetMountpoint(), Err: err}}
	if images == nil {
		all.Unknown = failed
	}
	s.measure(ctx, &all.Node, &all.Images, &all.Containers)
	return all
}

// measure measures the file systems that have a path. It waits as long as MeasureFileSystems for those that don't
// respond.
func (s *Sampler) measure(ctx context.Context, list ...*FileSystem) {
	var paths []string
	var of []*FileSystem
	for _, f := range list {
		if f.Path != "" {
			paths, of = append(paths, f.Path), append(of, f)
		}
	}
	for i, size := range s.FileSystems.FileSystems(ctx, paths, 0) {
		if of[i].Err = size.Err; size.Err == nil {
			of[i].Space = usage.SpaceOf(&size.Value)
		}
	}
	for i, mount := range s.mounts.Get(ctx, paths, walkPatience, walkRevise) {
		if m := &mount.Value; !mount.At.IsZero() {
			of[i].Device, of[i].Point, of[i].Source = fmt.Sprintf("%d:%d", m.Major, m.Minor), m.Point, m.Source
		}
	}
}

// mountOf returns the mount that contains the path; none if it is empty.
func mountOf(path string) (mounts.Entry, error) {
	if path == "" {
		return mounts.Entry{}, nil
	}
	return mounts.Containing(path)
}
