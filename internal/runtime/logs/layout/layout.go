// Package layout names the directories and files of container logs as the kubelet does, and the links to them that
// log shippers read:
//
//	/var/log/pods/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log
//	/var/log/containers/NAME_NAMESPACE_CONTAINER-ID.log -> the file above
//
// It parses such names, creates and removes directories and links (Dirs), and opens, lists, renames and removes the
// files in one container's directory (ContainerDir). Dirs checks that names are safe in paths; the functions that
// build names don't. The runtime writes the logs themselves.
package layout

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Suffix is the end of a log's name before it is rotated.
const Suffix = ".log"

// separator separates namespace, name and UID, which can't contain it.
const separator = "_"

// PodDirectory returns the name of the directory of a pod's logs, below the directory of all pods' logs.
func PodDirectory(namespace, name string, uid types.UID) string {
	return namespace + separator + name + separator + string(uid)
}

// ParseDir parses a directory's name; ok means that it has the form of PodDirectory's.
func ParseDir(directory string) (namespace, name string, uid types.UID, ok bool) {
	parts := strings.Split(directory, separator)
	if len(parts) != 3 {
		return "", "", "", false
	}
	return parts[0], parts[1], types.UID(parts[2]), true
}

// File returns the path of an instance's current log below its pod's directory. Attempt counts the container's
// instances from 0.
func File(container string, attempt int) string {
	return Current(attempt).In(container)
}

// ParseFile parses the name of a file in a container's log directory: N.log, or, with rotated true, N.log. followed
// by any suffix that a rotator has added. It returns the attempt N. ParseName accepts only the suffixes that the
// kubelet uses.
func ParseFile(name string) (attempt int, rotated, ok bool) {
	number, rest, _ := strings.Cut(name, ".")
	rotated = strings.HasPrefix(rest, "log.")
	if rest != "log" && !rotated {
		return 0, false, false
	}
	attempt, ok = parseAttempt(number)
	return attempt, ok && rotated, ok
}

func parseAttempt(number string) (int, bool) {
	n, err := strconv.ParseUint(number, 10, 31)
	// The next attempt has to be representable too, and no program writes 007.log.
	if err != nil || n == math.MaxInt32 || number != "0" && number[0] == '0' {
		return 0, false
	}
	return int(n), true
}
