package gc

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Reason is the reason for which an image is removed. Space and Age are values of the label reason of
// kubelet_image_garbage_collected_total.
type Reason string

const (
	// Space: the disk is too full.
	Space Reason = "space"
	// Age: the image wasn't used for longer than imageMaximumGCAge.
	Age Reason = "age"
	// Asked: a user requested it.
	Asked Reason = "asked"
)

// extent selects the images that a run may remove.
type extent int

const (
	// regularRun applies the policy's thresholds and maximum age.
	regularRun extent = iota
	// pressureRun removes every unused image that isn't younger than MinAge: the node is out of disk space
	// ("Node-pressure Eviction", reclaiming node level resources).
	pressureRun
	// byHandRun removes every unused image, at a user's request.
	byHandRun
)

// facts is the input of decide.
type facts struct {
	Now time.Time
	// Began is when the collector started; zero means long ago.
	Began  time.Time
	Extent extent
	Policy Policy
	Images []Image
	// Disks are the file systems that contain images (CRI ImageFsInfo.image_filesystems). File systems with only
	// containers' writable layers (KEP-4191) are excluded: removing images frees no space there.
	Disks []Disk
}

// Removal is an image to remove.
type Removal struct {
	Image
	Reason Reason
	// Why is a message for users.
	Why string
}

// Retained is an image that isn't removed.
type Retained struct {
	Image
	// Why is a message for users.
	Why string
}

// plan is the result of decide.
type plan struct {
	// Removals are the images to remove, in this order.
	Removals []Removal
	// Fallback are removed next, in order, if Removals free less than Missing: an image may turn out to be in use, or
	// its removal may fail.
	Fallback []Removal
	// Retained are the images to keep, least recently used first.
	Retained []Retained
	// Missing is how many bytes have to be freed to reach the low threshold; 0 if no disk is too full.
	Missing uint64
	// Freed is the total size of Removals, as the runtime counts it.
	Freed uint64
}

// decide chooses the images to remove. It doesn't modify its input.
//
// Order and limits are those of "Garbage Collection: Container image lifecycle": the least recently used images go
// first, then those detected first. Sizes only estimate the space that a removal frees: measure the disk between
// removals.
func decide(f facts) plan {
	var p plan
	var free []Image
	for _, image := range slices.SortedFunc(slices.Values(f.Images), byUse) {
		if why := f.reasonToKeep(&image); why != "" {
			p.Retained = append(p.Retained, Retained{Image: image, Why: why})
		} else {
			free = append(free, image)
		}
	}
	switch f.Extent {
	case byHandRun:
		p.removeAll(free, Asked, "unused, and asked for")
	case pressureRun:
		p.removeAll(free, Space, "unused, and the node is short of disk space")
	default:
		p.regular(f, free)
	}
	slices.SortFunc(p.Retained, func(a, b Retained) int { return byUse(a.Image, b.Image) })
	return p
}

// reasonToKeep returns why an image must stay however full the disk is, or "" if it may be removed.
func (f *facts) reasonToKeep(i *Image) string {
	switch {
	case len(i.Users) > 0:
		return "in use by " + listUsers(i.Users)
	case i.Pinned != "":
		return i.Pinned
	case f.Extent != byHandRun && f.since(i.Detected) < f.Policy.MinAge:
		return fmt.Sprintf("on this node for %s only: imageMinimumGCAge is %s", human(f.since(i.Detected)),
			human(f.Policy.MinAge))
	}
	return ""
}

// since returns the time since t, at least 0: the clock may have been set back.
func (f *facts) since(t time.Time) time.Duration { return max(f.Now.Sub(t), 0) }

func (p *plan) removeAll(images []Image, r Reason, why string) {
	for i := range images {
		p.remove(&images[i], r, why)
	}
}

func (p *plan) remove(i *Image, r Reason, why string) {
	p.Removals = append(p.Removals, Removal{Image: *i, Reason: r, Why: why})
	p.Freed += i.Size
}

// settling is how long after its start the collector doesn't yet remove images for their age. If MaxAge is shorter,
// it counts instead. Ages survive restarts, unlike the kubelet's ("If the kubelet is restarted, the tracked image age
// is reset", Kubernetes' page on garbage collection). So, when a node was off for long, old images stay until the
// pods that use them have arrived.
const settling = time.Hour

// regular removes the images that are too old, and then images to free space.
func (p *plan) regular(f facts, free []Image) {
	var rest []Image
	settled := f.Policy.MaxAge > 0 && f.since(f.Began) >= min(settling, f.Policy.MaxAge)
	for i := range free {
		unused := f.since(free[i].unusedSince())
		if settled && unused > f.Policy.MaxAge {
			p.remove(&free[i], Age, fmt.Sprintf("unused for %s: imageMaximumGCAge is %s", human(unused),
				human(f.Policy.MaxAge)))
		} else {
			rest = append(rest, free[i])
		}
	}
	disk, full := f.Policy.fullest(f.Disks)
	if full {
		p.Missing = f.Policy.Missing(disk)
	}
	for i := range rest {
		why := fmt.Sprintf("unused for %s", human(f.since(rest[i].unusedSince())))
		if !full {
			if unused := f.since(rest[i].unusedSince()); f.Policy.MaxAge > 0 && unused > f.Policy.MaxAge {
				why += ", but the agent has just started"
			} else {
				why += ", but the disk has space for it"
			}
			p.Retained = append(p.Retained, Retained{Image: rest[i], Why: why})
			continue
		}
		why = fmt.Sprintf("%d%% of the disk at %s is used (imageGCHighThresholdPercent is %d), and it was %s",
			disk.Used(), disk.Path, f.Policy.High, why)
		if p.Freed < p.Missing {
			p.remove(&rest[i], Space, why)
		} else {
			p.Fallback = append(p.Fallback, Removal{Image: rest[i], Reason: Space, Why: why})
		}
	}
}

func human(d time.Duration) string { return duration.HumanDuration(d) }
