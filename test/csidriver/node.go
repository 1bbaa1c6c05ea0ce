package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// identity is CSI's identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	config config
}

func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.config.name, VendorVersion: i.config.version}, nil
}

func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (
	*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if len(i.config.topology) > 0 {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	resp := &csi.GetPluginCapabilitiesResponse{}
	for _, s := range services {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: s}}})
	}
	if i.config.can(csi.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}})
	}
	return resp, nil
}

func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// node is CSI's node service.
type node struct {
	csi.UnimplementedNodeServer
	config  config
	volumes *volumes
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (
	*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for s := range strings.SplitSeq(n.config.capabilities, ",") {
		if t := csi.NodeServiceCapability_RPC_Type(csi.NodeServiceCapability_RPC_Type_value[s]); t != 0 {
			resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
				Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
		}
	}
	return resp, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.config.nodeID, MaxVolumesPerNode: n.config.maxVolumes,
		AccessibleTopology: n.config.segments()}, nil
}

// segments is the topology of the node, nil for none.
func (c config) segments() *csi.Topology {
	if len(c.topology) == 0 {
		return nil
	}
	t := &csi.Topology{Segments: map[string]string{}}
	for _, s := range c.topology {
		key, value, _ := strings.Cut(s, "=")
		t.Segments[key] = value
	}
	return t
}

// needed returns the error of the first argument that is empty; arguments are names and values in turn.
func needed(arguments ...string) error {
	for i := 0; i < len(arguments); i += 2 {
		if arguments[i+1] == "" {
			return status.Errorf(codes.InvalidArgument, "%s is needed", arguments[i])
		}
	}
	return nil
}

// mountOf checks a capability and returns its mount.
func mountOf(c *csi.VolumeCapability) (*csi.VolumeCapability_MountVolume, error) {
	switch {
	case c == nil || c.GetAccessMode() == nil:
		return nil, status.Error(codes.InvalidArgument, "a volume_capability with an access_mode is needed")
	case c.GetMount() == nil:
		return nil, status.Error(codes.InvalidArgument, "only mounted volumes are supported")
	}
	return c.GetMount(), nil
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.Internal, err.Error())
}

func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (
	*csi.NodeStageVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	m, err := mountOf(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	data, err := n.volumes.data(r.GetVolumeId())
	if err == nil {
		err = n.setGroup(data, m)
	}
	if err == nil {
		// The caller makes the staging directory.
		err = n.mount(ctx, r.GetStagingTargetPath(), mounting{source: data, flags: m.GetMountFlags()})
	}
	return &csi.NodeStageVolumeResponse{}, internal(err)
}

func (n *node) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (
	*csi.NodeUnstageVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, internal(n.unmount(r.GetStagingTargetPath()))
}

func (n *node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (
	*csi.NodePublishVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	m, err := mountOf(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	inline := isInline(r)
	mounting := mounting{flags: m.GetMountFlags(), readOnly: r.GetReadonly()}
	if !inline {
		if mounting.source = r.GetStagingTargetPath(); !n.config.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) {
			if mounting.source, err = n.volumes.data(r.GetVolumeId()); err == nil {
				err = n.setGroup(mounting.source, m)
			}
		} else if err = needed("staging_target_path", mounting.source); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, internal(err)
	}
	if err := n.single(r); err != nil {
		return nil, err
	}
	target := r.GetTargetPath()
	if err := n.inside(target); err != nil {
		return nil, internal(err)
	}
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) { // the caller makes its parent
		return nil, internal(err)
	}
	mounting.prepare = func() error {
		if !inline {
			return nil
		}
		data, err := json.Marshal(r.GetVolumeContext())
		if err == nil {
			err = n.setGroup(target, m)
		}
		if err == nil {
			err = replace(filepath.Join(target, "volume_context"), data, 0o644)
		}
		return err
	}
	return &csi.NodePublishVolumeResponse{}, internal(n.mount(ctx, target, mounting))
}

// single refuses a second target of a volume for one writer.
func (n *node) single(r *csi.NodePublishVolumeRequest) error {
	if r.GetVolumeCapability().GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		return nil
	}
	root := n.volumes.path(r.GetVolumeId())
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		used := strings.HasSuffix(root, filepath.Dir(m.Root)) && filepath.Base(m.Root) == "data"
		return !used || m.Mountpoint == r.GetTargetPath() || m.Mountpoint == r.GetStagingTargetPath(), false
	})
	if err != nil {
		return internal(err)
	}
	if len(mounts) > 0 {
		return status.Errorf(codes.FailedPrecondition, "volume %s is published at %s, and has one writer", r.GetVolumeId(),
			mounts[0].Mountpoint)
	}
	return nil
}

