package layout

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The endings of files that come from rotation, and the form of the time in their
// names: local, as the kubelet writes it.
const (
	compressedSuffix = ".gz"
	tempSuffix       = ".tmp"
	stampFormat      = "20060102-150405"
)

// Name is what the name of a file in a container's log directory says:
//
//	N.log                  what the runtime writes
//	N.log.STAMP            rotated away at that time
//	N.log.STAMP.gz         and compressed since
//	N.log.STAMP.tmp        being compressed
type Name struct {
	// Attempt counts the container's instances from 0.
	Attempt int
	// Stamp is empty for what the runtime writes. The stamps of an instance are in the order
	// of its rotations, and sort as text.
	Stamp string
	// Compressed and Temp are never both set.
	Compressed, Temp bool
}

// Current is the name of what an instance's runtime writes.
func Current(attempt int) Name { return Name{Attempt: attempt} }

// ParseName reads the name of a file, without its directory; false if it isn't one of the
// forms. String gives back what was read.
func ParseName(name string) (Name, bool) {
	number, rest, _ := strings.Cut(name, ".")
	attempt, ok := parseAttempt(number)
	if !ok {
		return Name{}, false
	}
	n := Name{Attempt: attempt}
	if rest == "log" {
		return n, true
	}
	stamp, ok := strings.CutPrefix(rest, "log.")
	if !ok {
		return Name{}, false
	}
	if stamp, n.Compressed = strings.CutSuffix(stamp, compressedSuffix); !n.Compressed {
		stamp, n.Temp = strings.CutSuffix(stamp, tempSuffix)
	}
	// Parse alone would also take fractions of a second.
	if _, err := time.Parse(stampFormat, stamp); err != nil || len(stamp) != len(stampFormat) {
		return Name{}, false
	}
	n.Stamp = stamp
	return n, true
}

// String is the file's name.
func (n Name) String() string {
	name := strconv.Itoa(n.Attempt) + Suffix
	switch {
	case n.Stamp == "":
		return name
	case n.Compressed:
		return name + "." + n.Stamp + compressedSuffix
	case n.Temp:
		return name + "." + n.Stamp + tempSuffix
	}
	return name + "." + n.Stamp
}

// In is the file's path below its pod's Directory.
func (n Name) In(container string) string { return filepath.Join(container, n.String()) }

// Compare orders the files of an instance by the age of what they hold, the oldest
// first; a file before what it is compressed to.
func (n Name) Compare(other Name) int {
	if n.Stamp == other.Stamp {
		return cmp.Compare(n.rank(), other.rank())
	}
	switch "" {
	case n.Stamp:
		return 1
	case other.Stamp:
		return -1
	}
	return cmp.Compare(n.Stamp, other.Stamp)
}

func (n Name) rank() int {
	switch {
	case n.Temp:
		return 1
	case n.Compressed:
		return 2
	}
	return 0
}

// NextStamp is the stamp for a rotation now, where newest is that of the rotation
// before, or empty. It comes after newest even in the same second, or if the clock was set
// back meanwhile: nothing is overwritten, and the order stays true.
func NextStamp(now time.Time, newest string) (string, error) {
	stamp := now.Format(stampFormat)
	if stamp > newest {
		return stamp, nil
	}
	last, err := time.Parse(stampFormat, newest)
	if err != nil {
		return "", fmt.Errorf("%q isn't the time of a rotation: %w", newest, err)
	}
	stamp = last.Add(time.Second).Format(stampFormat)
	if stamp <= newest {
		return "", fmt.Errorf("no time after %s can be part of a name", newest)
	}
	return stamp, nil
}
