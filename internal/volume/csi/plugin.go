package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// Plugin is the volume plugin for volumes of CSI drivers.
type Plugin struct {
	drivers *Drivers
	// devices is the directory of staged volumes.
	devices string
}

var (
	_ volume.Live      = Plugin{}
	_ volume.Checker   = Plugin{}
	_ volume.Unmounter = Plugin{}
	_ volume.Stager    = Plugin{}
)

// NewPlugin returns the plugin for volumes of these drivers. They are staged below the agent's root directory.
func NewPlugin(d *Drivers, rootDir string) Plugin {
	return Plugin{d, filepath.Join(rootDir, "plugins", Plugin{}.Name())}
}

// Name is the plugin's name.
func (Plugin) Name() string { return "kubernetes.io/csi" }

// Supports reports whether the volume is one of a CSI driver.
func (Plugin) Supports(s volume.Spec) bool {
	if s.Persistent != nil {
		return s.Persistent.Spec.CSI != nil
	}
	return s.Volume.CSI != nil
}

// Check refuses a driver with a name that no driver can have.
func (Plugin) Check(p *v1.Pod, s volume.Spec) error {
	of, err := sourceOf(p, s)
	if err == nil && !validName(of.driver) {
		err = fmt.Errorf("the CSI driver %q is %w: its name has to be a domain name of at most 63 characters",
			bounded(of.driver), volume.ErrUnsupported)
	}
	return err
}

// Mount lets the driver publish the volume. If containers use a published volume, the driver isn't called: it may be
// away. After an error that leaves it uncertain whether the driver holds the volume, the record stays, so that the
// volume is published again or unpublished.
func (p Plugin) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if err := ctx.Err(); err != nil {
		return volume.Mounted{}, err
	}
	s, err := sourceOf(r.Pod, r.Spec)
	if err != nil {
		return volume.Mounted{}, err
	}
	mounted := volume.Mounted{Path: filepath.Join(r.Dir, targetName), ReadOnly: s.readOnly}
	f := find(r.Dir, targetName, r.InUse)
	first := f.next(s.record(r.Pod.Spec.NodeName), p.drivers.conf.BootID)
	switch {
	case first == keep && r.InUse:
		p.drivers.note(r.Dir, f.had[keyDriver])
		return mounted, nil
	case first == keep:
		first = repeat
	case first == undo: // the directory is that of another PersistentVolume of this name
		if err := p.Unmount(ctx, r.Place, r.Say); err != nil {
			return volume.Mounted{}, err
		}
		first = begin
	}
	g, err := gather(ctx, r)
	if err != nil {
		return volume.Mounted{}, err
	}
	mountsGroup, err := p.publish(ctx, r, &g, first)
	if err != nil {
		return volume.Mounted{}, err
	}
	mounted.Ownership = !mountsGroup && s.ownership(ptr.Deref(g.object.Spec.FSGroupPolicy, ""))
	return mounted, nil
}

// Refresh publishes the volume again if its driver wants that (API: CSIDriverSpec.requiresRepublish). An error changes
// nothing about the volume.
func (p Plugin) Refresh(ctx context.Context, r volume.Request) (changed bool, err error) {
	s, err := sourceOf(r.Pod, r.Spec)
	if err != nil {
		return false, err
	}
	// Without the object nothing says that the driver wants it.
	d, err := r.Objects.CSIDriver(ctx, s.driver)
	if err != nil || !ptr.Deref(d.Spec.RequiresRepublish, false) {
		return false, nil
	}
	g, err := gather(ctx, r)
	if err != nil {
		return false, err
	}
	_, err = p.publish(ctx, r, &g, repeat)
	return false, err
}

