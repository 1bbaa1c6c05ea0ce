package choice

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Reason is why an image is removed. Space and Age are values of the label reason of
// kubelet_image_garbage_collected_total.
type Reason string

const (
	// Space: the disk is too full.
	Space Reason = "space"
	// Age: it wasn't used for longer than imageMaximumGCAge.
	Age Reason = "age"
	// Asked: a person asked for it.
	Asked Reason = "asked"
)

// Extent is how far a decision goes.
type Extent int

const (
	// Regular removes what the policy says: by thresholds and by age.
	Regular Extent = iota
	// Pressure removes every unused image that isn't younger than MinAge: the node is out
	// of disk space ("Node-pressure Eviction", reclaiming node level resources).
	Pressure
	// ByHand removes every unused image, for a person who asks for that.
	ByHand
)

// Facts is all that a decision depends on.
type Facts struct {
	Now    time.Time
	Extent Extent
	Policy Policy
	Images []Image
	// Disks are the file systems that hold images (CRI ImageFsInfo.image_filesystems). Those
	// that only hold what containers write (KEP-4191) aren't among them: no removal of
	// images makes room there.
	Disks []Disk
}

// Removal is an image that is to be removed.
type Removal struct {
	Image
	Reason Reason
	// Why is for a person.
	Why string
}

// Kept is an image that stays.
type Kept struct {
	Image
	// Why is for a person.
	Why string
}

// Plan is what follows from Facts.
type Plan struct {
	// Removals are in the order in which they are to be carried out.
	Removals []Removal
	// Spares come next, in order, where Removals give less than Missing: an image may
	// turn out to be in use, or a removal fail.
	Spares []Removal
	// Kept are the other images, least recently used first.
	Kept []Kept
	// Missing is how many bytes the thresholds ask for; 0 while no disk is too full.
	Missing uint64
	// Freed is what Removals give, as the runtime counts.
	Freed uint64
}

// Decide chooses. It doesn't change what Facts points to.
//
// Order and limits are those of "Garbage Collection: Container image lifecycle": the least
// recently used go first, then those detected first. Sizes are only an estimate of
// what a removal gives: whoever carries the plan out should look at the disk in between.
func Decide(f Facts) Plan {
	var p Plan
	var free []Image
	for _, image := range slices.SortedFunc(slices.Values(f.Images), byUse) {
		if why := f.keep(&image); why != "" {
			p.Kept = append(p.Kept, Kept{Image: image, Why: why})
		} else {
			free = append(free, image)
		}
	}
	switch f.Extent {
	case ByHand:
		p.removeAll(free, Asked, "unused, and asked for")
	case Pressure:
		p.removeAll(free, Space, "unused, and the node is short of disk space")
	default:
		p.regular(f, free)
	}
	slices.SortFunc(p.Kept, func(a, b Kept) int { return byUse(a.Image, b.Image) })
	return p
}

// keep says why an image stays whatever room there is; empty if it needn't.
func (f *Facts) keep(i *Image) string {
	switch {
	case len(i.Users) > 0:
		return "in use by " + ListUsers(i.Users)
	case i.Pinned != "":
		return i.Pinned
	case f.Extent != ByHand && f.since(i.Detected) < f.Policy.MinAge:
		return fmt.Sprintf("on this node for %s only: imageMinimumGCAge is %s", human(f.since(i.Detected)), human(f.Policy.MinAge))
	}
	return ""
}

// since is never negative: the clock may have been set back.
func (f *Facts) since(t time.Time) time.Duration { return max(f.Now.Sub(t), 0) }

func (p *Plan) removeAll(images []Image, r Reason, why string) {
	for i := range images {
		p.remove(&images[i], r, why)
	}
}

func (p *Plan) remove(i *Image, r Reason, why string) {
	p.Removals = append(p.Removals, Removal{Image: *i, Reason: r, Why: why})
	p.Freed += i.Size
}

// regular removes what is too old, then what the disk needs.
func (p *Plan) regular(f Facts, free []Image) {
	var rest []Image
	for i := range free {
		unused := f.since(free[i].unusedSince())
		if f.Policy.MaxAge > 0 && unused > f.Policy.MaxAge {
			p.remove(&free[i], Age, fmt.Sprintf("unused for %s: imageMaximumGCAge is %s", human(unused), human(f.Policy.MaxAge)))
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
			p.Kept = append(p.Kept, Kept{Image: rest[i], Why: why + ", but there is room for it"})
			continue
		}
		why = fmt.Sprintf("%d%% of the disk at %s is used (imageGCHighThresholdPercent is %d), and it was %s", disk.Used(), disk.Path, f.Policy.High, why)
		if p.Freed < p.Missing {
			p.remove(&rest[i], Space, why)
		} else {
			p.Spares = append(p.Spares, Removal{Image: rest[i], Reason: Space, Why: why})
		}
	}
}

func human(d time.Duration) string { return duration.HumanDuration(d) }
