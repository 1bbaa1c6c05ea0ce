package csi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
	"github.com/deckhand-node/deckhand/internal/volume"
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
	_ volume.Attacher  = Plugin{}
	_ volume.Forgetter = Plugin{}
)

// NewPlugin returns the plugin for volumes of these drivers. They are staged below the agent's root directory.
func NewPlugin(d *Drivers, rootDir string) Plugin {
	return Plugin{d, filepath.Join(rootDir, "plugins", Plugin{}.Name())}
}

// Name is the plugin's name.
func (Plugin) Name() string { return object.CSIPlugin }

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
	if err == nil && len(validation.CSIDriverName(of.driver, nil)) > 0 {
		err = fmt.Errorf("the CSI driver %q is %w: its name has to be a domain name of at most %d characters",
			bounded(of.driver), volume.ErrUnsupported, validation.MaxCSIDriverName)
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
	if r.InUse {
		f := p.find(r.Dir, targetName, true)
		if f.next(s.record(r.Pod.Spec.NodeName), p.drivers.conf.BootID) == keep {
			p.drivers.note(r.Dir, f.had[keyDriver])
			return mounted, nil
		}
	}
	g, err := p.gather(ctx, r)
	if err != nil {
		return volume.Mounted{}, err
	}
	mountsGroup, err := p.publish(ctx, r, &g)
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
	// If there is no CSIDriver object, the driver doesn't require repeated calls.
	d, err := r.Objects.CSIDriver(ctx, s.driver)
	if err != nil || !ptr.Deref(d.Spec.RequiresRepublish, false) {
		return false, nil
	}
	g, err := p.gather(ctx, r)
	if err != nil {
		return false, err
	}
	_, err = p.publish(ctx, r, &g)
	return false, err
}

// publish lets the driver publish the volume, even if the driver has already published it. mountsGroup says that the
// driver applies the fsGroup itself.
func (p Plugin) publish(ctx context.Context, r volume.Request, g *publishing) (mountsGroup bool, err error) {
	driver, target := g.source.driver, filepath.Join(r.Dir, targetName)
	const method = spec.Node_NodePublishVolume_FullMethodName
	err = p.acquire(ctx, holding{dir: r.Dir, name: targetName, driver: driver, used: r.InUse, again: true,
		method: method, say: r.Say,
		release: func(ctx context.Context) error { return p.Unmount(ctx, r.Place, r.Say) },
		call: func(by *registration) (record, func(context.Context) error, error) {
			mountsGroup = by.mountsGroup
			q := &spec.NodePublishVolumeRequest{VolumeId: g.handle, TargetPath: target, Readonly: g.readOnly,
				VolumeCapability: g.capability(r.Pod, by), PublishContext: g.attachment.context}
			want := g.record(r.Pod.Spec.NodeName)
			g.attachment.note(want)
			arguments, err := digest(q)
			if err != nil {
				return nil, nil, err
			}
			want[keyArguments] = arguments
			if by.stages && !g.inline() {
				dir := p.Dir(g.key())
				// The driver may have begun to stage volumes only after Stage was called for this one.
				staged, err := p.read(dir)
				if err != nil || !staged.certain() || staged.attachedOtherwise(want) {
					return nil, nil, fmt.Errorf("CSI driver %s: the volume isn't staged", driver)
				}
				q.StagingTargetPath = filepath.Join(dir, stageName)
			}
			q.VolumeContext, q.Secrets = g.context, g.secrets
			return want, func(ctx context.Context) error {
				publish := spec.NewNodeClient(by.conn).NodePublishVolume
				_, err := ask(ctx, p.drivers, rpc{driver, method, g.migrated, g.hidden}, publish, q)
				return err
			}, nil
		}})
	if err != nil {
		return false, err
	}
	if st, e := os.Lstat(target); e != nil || !st.IsDir() {
		return false, fmt.Errorf("CSI driver %s: NodePublishVolume succeeded, but %s isn't a directory: this is a "+
			"fault of the driver", driver, target)
	}
	return mountsGroup, nil
}

// digest returns a digest of those arguments of a call that must not change when the call is repeated.
func digest(q proto.Message) (string, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(q)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// Unmount lets the driver unpublish the volume that the record names, even if nothing is mounted: the driver may still
// hold the volume. Without a record, no driver holds the volume.
func (p Plugin) Unmount(ctx context.Context, at volume.Place, say volume.Say) error {
	const method = spec.Node_NodeUnpublishVolume_FullMethodName
	return p.release(ctx, releasing{dir: at.Dir, name: targetName, method: method, say: say, recovered: recovered(at),
		argument: path.Join(string(at.UID), filepath.Base(at.Dir)),
		call: func(ctx context.Context, by *registration, had record, path string) error {
			// The record doesn't say whether the volume was migrated: as with the kubelet, these calls don't count as
			// such.
			_, err := ask(ctx, p.drivers, rpc{driver: had[keyDriver], method: method},
				spec.NewNodeClient(by.conn).NodeUnpublishVolume,
				&spec.NodeUnpublishVolumeRequest{VolumeId: had[keyHandle], TargetPath: path})
			return err
		}})
}
