package takedown

import (
	"errors"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/remains"
)

// killAll kills what still runs of ours: shims first, so that they start nothing
// and report to nobody, then what is in the containers.
func (t *taker) killAll(f *found) error {
	shims, err := remains.Shims(t.layout.Socket())
	if err != nil {
		return err
	}
	processes := make([]remains.Process, 0, len(shims))
	for _, shim := range shims {
		f.containers[shim.ID] = true
		processes = append(processes, shim.Process)
	}
	errs := []error{remains.Kill(processes), remains.Kill(f.inits)}
	for _, dir := range t.podCgroups(f) {
		errs = append(errs, remains.KillCgroup(dir))
	}
	return errors.Join(errs...)
}
