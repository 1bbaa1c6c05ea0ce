package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Statfs measures the file system at a path of this host.
func Statfs(path string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Disk{}, fmt.Errorf("measure the file system at %s: %w", path, err)
	}
	block := uint64(max(st.Bsize, 0))
	return Disk{Path: path, Capacity: st.Blocks * block, Available: st.Bavail * block}, nil
}

// listImages lists all images with their users and records which are in use. With ErrUsesUnknown it returns the
// known users and records nothing: images without users may have some.
func (c *Collector) listImages(ctx context.Context) ([]Image, error) {
	listed, err := c.cfg.Runtime.ListImages(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	listed = slices.DeleteFunc(listed, func(i *runtimeapi.Image) bool { return i.GetId() == "" })
	if c.cfg.Listed != nil {
		c.cfg.Listed(listed)
	}
	uses, unknown := c.uses(ctx)
	if unknown != nil && !errors.Is(unknown, ErrUsesUnknown) {
		return nil, unknown
	}
	images := make([]Image, len(listed))
	for n, i := range listed {
		images[n] = describe(i)
	}
	at, read := newIndex(images), reading{}
	for _, use := range uses {
		for _, n := range at[read.key(use.Image)] {
			images[n].Users = append(images[n].Users, use.User)
		}
	}
	if c.cfg.Keep != nil {
		for name, why := range c.cfg.Keep() {
			for _, n := range at[key(name)] {
				images[n].Pinned = why
			}
		}
	}
	if unknown != nil {
		c.fillTimes(images, time.Now())
		return images, unknown
	}
	c.remember(images, at)
	return images, nil
}

const pinnedByRuntime = "pinned in the runtime"

func describe(i *runtimeapi.Image) Image {
	out := Image{ID: i.GetId(), Tags: i.GetRepoTags(), Digests: i.GetRepoDigests(), Size: i.GetSize()}
	if i.GetPinned() {
		out.Pinned = pinnedByRuntime
	}
	return out
}

// uses returns all uses of images: those of pods and those of holds.
func (c *Collector) uses(ctx context.Context) ([]Use, error) {
	uses, err := c.cfg.Users.InUse(ctx)
	if err != nil && !errors.Is(err, ErrUsesUnknown) {
		return nil, fmt.Errorf("find out which images are in use: %w", err)
	}
	return append(slices.Clip(uses), c.cfg.Guard.uses()...), err
}

// remember records which images exist and which are in use, and sets their times.
func (c *Collector) remember(images []Image, at index) {
	now := time.Now()
	seen := make([]sighting, len(images))
	for n := range images {
		seen[n] = sighting{id: images[n].ID, inUse: len(images[n].Users) > 0}
	}
	for k, used := range c.cfg.Guard.takeFound() {
		for _, n := range at[k] {
			if used.After(seen[n].used) {
				seen[n].used = used
			}
		}
	}
	c.mu.Lock()
	c.load(now)
	c.records.see(now, seen)
	c.mu.Unlock()
	c.fillTimes(images, now)
	c.save(now, false)
}

// fillTimes sets when the images were detected and last used.
func (c *Collector) fillTimes(images []Image, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load(now)
	for n := range images {
		rec := c.records.byID[images[n].ID]
		images[n].Detected, images[n].Used = rec.Detected, rec.Used
	}
}

// load reads the records on the first call. The caller holds the lock.
func (c *Collector) load(now time.Time) {
	if err := c.records.load(now); err != nil {
		c.cfg.Log.Error(err, "Images may seem to be in use for less long than they are")
	}
}

// save writes the records if that is due. last is true at the end of Run: then it also writes them if any image is in
// use.
func (c *Collector) save(now time.Time, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.records.due(now) && !(last && c.records.loaded && c.records.refused == nil && c.records.anyInUse()) {
		return
	}
	if err := c.records.save(now); err != nil {
		c.cfg.Log.Error(err, "After a restart images may seem older than they are")
	}
}

// disks measures the file systems that contain images. A file system with only containers' writable layers is
// skipped: removing images frees no space there (KEP-4191).
func (c *Collector) disks(ctx context.Context) ([]Disk, error) {
	info, err := c.cfg.Runtime.ImageFsInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("find out where images are kept: %w", err)
	}
	var disks []Disk
	var errs []error
	seen := map[string]bool{"": true}
	for _, fs := range info.GetImageFilesystems() {
		path := fs.GetFsId().GetMountpoint()
		if seen[path] {
			continue
		}
		seen[path] = true
		disk, err := c.cfg.Measure(path)
		switch {
		case err != nil:
			errs = append(errs, err)
		case disk.Capacity == 0:
			errs = append(errs, &reasonError{reason: pod.ReasonInvalidDiskCapacity,
				err: fmt.Errorf("invalid capacity 0 on the image file system at %s", path)})
		default:
			disks = append(disks, disk)
		}
	}
	if len(disks) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New(
			"the runtime doesn't say on which file system it keeps images: none can be removed for space"))
	}
	return disks, errors.Join(errs...)
}

// find returns the indexes of the images with this name or, if there are none, with an ID that starts with it.
func find(images []Image, name string) []int {
	if named := newIndex(images)[key(name)]; len(named) > 0 {
		return named
	}
	var begun []int
	for n := range images {
		if idPrefix(images[n].ID, strings.ToLower(name)) {
			begun = append(begun, n)
		}
	}
	return begun
}
