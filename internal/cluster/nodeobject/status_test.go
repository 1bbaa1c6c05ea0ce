package nodeobject

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
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
