package nodeobject

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Report is the input from which a node's status is computed.
type Report struct {
	Hostname string
	// HostIPs are empty if a cloud controller writes the addresses.
	HostIPs               []string
	Info                  v1.NodeSystemInfo
	Capacity, Allocatable v1.ResourceList
	// Port is the port of the authenticated API; 0 for none.
	Port             int32
	RuntimeHandlers  []v1.NodeRuntimeHandler
	Features         *v1.NodeFeatures
	DeclaredFeatures []string
	Images           []v1.ContainerImage
	// MaxImages limits the images in the status; negative for no limit (nodeStatusMaxImages).
	MaxImages int
	// NotReady lists why the node isn't ready, such as the container runtime's own reasons. A runtime that hasn't
	// reported its status yet isn't ready.
	NotReady []string
	Pressure admission.Pressure
	// StorageFailed is a disk error that prevents the admission of pods; empty if there is none.
	StorageFailed string
}

// Status is the status of a node, without times.
func (r *Report) Status() v1.NodeStatus {
	s := v1.NodeStatus{
		Capacity: r.Capacity, Allocatable: r.Allocatable, NodeInfo: r.Info, RuntimeHandlers: r.RuntimeHandlers,
		Features:         r.Features,
		DeclaredFeatures: r.DeclaredFeatures, Images: imagesOf(r.Images, r.MaxImages),
		DaemonEndpoints: v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: r.Port}},
	}
	for _, p := range pressures(r.Pressure) {
		s.Conditions = append(s.Conditions,
			v1.NodeCondition{Type: p.kind, Status: p.status, Reason: string(p.reason), Message: p.message})
	}
	ready := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: string(pod.ReasonKubeletReady),
		Message: "kubelet is posting ready status"}
	if len(r.NotReady) > 0 {
		ready.Status, ready.Reason, ready.Message = v1.ConditionFalse, string(pod.ReasonKubeletNotReady),
			strings.Join(r.NotReady, "; ")
	}
	if r.StorageFailed != "" {
		ready.Status, ready.Reason = v1.ConditionFalse, string(pod.ReasonStorageFailed)
		ready.Message = strings.Join(append(slices.Clone(r.NotReady),
			"the disk of the root directory can't be written: "+r.StorageFailed), "; ")
	}
	s.Conditions = append(s.Conditions, ready) // Ready is the last condition, as users expect
	if len(r.HostIPs) == 0 {
		return s
	}
	for _, ip := range r.HostIPs {
		s.Addresses = append(s.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	s.Addresses = append(s.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: r.Hostname})
	return s
}

// maxImageNames limits the number of names of each image in the status.
const maxImageNames = 5

// imagesOf returns the largest images, the largest first. most limits their number; negative for no limit.
func imagesOf(all []v1.ContainerImage, most int) []v1.ContainerImage {
	list := slices.Clone(all)
	slices.SortStableFunc(list, func(a, b v1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
	})
	if most >= 0 && len(list) > most {
		list = list[:most]
	}
	for i := range list {
		if names := list[i].Names; len(names) > maxImageNames {
			list[i].Names = names[:maxImageNames]
		}
	}
	return list
}
