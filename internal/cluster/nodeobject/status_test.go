package nodeobject

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

func TestReadiness(t *testing.T) {
	for name, tc := range map[string]struct {
		notReady        []string
		status          v1.ConditionStatus
		reason, message string
	}{
		"ready":      {nil, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"},
		"no runtime": {[]string{"container runtime is down", "no network"}, v1.ConditionFalse, "KubeletNotReady", "container runtime is down; no network"},
	} {
		s := (&Report{NotReady: tc.notReady}).Status()
		if c := condition(&s, v1.NodeReady); c.Status != tc.status || c.Reason != tc.reason || c.Message != tc.message {
			t.Errorf("%s: %+v", name, c)
		}
		for kind, reason := range map[v1.NodeConditionType]string{
			v1.NodeMemoryPressure: "KubeletHasSufficientMemory", v1.NodeDiskPressure: "KubeletHasNoDiskPressure", v1.NodePIDPressure: "KubeletHasSufficientPID",
		} {
			if c := condition(&s, kind); c == nil || c.Status != v1.ConditionFalse || c.Reason != reason {
				t.Errorf("%s: %s is %+v, want the reason %s", name, kind, c, reason)
			}
		}
	}
}

// TestStorageFailed: a disk that can't be written is the reason why the node isn't ready.
func TestStorageFailed(t *testing.T) {
	s := (&Report{NotReady: []string{"no network"}, StorageFailed: "read-only"}).Status()
	want := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "StorageFailed",
		Message: "no network; the disk of the root directory can't be written: read-only"}
	if c := condition(&s, v1.NodeReady); *c != want {
		t.Errorf("%+v", *c)
	}
}

// TestPressure: reasons and messages are the kubelet's, Ready is the last one and doesn't depend on them.
func TestPressure(t *testing.T) {
	for _, tc := range []struct {
		pressure admission.Pressure
		want     []string
	}{
		{admission.Pressure{}, []string{"MemoryPressure False KubeletHasSufficientMemory: kubelet has sufficient memory available", "DiskPressure False KubeletHasNoDiskPressure: kubelet has no disk pressure",
			"PIDPressure False KubeletHasSufficientPID: kubelet has sufficient PID available"}},
		{admission.Pressure{Memory: true, Disk: true, PIDs: true}, []string{"MemoryPressure True KubeletHasInsufficientMemory: kubelet has insufficient memory available", "DiskPressure True KubeletHasDiskPressure: kubelet has disk pressure",
			"PIDPressure True KubeletHasInsufficientPID: kubelet has insufficient PID available"}},
		{admission.Pressure{Disk: true}, []string{"MemoryPressure False KubeletHasSufficientMemory: kubelet has sufficient memory available", "DiskPressure True KubeletHasDiskPressure: kubelet has disk pressure",
			"PIDPressure False KubeletHasSufficientPID: kubelet has sufficient PID available"}},
	} {
		var got []string
		for _, c := range (&Report{Pressure: tc.pressure}).Status().Conditions {
			got = append(got, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
		if want := append(tc.want, "Ready True KubeletReady: kubelet is posting ready status"); !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", tc.pressure, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	r := &Report{Hostname: "node1", HostIPs: []string{"192.0.2.1", "2001:db8::1"}}
	s := r.Status()
	want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, {Type: v1.NodeInternalIP, Address: "2001:db8::1"}, {Type: v1.NodeHostName, Address: "node1"}}
	if diff := cmp.Diff(want, s.Addresses); diff != "" {
		t.Error(diff)
	}
	r.HostIPs = nil
	theirs := &v1.Node{Status: v1.NodeStatus{Addresses: want[:1]}}
	s = r.Status()
	if diff := cmp.Diff(want[:1], withStatus(theirs, &s, false).Status.Addresses); diff != "" {
		t.Errorf("addresses that a cloud's controller wrote: %s", diff)
	}
}

func TestImages(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	all := []v1.ContainerImage{{Names: []string{"small"}, SizeBytes: 1}, {Names: names, SizeBytes: 3}, {Names: []string{"y"}, SizeBytes: 2}, {Names: []string{"x"}, SizeBytes: 2}}
	for most, want := range map[int][]string{-1: {"a", "x", "y", "small"}, 0: nil, 2: {"a", "x"}, 9: {"a", "x", "y", "small"}} {
		var got []string
		for _, i := range (&Report{Images: all, MaxImages: most}).Status().Images {
			got = append(got, i.Names[0])
			if len(i.Names) > 5 {
				t.Errorf("image %s has %d names", i.Names[0], len(i.Names))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("at most %d: %v, want %v", most, got, want)
		}
	}
	if len(all[1].Names) != 6 || all[0].SizeBytes != 1 {
		t.Errorf("the report has changed: %v", all)
	}
}