func (n *node) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (
	*csi.NodeUnpublishVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	err := n.unmount(r.GetTargetPath())
	if err == nil {
		if err = os.Remove(r.GetTargetPath()); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return &csi.NodeUnpublishVolumeResponse{}, internal(err)
}

func (n *node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (
	*csi.NodeGetVolumeStatsResponse, error) {
	if err := needed("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(r.GetVolumePath()); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	var f unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &f); err != nil {
		return nil, internal(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(f.Blocks) * f.Bsize, Available: int64(f.Bavail) * f.Bsize,
			Used: int64(f.Blocks-f.Bfree) * f.Bsize},
		{Unit: csi.VolumeUsage_INODES, Total: int64(f.Files), Available: int64(f.Ffree), Used: int64(f.Files - f.Ffree)},
	}}, nil
}

func (n *node) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (
	*csi.NodeExpandVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(r.GetVolumePath()); err != nil || !n.volumes.exists(r.GetVolumeId()) {
		return nil, status.Errorf(codes.NotFound, "there is no volume %q at %q", r.GetVolumeId(), r.GetVolumePath())
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

// setGroup gives a volume to the group of VOLUME_MOUNT_GROUP.
func (n *node) setGroup(dir string, m *csi.VolumeCapability_MountVolume) error {
	if m.GetVolumeMountGroup() == "" {
		return nil
	}
	gid, err := strconv.Atoi(m.GetVolumeMountGroup())
	if err != nil {
		return fmt.Errorf("volume_mount_group: %w", err)
	}
	if err := os.Lchown(dir, -1, gid); err != nil {
		return err
	}
	return os.Chmod(dir, 0o775|fs.ModeSetgid)
}

// inside refuses a mount point whose directory isn't below one of --below.
func (n *node) inside(target string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(target))
	if err != nil {
		return err
	}
	if len(n.config.below) > 0 && !slices.ContainsFunc(n.config.below, func(dir string) bool {
		return parent == dir || strings.HasPrefix(parent, dir+"/")
	}) {
		return fmt.Errorf("%s isn't below a directory of --below", target)
	}
	return nil
}

// mounting describes a mount.
type mounting struct {
	source   string // for a bind mount; a tmpfs without
	flags    []string
	readOnly bool
	prepare  func() error // runs before a mount becomes read-only
}

// mountFlags are the mount_flags that have a meaning here; others are only logged.
var mountFlags = map[string]uintptr{"ro": unix.MS_RDONLY, "noexec": unix.MS_NOEXEC, "nosuid": unix.MS_NOSUID,
	"nodev": unix.MS_NODEV, "noatime": unix.MS_NOATIME}

// mount mounts at an existing directory, once.
func (n *node) mount(ctx context.Context, target string, m mounting) error {
	if err := n.inside(target); err != nil {
		return err
	}
	var flags uintptr
	for _, f := range m.flags {
		flags |= mountFlags[f]
	}
	if m.readOnly {
		flags |= unix.MS_RDONLY
	}
	info, err := os.Lstat(target)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s isn't a directory", target)
	}
	mounted, err := mountinfo.Mounted(target)
	if err != nil {
		return err
	}
	if ctx.Value(noMount{}) != nil {
		return nil
	}
	if !mounted {
		if m.source == "" {
			err = unix.Mount("deckhand-test", target, "tmpfs", 0, "size=16m,mode=755")
		} else {
			err = unix.Mount(m.source, target, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("mount at %s: %w", target, err)
		}
	} else if m.source == "" {
		if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil { // to be written again
			return fmt.Errorf("remount %s: %w", target, err)
		}
	}
	if m.prepare != nil {
		if err := m.prepare(); err != nil {
			return errors.Join(err, n.unmount(target))
		}
	}
	if flags != 0 {
		if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			return errors.Join(fmt.Errorf("remount %s: %w", target, err), n.unmount(target))
		}
	}
	return nil
}

// unmount removes all mounts at a directory.
func (n *node) unmount(target string) error {
	for {
		if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := n.inside(target); err != nil {
			return err
		}
		switch err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); {
		case errors.Is(err, unix.EINVAL): // it isn't a mount point
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
}
