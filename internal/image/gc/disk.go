package gc

import (
	"fmt"
	"math/bits"
	"time"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// Policy is what KubeletConfiguration says about images.
type Policy struct {
	// High and Low are imageGCHighThresholdPercent and imageGCLowThresholdPercent, 0 to
	// 100: from High on images are removed until no more than Low is used. High 100
	// means that images are never removed for space.
	High, Low int
	// MinAge is imageMinimumGCAge: a younger image is never collected.
	MinAge time.Duration
	// MaxAge is imageMaximumGCAge (KEP-4210): an image not used for longer is collected
	// however full the disk is; 0 for never.
	MaxAge time.Duration
}

// PolicyOf returns the policy of a configuration.
func PolicyOf(k *v1beta1.KubeletConfiguration) Policy {
	return Policy{High: int(ptr.Deref(k.ImageGCHighThresholdPercent, 0)),
		Low:    int(ptr.Deref(k.ImageGCLowThresholdPercent, 0)),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration}
}

// StricterThan reports whether there may be images that are to go now and weren't by the
// other policy.
func (p Policy) StricterThan(other Policy) bool {
	aged := p.MaxAge > 0 && (other.MaxAge == 0 || p.MaxAge < other.MaxAge)
	return aged || p.High < other.High || p.Low < other.Low || p.MinAge < other.MinAge
}

// Disk is a file system that holds images.
type Disk struct {
	// Path is where it is, as the runtime says.
	Path string
	// Capacity and Available are in bytes. What only root may use isn't available.
	Capacity, Available uint64
}

// Used is how much of the disk is used, in percent, rounded up.
func (d Disk) Used() int {
	if d.Capacity == 0 || d.Available > d.Capacity {
		return 0
	}
	return 100 - int(part(d.Available, 100, d.Capacity))
}

// Full reports whether so much is used that images have to be removed.
func (p Policy) Full(d Disk) bool { return p.High < 100 && d.Used() >= p.High }

// Missing is how many bytes more have to be available until no more than Low is used.
func (p Policy) Missing(d Disk) uint64 {
	want := part(d.Capacity, uint64(min(max(100-p.Low, 0), 100)), 100)
	if d.Available >= want {
		return 0
	}
	return want - d.Available
}

// part is n*of/whole, for of <= whole, without overflow.
func part(n, of, whole uint64) uint64 {
	hi, lo := bits.Mul64(n, of)
	q, _ := bits.Div64(hi, lo, whole)
	return q
}

// fullest returns the disk that misses most of those that are full; ok is false if none is.
func (p Policy) fullest(disks []Disk) (out Disk, ok bool) {
	for _, d := range disks {
		if p.Full(d) && (!ok || p.Missing(d) > p.Missing(out)) {
			out, ok = d, true
		}
	}
	return out, ok
}

// sizeText writes a number of bytes for a person.
func sizeText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for value >= 1023.95 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
