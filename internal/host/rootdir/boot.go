package rootdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// bootID matches the ID that the kernel gives a boot: a random UUID (random(4)).
var bootID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// ForgetEarlierBoot removes state that is invalid after a reboot of the host: containerd's state, the shims' sockets
// and the pods' reserved addresses. It reports whether the host was rebooted since the state was written. Other
// programs keep such state in /run, which a reboot clears; our state is under Root so that one directory has
// everything. inUse means that running processes use the state: then it is from this boot, even if the boot's ID has
// changed.
func (l Runtime) ForgetEarlierBoot(inUse bool) (bool, error) {
	id, err := kernel.BootID("/")
	if err != nil {
		return false, err
	}
	return l.forgetUnless(id, inUse)
}

func (l Runtime) forgetUnless(boot string, inUse bool) (bool, error) {
	known, err := os.ReadFile(l.BootID())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if string(known) == boot {
		return false, nil
	}
	// Without a valid record of the boot, the state may be from this boot, with containers mounted in it.
	rebooted := bootID.Match(known) && !inUse
	if rebooted {
		for _, dir := range []string{l.State(), l.CNIState(), l.Run()} {
			if err := empty(dir); err != nil {
				return false, fmt.Errorf("forget the state of an earlier boot: %w", err)
			}
		}
		if err := l.Make(); err != nil {
			return false, err
		}
	}
	err = atomicfile.Write(l.BootID(), []byte(boot), 0o600)
	switch {
	case !atomicfile.DiskFull(err):
		return rebooted, err
	case !bootID.Match(known):
		return false, nil // the next agent also finds no valid record, and removes nothing
	}
	return rebooted, overwrite(l.BootID(), boot)
}

// overwrite replaces the content of a file by one of the same length, which needs no space on the disk.
func overwrite(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), 0)
	return errors.Join(err, f.Sync(), f.Close())
}

// empty removes the content of dir. Nothing is mounted there, because the host was rebooted.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
