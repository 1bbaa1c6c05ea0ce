package gc

import (
	"fmt"
	"math/bits"
	"time"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// Policy is the part of KubeletConfiguration about image garbage collection.
type Policy struct {
	// High and Low are imageGCHighThresholdPercent and imageGCLowThresholdPercent, 0 to 100: when the usage reaches
	// High, images are removed until it is at most Low. High 100 disables this.
	High, Low int
	// MinAge is imageMinimumGCAge: younger images are never collected.
	MinAge time.Duration
	// MaxAge is imageMaximumGCAge (KEP-4210): images that weren't used for longer are collected however full the disk
	// is; 0 disables this.
	MaxAge time.Duration
}

// PolicyOf returns the policy of a configuration.
func PolicyOf(k *v1beta1.KubeletConfiguration) Policy {
	return Policy{High: int(ptr.Deref(k.ImageGCHighThresholdPercent, 0)),
		Low:    int(ptr.Deref(k.ImageGCLowThresholdPercent, 0)),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration}
}

// StricterThan reports whether p may remove images that other doesn't.
func (p Policy) StricterThan(other Policy) bool {
	aged := p.MaxAge > 0 && (other.MaxAge == 0 || p.MaxAge < other.MaxAge)
	return aged || p.High < other.High || p.Low < other.Low || p.MinAge < other.MinAge
}

// Disk is a file system that contains images.
type Disk struct {
	// Path is the mount point of the file system, as the runtime reports it.
	Path string
	// Capacity and Available are in bytes. Available excludes blocks reserved for root.
	Capacity, Available uint64
}

// Used returns how much of the disk is in use, in percent, rounded up.
func (d Disk) Used() int {
	if d.Capacity == 0 || d.Available > d.Capacity {
		return 0
	}
	return 100 - int(part(d.Available, 100, d.Capacity))
}

// Full reports whether the usage of the disk has reached the high threshold.
func (p Policy) Full(d Disk) bool { return p.High < 100 && d.Used() >= p.High }

// Missing returns how many bytes have to be freed until the usage is at most Low.
func (p Policy) Missing(d Disk) uint64 {
	want := part(d.Capacity, uint64(min(max(100-p.Low, 0), 100)), 100)
	if d.Available >= want {
		return 0
	}
	return want - d.Available
}

// part returns n*of/whole, for of <= whole, without overflow.
func part(n, of, whole uint64) uint64 {
	hi, lo := bits.Mul64(n, of)
	q, _ := bits.Div64(hi, lo, whole)
	return q
}

// fullest returns the full disk with the largest Missing; ok is false if no disk is full.
func (p Policy) fullest(disks []Disk) (out Disk, ok bool) {
	for _, d := range disks {
		if p.Full(d) && (!ok || p.Missing(d) > p.Missing(out)) {
			out, ok = d, true
		}
	}
	return out, ok
}

// sizeText formats a number of bytes.
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
