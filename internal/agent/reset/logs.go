package reset

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// removeLogs removes the log directories of this agent's pods, NAMESPACE_NAME_UID, and the links to these logs.
func (t *resetter) removeLogs(f *found) error {
	var errs []error
	if t.config.PodLogs != "" {
		for _, name := range names(t.config.PodLogs) {
			if _, _, uid, ok := layout.ParseDir(name); ok && f.pods[string(uid)] {
				errs = append(errs, os.RemoveAll(filepath.Join(t.config.PodLogs, name)))
			}
		}
	}
	if t.config.ContainerLogs != "" && t.config.PodLogs != "" {
		errs = append(errs, t.removeLinks())
	}
	for _, dir := range []string{t.config.PodLogs, t.config.ContainerLogs} {
		if dir != "" {
			errs = append(errs, removeIfEmpty(dir))
		}
	}
	return errors.Join(errs...)
}

// removeLinks removes the links into the directory of pod logs whose target doesn't exist any more.
func (t *resetter) removeLinks() error {
	var errs []error
	for _, name := range names(t.config.ContainerLogs) {
		link := filepath.Join(t.config.ContainerLogs, name)
		target, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(target, filepath.Clean(t.config.PodLogs)+"/") {
			continue
		}
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}
