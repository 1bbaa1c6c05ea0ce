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

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// stageName is the name of the directory at which a driver stages a volume. The volume's record is beside it, as the
// kubelet's is: a kubelet that takes over removes both, and fails on anything else there.
const stageName = "globalmount"

// device is the directory of a volume that is staged on this node.
func (p Plugin) device(s *source) string {
	sum := sha256.Sum256([]byte(s.handle))
	return filepath.Join(p.devices, s.driver, hex.EncodeToString(sum[:]))
}

// Device identifies the volume of a PersistentVolume by its driver and handle. Inline volumes aren't staged.
func (p Plugin) Device(v volume.Spec) (key, dir string) {
	if v.Persistent == nil {
		return "", ""
	}
	c := v.Persistent.Spec.CSI
	return c.Driver + "^" + c.VolumeHandle, p.device(&source{driver: c.Driver, handle: c.VolumeHandle})
}

// Known reads the record of a staged volume.
func (p Plugin) Known(dir string) (volume.Staging, bool) {
	had, err := readRecord(dir)
	if err != nil {
		return volume.Staging{}, false
	}
	return volume.Staging{Device: had[keyDriver] + "^" + had[keyHandle], Dir: dir}, true
}

// Noted lists the staged volumes by their records.
func (p Plugin) Noted() (list []volume.Staging) {
	paths, _ := filepath.Glob(filepath.Join(p.devices, "*", "*", recordName)) // it fails for bad patterns only
	for _, path := range paths {
		if g, ok := p.Known(filepath.Dir(path)); ok {
			list = append(list, g)
		}
	}
	return list
}

// Uses returns the key of the staged volume of which the volume at this place is a part.
func (Plugin) Uses(at volume.Place) (key string, err error) {
	had, err := readRecord(at.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil || had[keyLifecycle] != string(storagev1.VolumeLifecyclePersistent):
		return "", err
	}
	return had[keyDriver] + "^" + had[keyHandle], nil
}

// Stage lets the driver stage the volume, if it stages volumes.
func (p Plugin) Stage(ctx context.Context, g volume.Staging) error {
	s, err := sourceOf(g.Pod, g.Spec)
	if err != nil {
		return err
	}
	f := find(g.Dir, stageName, g.InUse || g.Used)
	switch {
	case f.next(record{keyDriver: s.driver, keyHandle: s.handle}, p.drivers.conf.BootID) == keep:
		p.drivers.note(g.Dir, s.driver)
		return nil
	case g.InUse && errors.Is(f.err, fs.ErrNotExist) && !p.drivers.has(s.driver):
		return nil // the driver has staged nothing, and containers that use the volume don't need it
	}
	if _, err := describedBy(ctx, g.Objects, &s); err != nil {
		return err
	}
	secrets, err := secretsOf(ctx, g.Objects, s.stage, "nodeStageSecretRef")
	if err != nil {
		return err
	}
	for {
		again, err := p.stage(ctx, g, &s, secrets)
		if err != nil || !again {
			return err
		}
	}
}

// stage calls the driver unless it has staged the volume. again says that the volume was unstaged,
// because it was staged with other arguments.
func (p Plugin) stage(ctx context.Context, g volume.Staging, s *source, secrets map[string]string) (again bool,
	err error) {
	const method = spec.Node_NodeStageVolume_FullMethodName
	var first step
	err = p.drivers.call(ctx, s.driver, method, g.Say, func(ctx context.Context, by *registration) error {
		if !by.stages {
			first = keep
			return nil
		}
		q := &spec.NodeStageVolumeRequest{VolumeId: s.handle, StagingTargetPath: filepath.Join(g.Dir, stageName),
			VolumeContext: s.attributes, VolumeCapability: s.capability(g.Pod, by)}
		want, err := staging(s, q)
		if err != nil {
			return err
		}
		first = find(g.Dir, stageName, g.InUse || g.Used).next(want, p.drivers.conf.BootID)
		if first == keep || first == undo {
			p.drivers.note(g.Dir, s.driver)
			return nil
		}
		if err := want.create(g.Dir); err != nil {
			return err
		}
		p.drivers.note(g.Dir, s.driver)
		if err := os.Mkdir(q.StagingTargetPath, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		q.Secrets = secrets
		if err := p.drivers.measure(s.driver, method, slices.Collect(maps.Values(secrets)), func() error {
			_, err := spec.NewNodeClient(by.conn).NodeStageVolume(ctx, q)
			return err
		}); err != nil {
			return err
		}
		return want.succeed(g.Dir, p.drivers.conf.BootID)
	})
	switch {
	case first == begin && refused(err):
		return false, errors.Join(err, p.forget(ctx, g.Dir, stageName))
	case err != nil || first != undo:
		return false, err
	}
	return true, p.Unstage(ctx, g)
}

// staging is the record of a staged volume, with the digest of the request's arguments but for secrets, which may be
// renewed.
func staging(s *source, q *spec.NodeStageVolumeRequest) (record, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(q)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return record{keyDriver: s.driver, keyHandle: s.handle, keyArguments: hex.EncodeToString(sum[:])}, nil
}

// Unstage lets the driver unstage the volume that the record names. Without a record, the driver has staged nothing.
func (p Plugin) Unstage(ctx context.Context, g volume.Staging) error {
	return p.release(ctx, g.Dir, stageName, spec.Node_NodeUnstageVolume_FullMethodName, g.Say,
		func(ctx context.Context, node spec.NodeClient, volume, path string) error {
			_, err := node.NodeUnstageVolume(ctx,
				&spec.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: path})
			return err
		})
}
