package layout

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The suffixes of rotated files, and the format of the timestamps in their names: local time, as the kubelet's.
const (
	compressedSuffix = ".gz"
	tempSuffix       = ".tmp"
	stampFormat      = "20060102-150405"
)

// Name is the parsed name of a file in a container's log directory:
//
//	N.log                  the current log
//	N.log.STAMP            rotated at that time
//	N.log.STAMP.gz         rotated and compressed
//	N.log.STAMP.tmp        being compressed
type Name struct {
	// Attempt counts the container's instances from 0.
	Attempt int
	// Stamp is the time of the rotation, empty for the current log. For one instance, the alphabetical order of
	// stamps is the order of its rotations.
	Stamp string
	// Compressed and Temp are never both set.
	Compressed, Temp bool
}

// Current returns the name of an instance's current log.
func Current(attempt int) Name { return Name{Attempt: attempt} }

// ParseName parses a file's base name; false if it has none of the forms. String is its inverse.
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
	// Parse alone would also accept fractions of a second.
	if _, err := time.Parse(stampFormat, stamp); err != nil || len(stamp) != len(stampFormat) {
		return Name{}, false
	}
	n.Stamp = stamp
	return n, true
}

// String returns the file's name.
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

// In returns the file's path below its pod's directory.
func (n Name) In(container string) string { return filepath.Join(container, n.String()) }

// Compare orders the files of an instance by the age of their content, oldest first; a file before its compressed
// version.
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

// NextStamp returns the timestamp for a rotation at the time now. newest is the timestamp of the previous rotation,
// or empty. The result is later than newest, even if both rotations happen in the same second or the clock was set
// back. So no file is overwritten, and the order of the rotations is kept.
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