// publish writes the volume's record and calls the driver, as a begin or a repeat. mountsGroup says that the driver
// applies the fsGroup itself.
func (p Plugin) publish(ctx context.Context, r volume.Request, g *publishing, as step) (mountsGroup bool, err error) {
	target := filepath.Join(r.Dir, targetName)
	const method = spec.Node_NodePublishVolume_FullMethodName
	err = p.drivers.call(ctx, g.source.driver, method, r.Say, func(ctx context.Context, by *registration) error {
		mountsGroup = by.mountsGroup
		q := &spec.NodePublishVolumeRequest{VolumeId: g.handle, TargetPath: target, Readonly: g.readOnly,
			VolumeContext: g.context, Secrets: g.secrets, VolumeCapability: g.capability(r.Pod, by)}
		if by.stages && !g.inline() {
			dir := p.device(&g.source)
			// It may have become a driver that stages volumes.
			if staged, err := readRecord(dir); err != nil || !staged.certain() {
				return fmt.Errorf("CSI driver %s: the volume isn't staged", g.source.driver)
			}
			q.StagingTargetPath = filepath.Join(dir, stageName)
		}
		note := g.record(r.Pod.Spec.NodeName)
		had, err := readRecord(r.Dir)
		// A published volume stays published whatever becomes of another call.
		published := err == nil && had.same(note) && had.certain()
		if !published {
			if err := note.create(r.Dir); err != nil {
				return err
			}
		}
		p.drivers.note(r.Dir, g.source.driver)
		if err := p.drivers.measure(g.source.driver, method, g.hidden, func() error {
			_, err := spec.NewNodeClient(by.conn).NodePublishVolume(ctx, q)
			return err
		}); err != nil {
			return err
		}
		if boot := p.drivers.conf.BootID; !published || had[keyBoot] != boot {
			return note.succeed(r.Dir, boot)
		}
		return nil
	})
	switch {
	case as == begin && refused(err):
		return false, errors.Join(err, p.forget(ctx, r.Dir, targetName))
	case err != nil:
		return false, err
	}
	if st, e := os.Lstat(target); e != nil || !st.IsDir() {
		return false, fmt.Errorf("CSI driver %s: NodePublishVolume succeeded, but %s isn't a directory: this is a "+
			"fault of the driver", g.source.driver, target)
	}
	return mountsGroup, nil
}

// forget removes the record and the directory of a volume that no driver holds at this place any more.
func (p Plugin) forget(ctx context.Context, dir, place string) error {
	if err := teardown.Remove(ctx, dir, place); err != nil {
		return err
	}
	if err := removeRecord(dir); err != nil {
		return err
	}
	p.drivers.note(dir, "")
	return nil
}

// Unmount lets the driver unpublish the volume that the record names, whether it is mounted or not: the driver may
// hold it all the same. Without a record, no driver holds the volume.
func (p Plugin) Unmount(ctx context.Context, at volume.Place, say volume.Say) error {
	return p.release(ctx, at.Dir, targetName, spec.Node_NodeUnpublishVolume_FullMethodName, say,
		func(ctx context.Context, node spec.NodeClient, volume, path string) error {
			_, err := node.NodeUnpublishVolume(ctx,
				&spec.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: path})
			return err
		})
}

// release lets the driver release the volume that the record in this directory names, with a call of this method, and
// removes the directory's content.
func (p Plugin) release(ctx context.Context, dir, place, method string, say volume.Say,
	do func(ctx context.Context, node spec.NodeClient, volume, path string) error) error {
	had, err := readRecord(dir)
	path := filepath.Join(dir, place)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: without it, no driver can be asked to release the volume; see that none holds it, "+
			"unmount %s, and remove the record", err, path)
	}
	driver := had[keyDriver]
	p.drivers.note(dir, driver)
	called := false
	err = p.drivers.call(ctx, driver, method, say, func(ctx context.Context, by *registration) error {
		if called = place == targetName || by.stages; !called {
			return nil // a newer version of the driver doesn't stage volumes any more
		}
		// On a full disk volumes are released all the same.
		if err := had.release(dir); err != nil && !atomicfile.DiskFails(err) {
			return err
		}
		return p.drivers.measure(driver, method, nil, func() error {
			return do(ctx, spec.NewNodeClient(by.conn), had[keyHandle], path)
		})
	})
	if err != nil {
		return err
	}
	if called && isMount(dir, place) {
		p.drivers.conf.Log.Info("A CSI driver has released a volume, but left it mounted: this is a fault of the "+
			"driver; it is unmounted now", "plugin", driver, "path", path)
	}
	return p.forget(ctx, dir, place)
}

// find returns the state of the place in this directory.
func find(dir, place string, used bool) found {
	had, err := readRecord(dir)
	return found{had, err, isMount(dir, place), used}
}

// isMount reports whether something is mounted at this place in a directory. It doesn't access the mounted file
// system.
func isMount(dir, place string) bool {
	above, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer above.Close()
	target, err := safeopen.OpenNoLinks(above, place, unix.O_PATH|unix.O_DIRECTORY, 0)
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
