// Package layout names the directories and files of container logs, as the kubelet does, and the
// links to them that log shippers read:
//
//	/var/log/pods/NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log
//	/var/log/containers/NAME_NAMESPACE_CONTAINER-ID.log -> the file above
//
// It takes such names apart, makes and removes directories and links (Dirs), and opens, lists,
// renames and removes the files in one container's directory (Directory). Dirs checks that names are
// safe to be part of a path; the functions that make names don't. The runtime writes the logs
// themselves.
package layout

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Suffix is what a log's name ends with before it is rotated.
const Suffix = ".log"

// separator parts namespace, name and UID, which can't have it themselves.
const separator = "_"

// PodDirectory is the name of the directory of a pod's logs, below the directory of all pods' logs.
func PodDirectory(namespace, name string, uid types.UID) string {
	return namespace + separator + name + separator + string(uid)
}

// ParseDir takes a directory's name apart; ok says that it has the form of Directory's.
func ParseDir(directory string) (namespace, name string, uid types.UID, ok bool) {
	parts := strings.Split(directory, separator)
	if len(parts) != 3 {
		return "", "", "", false
	}
	return parts[0], parts[1], types.UID(parts[2]), true
}

// File is the log that an instance of a container is writing, below its pod's
// Directory. Attempt counts the container's instances from 0.
func File(container string, attempt int) string {
	return Current(attempt).In(container)
}

// ParseFile reads the attempt from the name of whatever belongs to an instance's log
// in its container's directory: N.log, and N.log. with anything that rotation, whoever
// does it, has put behind it. ParseName is strict.
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
	// The next attempt has to have a number too, and nobody writes 007.log.
	if err != nil || n == math.MaxInt32 || number != "0" && number[0] == '0' {
		return 0, false
	}
	return int(n), true
}
