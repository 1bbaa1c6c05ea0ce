package podlogdirs

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	pathvalidation "k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/types"
)

// Pod is whose logs they are. A pod of which only logs are left is known by this much.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// Instance is whose log it is.
type Instance struct {
	// Container is the container's name.
	Container string
	// Attempt is the instance's number, from 0.
	Attempt int
	// ID is the runtime's.
	ID string
}

// Dir is the folder of a pod's logs.
func Dir(podLogsDir string, p Pod) string {
	return filepath.Join(podLogsDir, p.folder())
}

// LogPath is the path of an instance's log in the folder of its pod's logs.
func LogPath(container string, attempt int) string {
	return filepath.Join(container, strconv.Itoa(attempt)+logSuffix)
}

const logSuffix = ".log"

// separator parts namespace, name and UID, which can't have it themselves.
const separator = "_"

func (p Pod) folder() string {
	return strings.Join([]string{p.Namespace, p.Name, string(p.UID)}, separator)
}

func (p Pod) check() error {
	for what, name := range map[string]string{"namespace": p.Namespace, "pod name": p.Name, "pod UID": string(p.UID)} {
		if err := element(what, name); err != nil {
			return err
		}
	}
	return nil
}

// parsePod reads a folder's name.
func parsePod(folder string) (p Pod, ok bool) {
	parts := strings.Split(folder, separator)
	if len(parts) != 3 {
		return Pod{}, false
	}
	p = Pod{Namespace: parts[0], Name: parts[1], UID: types.UID(parts[2])}
	return p, p.check() == nil
}

// parseLog reads the attempt from the name of a log: N.log, or N.log.<time> and
// N.log.<time>.gz after rotation.
func parseLog(name string) (attempt int, ok bool) {
	number, rest, _ := strings.Cut(name, ".")
	if rest != "log" && !strings.HasPrefix(rest, "log.") {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 32)
	return int(n), err == nil && n < math.MaxInt32
}

// maxName is how long a file's name can be.
const maxName = 255

// linkName is what log shippers take namespace, pod and container from. As with
// the kubelet, one that is too long loses its end.
func linkName(p Pod, i Instance) string {
	name := p.Name + separator + p.Namespace + separator + i.Container + "-" + i.ID
	return name[:min(len(name), maxName-len(logSuffix))] + logSuffix
}

// element refuses what isn't exactly one element of a path.
func element(what, name string) error {
	if name == "" || len(pathvalidation.IsValidPathSegmentName(name)) > 0 {
		return fmt.Errorf("%s %q can't be part of a path", what, name)
	}
	return nil
}
