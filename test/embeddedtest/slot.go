package embeddedtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// slots is how many instances one host can have at a time.
const slots = 200

// slot is a number that one instance holds: bridge, pod CIDR and cgroup follow
// from it, so instances in parallel tests don't meet. A lock holds it, which the
// kernel drops with the process; the file in it says what to clean up then.
type slot struct {
	number int
	file   *os.File
}

func (s slot) bridge() string { return fmt.Sprintf("dhtest%d", s.number) }
func (s slot) cidr() string   { return fmt.Sprintf("10.214.%d.0/24", s.number) }
func (s slot) cgroup() string { return fmt.Sprintf("/deckhand-test-%d", s.number) }

// takeSlot takes a free slot, and takes down what a killed test left in it.
func takeSlot(root string) (slot, error) {
	for n := range slots {
		f, err := lockFile(filepath.Join(os.TempDir(), "deckhand-test-slot-"+strconv.Itoa(n)), false)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return slot{}, err
		}
		s := slot{n, f}
		if err := s.cleanLeft(); err != nil {
			return slot{}, errors.Join(fmt.Errorf("clean up after an earlier test: %w", err), f.Close())
		}
		return s, s.record(root)
	}
	return slot{}, errors.New("all slots for test instances are taken")
}

func (s slot) record(root string) error {
	text, err := json.Marshal(root)
	if err != nil {
		return err
	}
	if err := s.file.Truncate(0); err != nil {
		return err
	}
	_, err = s.file.WriteAt(text, 0)
	return err
}

func (s slot) cleanLeft() error {
	text, err := os.ReadFile(s.file.Name())
	if err != nil || len(text) == 0 {
		return err
	}
	var root string
	if err := json.Unmarshal(text, &root); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = reset.Run(ctx, reset.Config{
		Runtime:    embedded.Config{RootDir: filepath.Join(root, "root"), Bridge: s.bridge(), PodCIDR: s.cidr()},
		CgroupRoot: s.cgroup(),
	}, logr.Discard())
	return errors.Join(err, os.RemoveAll(root))
}

// release frees the slot. The file stays: removing it would race with its next holder.
func (s slot) release() error {
	return errors.Join(s.file.Truncate(0), s.file.Close())
}

// lockFile opens and locks a file until it is closed.
func lockFile(path string, wait bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
	}
}
