package manager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// stand is a plugin for tests: of hostPath volumes, whose path says which of its kinds they are.
type stand struct {
	root string // the root directory, for plugins that need it
	mu   sync.Mutex
	// calls are all there were, with the names of volumes.
	calls []string
	// fail says how a call fails, by "mount data".
	fail map[string]error
	// gates hold calls up until they are closed, whatever their contexts.
	gates map[string]chan struct{}
	// await is a call that goes on until its context ends.
	await string
	// entered is told of calls that are held up.
	entered chan string
}

func newStand() *stand {
	return &stand{fail: map[string]error{}, gates: map[string]chan struct{}{}, entered: make(chan string, 100)}
}

func (*stand) Name() string { return "test.example/stand" }

func (*stand) Supports(s volume.Spec) bool {
	return s.Persistent == nil && s.Volume.HostPath != nil && strings.HasPrefix(s.Volume.HostPath.Path, "stand:")
}

func (s *stand) call(what, name string) error {
	s.mu.Lock()
	call := what + " " + name
	s.calls = append(s.calls, call)
	gate, err := s.gates[call], s.fail[call]
	s.mu.Unlock()
	if gate != nil {
		s.entered <- call
		<-gate
	}
	return err
}

func (s *stand) setFail(call string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[call] = err
}

// hang holds a call up until the returned function is called, or the test ends.
func (s *stand) hang(t testing.TB, call string) (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gates[call] = gate
	resume = sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.gates, call)
		s.mu.Unlock()
		close(gate)
	})
	t.Cleanup(resume)
	return resume
}

func (s *stand) count(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if c == call {
			n++
		}
	}
	return n
}

// Mount binds a directory of its own there, for real.
func (s *stand) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if err := s.call("mount", r.Spec.Name()); err != nil {
		return volume.Mounted{}, err
	}
	if s.await == "mount "+r.Spec.Name() {
		<-ctx.Done()
		return volume.Mounted{}, ctx.Err()
	}
	return volume.Mounted{Path: r.Dir}, tmpfsAt(r.Dir)
}

// Unmount finds nothing that containers had of its parts.
func (s *stand) Unmount(_ context.Context, p volume.Place, _ volume.Say) error {
	parts := filepath.Join(p.Dir, "../../../volume-subpaths", filepath.Base(p.Dir))
	if _, err := os.Lstat(parts); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is there still: %w", parts, err)
	}
	return s.call("unmount", filepath.Base(p.Dir))
}

func tmpfsAt(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	var here, above unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &here), unix.Stat(dir+"/..", &above)); err != nil || here.Dev != above.Dev {
		return err
	}
	return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")
}

func detach(path string) { _ = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }
