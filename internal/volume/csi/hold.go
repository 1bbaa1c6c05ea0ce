package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// holding describes a volume that a driver has to hold at a place, which is the entry called name of the directory dir.
// The volume's record is in dir as well.
type holding struct {
	dir, name, driver string
	// used says that pods use the volume at this place.
	used bool
	// again says that the driver is called even if it already holds the volume. Whatever the result of this call is,
	// the driver still holds the volume afterwards.
	again bool
	// method is the call's gRPC name. say receives the reason for which the call waits.
	method string
	say    volume.Say
	// call returns the record for the place, and the function that calls this registration of the driver; the function
	// is nil if the driver doesn't support the call.
	call func(by *registration) (want record, call func(context.Context) error, err error)
	// release undoes the call.
	release func(context.Context) error
}

// acquire decides on the next step and, if the step is a call, writes the record and calls the driver.
func (p Plugin) acquire(ctx context.Context, h holding) error {
	for {
		first := keep
		err := p.drivers.call(ctx, h.driver, h.method, h.say, func(ctx context.Context, by *registration) error {
			want, call, err := h.call(by)
			if err != nil || call == nil {
				return err
			}
			f := p.find(h.dir, h.name, h.used)
			switch first = f.next(want, p.drivers.conf.BootID); {
			case first == blocked:
				return fmt.Errorf("CSI driver %s: the volume was detached and attached again while pods use it: they "+
					"have to end first", h.driver)
			case first == undo || first == keep && !h.again:
				p.drivers.note(h.dir, h.driver)
				return nil
			}
			stays := h.again && f.err == nil && f.had.same(want) && f.had.certain() &&
				(f.had[keyBoot] == "" || f.had[keyBoot] == p.drivers.conf.BootID)
			if other := f.had[keyElsewhere]; other != "" {
				want[keyElsewhere] = other // it still counts if the call is refused
			}
			if !stays {
				if err := want.create(h.dir, p.drivers.conf.BootID); err != nil {
					return err
				}
			}
			p.drivers.note(h.dir, h.driver)
			if err := call(ctx); err != nil {
				return err
			}
			if boot := p.drivers.conf.BootID; !stays || f.had[keyBoot] != boot {
				if err := want.succeed(h.dir, boot); err != nil {
					return err
				}
			}
			p.drivers.setUncertain(h.dir, false)
			return nil
		})
		switch {
		case first == begin && refused(err):
			return errors.Join(err, p.released(ctx, h.dir, h.name))
		case err != nil || first != undo:
			return err
		}
		err = h.release(ctx)
		if _, is := errors.AsType[*mountedElsewhere](err); err != nil && !is { // it can be staged again all the same
			return err
		}
	}
}

// releasing describes a volume that a driver has to release at a place, which is the entry called name of the directory
// dir. The volume's record is in dir as well.
type releasing struct {
	dir, name string
	// recovered replaces a record that can't be read; it is nil if the manager has no record of the volume either.
	recovered record
	// method is the call's gRPC name. say receives the reason for which the call waits. argument is the volume's name
	// as an argument of `deckhand volumes forget`.
	method, argument string
	say              volume.Say
	call             func(ctx context.Context, by *registration, had record, path string) error
}

// unreachableRetry is the delay after a call that didn't reach the driver, although the driver's socket exists.
const unreachableRetry = 10 * time.Second

// release lets the driver release the volume that the record names, and removes the directory's content. Without a
// record, no driver holds the volume.
func (p Plugin) release(ctx context.Context, r releasing) error {
	had, err := readRecord(r.dir)
	path, torn := filepath.Join(r.dir, r.name), false
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && r.recovered == nil:
		return fmt.Errorf("%w; without it, no driver can be asked to release the volume: see that none holds it, and "+
			"run `deckhand volumes forget %s`", err, bounded(r.argument))
	case err != nil:
		p.drivers.conf.Log.Info("A CSI volume is released without its record, which can't be used", "err", err)
		had, torn = r.recovered, true
	}
	if had[keyUncertain] == released && !isMount(r.dir, r.name) {
		return p.released(ctx, r.dir, r.name)
	}
	driver := had[keyDriver]
	p.drivers.note(r.dir, driver)
	err = p.drivers.call(ctx, driver, r.method, r.say, func(ctx context.Context, by *registration) error {
		if !torn { // an unreadable record is left alone: a volume with such a record isn't used without another call
			// On a full disk, the record can't be written, but volumes are released all the same.
			err := p.beginRelease(r, had)
			if err != nil && !atomicfile.DiskFails(err) {
				return err
			}
		}
		p.drivers.setUncertain(r.dir, true) // this also covers an unreadable record that becomes readable later
		err := r.call(ctx, by, had, path)
		if failed, ok := errors.AsType[*callError](err); ok && failed.code == codes.Unavailable && !by.reachable(ctx) {
			// The driver may come back at the same socket without registering again, so the retry needs a time.
			return &volume.AwaitsError{Object: awaited(driver), Err: err, NotBefore: time.Now().Add(unreachableRetry)}
		}
		return err
	})
	if awaits, ok := errors.AsType[*volume.AwaitsError](err); ok {
		return &volume.AwaitsError{Object: awaits.Object, NotBefore: awaits.NotBefore,
			Err: fmt.Errorf("%w: if it never comes back, run `deckhand volumes forget %s`", awaits.Err,
				bounded(r.argument))}
	}
	if err != nil {
		return err
	}
	if isMount(r.dir, r.name) {
		p.drivers.conf.Log.Info("A CSI volume is still mounted after its driver has released it; it is unmounted now",
			"plugin", driver, "path", path)
	}
	return p.released(ctx, r.dir, r.name)
}

// released does what forget does after the driver has released the volume, unless its device is still mounted
// elsewhere. The error is a *mountedElsewhere then.
func (p Plugin) released(ctx context.Context, dir, name string) error {
	if err := teardown.Remove(ctx, dir, name); err != nil {
		return err
	}
	if name == stageName {
		if err := p.stillElsewhere(dir); err != nil {
			return err
		}
	}
	return p.drop(dir)
}

// Forget implements volume.Forgetter. The driver may still hold the volume: it isn't called.
func (p Plugin) Forget(ctx context.Context, dir string, staged bool) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if staged {
		if had, err := readRecord(dir); err == nil {
			p.drivers.forgetAttachment(deviceKey(had[keyDriver], had[keyHandle]))
		}
		return p.forget(ctx, dir, stageName)
	}
	return p.forget(ctx, dir, targetName)
}

// forget removes the record and the directory of a volume that no driver holds at this place any more.
func (p Plugin) forget(ctx context.Context, dir, name string) error {
	if err := teardown.Remove(ctx, dir, name); err != nil {
		return err
	}
	return p.drop(dir)
}

// drop removes the record of a volume that isn't there any more.
func (p Plugin) drop(dir string) error {
	if err := removeRecord(dir); err != nil {
		return err
	}
	p.drivers.note(dir, "")
	return nil
}

// find returns the state of a place. It removes the files that an interrupted write of the record has left: a kubelet
// that takes over can't remove a directory with other files in it.
func (p Plugin) find(dir, name string, used bool) found {
	checkpoint.Sweep(filepath.Join(dir, recordName))
	had, err := p.read(dir)
	return found{had: had, err: err, mounted: isMount(dir, name), used: used, shared: name == stageName}
}

// read reads a record like readRecord. If a release has begun, the record says so even if it couldn't be written.
func (p Plugin) read(dir string) (record, error) {
	had, err := readRecord(dir)
	if err == nil && p.drivers.isUncertain(dir) {
		had[keyUncertain] = uncertain
	}
	return had, err
}

// isMount reports whether something is mounted at a place. It doesn't access the mounted file system.
func isMount(dir, name string) bool {
	above, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer above.Close()
	target, err := safeopen.OpenNoLinks(above, name, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer target.Close()
	here, err := safeopen.MountID(above)
	if err != nil {
		return false
	}
	there, err := safeopen.MountID(target)
	return err == nil && here != there
}
