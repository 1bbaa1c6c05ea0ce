package reset

import (
	"errors"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// killAll kills this agent's remaining processes: shims first, so that they neither start nor report anything, then
// the processes in containers.
func (t *resetter) killAll(f *found) error {
	shims, err := orphans.Shims(t.layout.Socket())
	if err != nil {
		return err
	}
	processes := make([]orphans.Process, 0, len(shims))
	for _, shim := range shims {
		f.containers[shim.ID] = true
		processes = append(processes, shim.Process)
	}
	errs := []error{orphans.Kill(processes), orphans.Kill(f.inits)}
	for _, dir := range t.podCgroups(f) {
		errs = append(errs, orphans.KillCgroup(dir))
	}
	return errors.Join(errs...)
}
