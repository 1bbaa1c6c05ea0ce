package reset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
)

// removeNetwork removes the pods' port mappings and interfaces, the bridge, the rules for masquerading and for the
// protection of loopback addresses, and the cached results of the CNI library.
func (t *resetter) removeNetwork(ctx context.Context, f *found) error {
	var errs []error
	left := t.attached(f)
	if len(left) > 0 {
		errs = append(errs, t.unmapPorts(ctx, left))
	}
	errs = append(errs, cni.RemoveEmptyPortmap(ctx), t.network.ForgetResults())
	if err := t.network.RemoveBridge(); err != nil {
		// The rules that protect the host's loopback addresses aren't removed, because pods may still be attached to
		// the network.
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, t.network.RemoveRules(ctx))...)
}

// attached returns the sandboxes with a network teardown that isn't complete: they still own a reserved address or a
// cached CNI result.
func (t *resetter) attached(f *found) []string {
	ids := map[string]bool{}
	dir := filepath.Join(t.layout.CNIState(), t.network.Bridge)
	for _, address := range names(dir) {
		text, err := os.ReadFile(filepath.Join(dir, address))
		id := strings.TrimSpace(strings.SplitN(string(text), "\n", 2)[0])
		if err == nil && f.containers[id] {
			ids[id] = true
		}
	}
	for _, id := range t.network.Remembered() {
		ids[id] = true
	}
	return slices.Collect(maps.Keys(ids))
}

func (t *resetter) unmapPorts(ctx context.Context, sandboxes []string) error {
	// A missing containerd or runc doesn't matter here; a missing plugin does.
	programs, err := embedded.FindPrograms(t.config.Runtime.BinDirs)
	portmap := programs.Plugin("portmap")
	if portmap == "" {
		return fmt.Errorf("port mappings of %d pods may be left: %w", len(sandboxes), err)
	}
	backend, err := cni.Detect(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range sandboxes {
		errs = append(errs, t.network.UnmapPorts(ctx, portmap, backend, id))
	}
	return errors.Join(errs...)
}
