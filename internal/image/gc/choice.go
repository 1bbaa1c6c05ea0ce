package gc

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

// extent is how far a decision goes.
type extent int

const (
	// regularRun removes what the policy says: by thresholds and by age.
	regularRun extent = iota
	// pressureRun removes every unused image that isn't younger than MinAge: the node is out
	// of disk space ("Node-pressure Eviction", reclaiming node level resources).
	pressureRun
	// byHandRun removes every unused image, for a person who asks for that.
	byHandRun
)

// facts is all that a decision depends on.
type facts struct {
	Now time.Time
	// Began is when the collector began to look; zero for long ago.
	Began  time.Time
	Extent extent
	Policy Policy
	Images []Image
	// Disks are the file systems that hold images (CRI ImageFsInfo.image_filesystems). Those
	// that only hold what containers write (KEP-4191) aren't among them: no removal of
	// images frees space there.
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

// plan is what follows from facts.
type plan struct {
	// Removals are in the order in which they are to be carried out.
	Removals []Removal
	// Fallback are removed next, in order, where Removals free less than Missing: an image may
	// turn out to be in use, or a removal fail.
	Fallback []Removal
	// Kept are the other images, least recently used first.
	Kept []Kept
	// Missing is how many bytes the thresholds ask for; 0 while no disk is too full.
	Missing uint64
	// Freed is what Removals give, as the runtime counts.
	Freed uint64
}

// decide chooses. It doesn't change what facts points to.
//
// Order and limits are those of "Garbage Collection: Container image lifecycle": the least
// recently used go first, then those detected first. Sizes are only an estimate of
// what a removal gives: whoever carries the plan out should look at the disk in between.
func decide(f facts) plan {
	var p plan
	var free []Image
	for _, image := range slices.SortedFunc(slices.Values(f.Images), byUse) {
		if why := f.reasonToKeep(&image); why != "" {
			p.Kept = append(p.Kept, Kept{Image: image, Why: why})
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
	slices.SortFunc(p.Kept, func(a, b Kept) int { return byUse(a.Image, b.Image) })
	return p
}

// reasonToKeep says why an image stays however full the disk is; empty if it needn't.
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

// since is never negative: the clock may have been set back.
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

// settling is for how long after its start the collector removes no image for its age; MaxAge, if that is shorter. Ages
// survive restarts, unlike the kubelet's ("If the kubelet is restarted, the tracked image age is reset", Kubernetes'
// page on garbage collection); but a node that was off for long gets the pods that use its images a little after its
// start.
const settling = time.Hour

// regular removes what is too old, then what the disk needs.
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
			p.Kept = append(p.Kept, Kept{Image: rest[i], Why: why})
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
