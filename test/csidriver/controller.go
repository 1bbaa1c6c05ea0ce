package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// controller is CSI's controller service.
type controller struct {
	csi.UnimplementedControllerServer
	config  config
	volumes *volumes
}

// defaultCapacity is that of volumes for which none was asked.
const defaultCapacity = 1 << 30

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (
	*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME}
	if c.config.attach {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return resp, nil
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := needed("name", r.GetName()); err != nil {
		return nil, err
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_capabilities are needed")
	}
	for _, capability := range r.GetVolumeCapabilities() {
		if _, err := mountOf(capability); err != nil {
			return nil, err
		}
	}
	if r.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes can't be made of other ones")
	}
	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	sum := sha256.Sum256([]byte(r.GetName()))
	id := "vol-" + hex.EncodeToString(sum[:8])
	v, ok, err := c.volumes.read(id)
	if err != nil {
		return nil, internal(err)
	}
	required, limit := r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes()
	if !ok {
		v = record{ID: id, Name: r.GetName(), Capacity: max(required, min(limit, defaultCapacity))}
		if required == 0 && limit == 0 {
			v.Capacity = defaultCapacity
		}
		if err := c.volumes.write(v); err != nil {
			return nil, internal(err)
		}
	} else if v.Capacity < required || limit != 0 && v.Capacity > limit {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes", v.ID, v.Capacity)
	}
	volume := &csi.Volume{VolumeId: id, CapacityBytes: v.Capacity, VolumeContext: r.GetParameters()}
	if t := c.config.segments(); t != nil {
		volume.AccessibleTopology = []*csi.Topology{t}
	}
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	v, _, err := c.volumes.read(r.GetVolumeId())
	if err != nil {
		return nil, internal(err)
	}
	if len(v.Nodes) > 0 {
		return nil, status.Error(codes.FailedPrecondition, "the volume is attached")
	}
	return &csi.DeleteVolumeResponse{}, internal(os.RemoveAll(c.volumes.path(r.GetVolumeId())))
}

func (c *controller) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (
	*csi.ControllerPublishVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId(), "node_id", r.GetNodeId()); err != nil {
		return nil, err
	}
	m, err := mountOf(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	v, ok, err := c.volumes.read(r.GetVolumeId())
	switch args := fmt.Sprint(r.GetReadonly(), r.GetVolumeCapability().GetAccessMode().GetMode(), m.GetFsType()); {
	case err != nil:
		return nil, internal(err)
	case !ok:
		return nil, status.Error(codes.NotFound, "there is no such volume")
	case r.GetNodeId() != c.config.nodeID:
		return nil, status.Error(codes.NotFound, "there is no such node")
	case v.Nodes[r.GetNodeId()] == "":
		if err := c.full(); err != nil {
			return nil, err
		}
		v.Nodes = map[string]string{r.GetNodeId(): args}
		if err := c.volumes.write(v); err != nil {
			return nil, internal(err)
		}
	case v.Nodes[r.GetNodeId()] != args:
		return nil, status.Error(codes.AlreadyExists, "the volume is attached with other arguments")
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "/dev/" + v.ID}}, nil
}

// full returns an error if the node has as many volumes as it may.
func (c *controller) full() error {
	if c.config.maxVolumes == 0 {
		return nil
	}
	list, err := c.volumes.list()
	if err != nil {
		return internal(err)
	}
	attached := int64(0)
	for _, v := range list {
		if v.Nodes[c.config.nodeID] != "" {
			attached++
		}
	}
	if attached >= c.config.maxVolumes {
		return status.Error(codes.ResourceExhausted, "the node has as many volumes as it may")
	}
	return nil
}

func (c *controller) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (
	*csi.ControllerUnpublishVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	v, ok, err := c.volumes.read(r.GetVolumeId())
	if err != nil {
		return nil, internal(err)
	}
	if ok {
		if delete(v.Nodes, r.GetNodeId()); r.GetNodeId() == "" {
			v.Nodes = nil
		}
		err = c.volumes.write(v)
	}
	return &csi.ControllerUnpublishVolumeResponse{}, internal(err)
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (
	*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := needed("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_capabilities are needed")
	}
	if _, ok, err := c.volumes.read(r.GetVolumeId()); err != nil || !ok {
		return nil, status.Errorf(codes.NotFound, "there is no such volume (%v)", err)
	}
	for _, capability := range r.GetVolumeCapabilities() {
		if capability.GetMount() == nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: "only mounted volumes are supported"}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(),
		Parameters: r.GetParameters()}}, nil
}

func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	list, err := c.volumes.list()
	if err != nil {
		return nil, internal(err)
	}
	first := 0
	if t := r.GetStartingToken(); t != "" {
		if first, err = strconv.Atoi(t); err != nil || first < 0 || first > len(list) {
			return nil, status.Error(codes.Aborted, "the starting_token isn't valid")
		}
	}
	list = list[first:]
	resp := &csi.ListVolumesResponse{}
	if n := int(r.GetMaxEntries()); n > 0 && n < len(list) {
		list, resp.NextToken = list[:n], strconv.Itoa(first+n)
	}
	for _, v := range list {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{
			Volume: &csi.Volume{VolumeId: v.ID, CapacityBytes: v.Capacity}})
	}
	slices.SortFunc(resp.Entries, func(a, b *csi.ListVolumesResponse_Entry) int {
		return strings.Compare(a.GetVolume().GetVolumeId(), b.GetVolume().GetVolumeId())
	})
	return resp, nil
}

func (c *controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (
	*csi.ControllerExpandVolumeResponse, error) {
	if err := needed("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "a capacity_range is needed")
	}
	c.volumes.mu.Lock()
	defer c.volumes.mu.Unlock()
	v, ok, err := c.volumes.read(r.GetVolumeId())
	if err != nil {
		return nil, internal(err)
	}
	if !ok {
		return nil, status.Error(codes.NotFound, "there is no such volume")
	}
	v.Capacity = max(v.Capacity, r.GetCapacityRange().GetRequiredBytes())
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Capacity,
		NodeExpansionRequired: c.config.can(csi.NodeServiceCapability_RPC_EXPAND_VOLUME)}, internal(c.volumes.write(v))
}
