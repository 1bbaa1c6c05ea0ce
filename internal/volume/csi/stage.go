package csi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// stageName is the name of the directory at which a driver stages a volume. The volume's record is next to it, like the
// kubelet's: a kubelet that takes over removes both, and fails if there are other files.
const stageName = "globalmount"

// Dir implements volume.Attacher.
func (p Plugin) Dir(key string) string {
	driver, handle, _ := strings.Cut(key, "^")
	sum := sha256.Sum256([]byte(handle))
	return filepath.Join(p.devices, driver, hex.EncodeToString(sum[:]))
}

func deviceKey(driver, handle string) string { return driver + "^" + handle }

// recordOf returns a record of the volume with this key that has only the entries that a release needs; nil for an
// invalid key.
func recordOf(key string) record {
	driver, handle, ok := strings.Cut(key, "^")
	if !ok {
		return nil
	}
	return record{keyDriver: driver, keyHandle: handle}
}

// recovered returns a record of a volume that has only the entries that a release needs, from the manager's own data;
// nil if the manager has none.
func recovered(at volume.Place) record {
	if at.Device != "" {
		return recordOf(at.Device)
	}
	if at.Spec.Volume == nil {
		return nil
	}
	s, err := sourceOf(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: at.UID}}, at.Spec)
	if err != nil {
		return nil
	}
	return record{keyDriver: s.driver, keyHandle: s.handle}
}

// Device identifies the volume of a PersistentVolume by its driver and handle. Inline volumes aren't staged.
func (p Plugin) Device(v volume.Spec) (key, dir string) {
	if v.Persistent == nil {
		return "", ""
	}
	s := source{driver: v.Persistent.Spec.CSI.Driver, handle: v.Persistent.Spec.CSI.VolumeHandle}
	return s.key(), p.Dir(s.key())
}

// Note implements volume.Stager. A kubelet's record doesn't say whether the volume is attached: the volume counts as
// attached.
func (p Plugin) Note(dir string) (volume.Note, error) {
	had, err := readRecord(dir)
	if err != nil {
		return volume.Note{}, err
	}
	n := volume.Note{Program: had[keyDriver], Handle: had[keyHandle]}
	if had[keyLifecycle] != string(storagev1.VolumeLifecycleEphemeral) {
		boot := p.drivers.conf.BootID
		earlier := boot != "" && had[keyBoot] != "" && had[keyBoot] != boot
		n.Device = deviceKey(n.Program, n.Handle)
		n.Attached = (had[keyArguments] == "" || had[keyAttachment] != "") && !earlier
	}
	return n, nil
}

// Noted implements volume.Stager.
func (p Plugin) Noted() (dirs []string) {
	paths, _ := filepath.Glob(filepath.Join(p.devices, "*", "*", recordName)) // it fails for bad patterns only
	for _, path := range paths {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

// Stage lets the driver stage the volume, if it stages volumes.
func (p Plugin) Stage(ctx context.Context, g volume.Staging) error {
	s, err := sourceOf(g.Pod, g.Spec)
	if err != nil {
		return err
	}
	f, want := p.find(g.Dir, stageName, g.InUse || g.Used), record{keyDriver: s.driver, keyHandle: s.handle}
	staged := func() bool {
		if f.next(want, p.drivers.conf.BootID) != keep {
			return false
		}
		p.drivers.note(g.Dir, s.driver)
		return true
	}
	switch {
	case g.InUse && staged(): // also if it was detached
		return nil
	case g.InUse && errors.Is(f.err, fs.ErrNotExist) && !p.drivers.has(s.driver):
		return nil // the driver has staged nothing, and containers that use the volume don't need it
	}
	d, err := describedBy(ctx, g.Objects, &s)
	if err != nil {
		return err
	}
	at, err := p.attachment(ctx, g.Objects, d, &s, user{g.Pod.Spec.NodeName, g.Dir, g.InUse})
	if err != nil {
		return err
	}
	if at.note(want); staged() {
		return nil
	}
	secrets, err := secretsOf(ctx, g.Objects, s.stage, "nodeStageSecretRef")
	if err != nil {
		return err
	}
	const method = spec.Node_NodeStageVolume_FullMethodName
	return p.acquire(ctx, holding{dir: g.Dir, name: stageName, driver: s.driver, used: g.InUse || g.Used,
		method: method, say: g.Say,
		release: func(ctx context.Context) error { return p.unstage(ctx, g) },
		call: func(by *registration) (record, func(context.Context) error, error) {
			if !by.stages {
				return nil, nil, nil
			}
			q := &spec.NodeStageVolumeRequest{VolumeId: s.handle, StagingTargetPath: filepath.Join(g.Dir, stageName),
				VolumeContext: s.attributes, VolumeCapability: s.capability(g.Pod, by), PublishContext: at.context}
			arguments, err := digest(q)
			q.Secrets = secrets // they may be renewed
			want[keyArguments] = arguments
			return want,
				func(ctx context.Context) error {
					if err := os.Mkdir(q.StagingTargetPath, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
						return err
					}
					hidden := slices.AppendSeq(at.hidden(), maps.Values(secrets))
					_, err := ask(ctx, p.drivers, rpc{s.driver, method, s.migrated, hidden},
						spec.NewNodeClient(by.conn).NodeStageVolume, q)
					return err
				}, err
		}})
}

// Unstage lets the driver unstage the volume that the record names. Without a record, the driver has staged nothing.
func (p Plugin) Unstage(ctx context.Context, g volume.Staging) error {
	p.drivers.forgetAttachment(g.Device)
	return p.unstage(ctx, g)
}

func (p Plugin) unstage(ctx context.Context, g volume.Staging) error {
	const method = spec.Node_NodeUnstageVolume_FullMethodName
	return p.release(ctx, releasing{dir: g.Dir, name: stageName, method: method, say: g.Say, argument: g.Device,
		recovered: recordOf(g.Device),
		call: func(ctx context.Context, by *registration, had record, path string) error {
			if !by.stages {
				return nil // a newer version of the driver doesn't stage volumes any more
			}
			_, err := ask(ctx, p.drivers, rpc{driver: had[keyDriver], method: method},
				spec.NewNodeClient(by.conn).NodeUnstageVolume,
				&spec.NodeUnstageVolumeRequest{VolumeId: had[keyHandle], StagingTargetPath: path})
			return err
		}})
}
