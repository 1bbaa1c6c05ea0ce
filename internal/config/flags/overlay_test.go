package flags

import (
	"maps"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// TestGatesAreReplacedOneByOne, and the files' other ones stay.
func TestGatesAreReplacedOneByOne(t *testing.T) {
	s := parse(t, "--feature-gates=A=true,B=true")
	inFile := map[string]bool{"B": false, "C": true}
	c := v1beta1.KubeletConfiguration{FeatureGates: inFile}
	from := s.Overlay(&c)
	if want := map[string]bool{"A": true, "B": true, "C": true}; !maps.Equal(c.FeatureGates, want) {
		t.Errorf("gates %v, want %v", c.FeatureGates, want)
	}
	if want := map[string]string{"featureGates[A]": "feature-gates", "featureGates[B]": "feature-gates"}; !maps.Equal(from, want) {
		t.Errorf("from %v, want %v", from, want)
	}
	if len(inFile) != 2 || inFile["B"] {
		t.Error("the file's own map was changed")
	}
}

// TestListsAndMapsAreReplaced, but for the patterns of verbosity.
func TestListsAndMapsAreReplaced(t *testing.T) {
	s := parse(t, "--eviction-hard=a<1", "--cluster-dns=192.0.2.1", "--vmodule=b=2", "--reserved-memory=1:memory=1Gi", "--register-with-taints=")
	patterns := make([]logsapi.VModuleItem, 1, 4) // with room, which isn't ours
	patterns[0] = logsapi.VModuleItem{FilePattern: "a", Verbosity: 1}
	c := v1beta1.KubeletConfiguration{
		EvictionHard:       map[string]string{"b": "2"},
		ClusterDNS:         []string{"192.0.2.2", "192.0.2.3"},
		ReservedMemory:     []v1beta1.MemoryReservation{{NumaNode: 7}},
		RegisterWithTaints: sampleTaints(t),
	}
	c.Logging.VModule = patterns
	s.Overlay(&c)
	if !maps.Equal(c.EvictionHard, map[string]string{"a": "1"}) || len(c.ClusterDNS) != 1 || len(c.ReservedMemory) != 1 || c.ReservedMemory[0].NumaNode != 1 || c.RegisterWithTaints != nil {
		t.Errorf("got %+v", c)
	}
	if want := (logsapi.VModuleConfiguration{{FilePattern: "a", Verbosity: 1}, {FilePattern: "b", Verbosity: 2}}); !reflect.DeepEqual(c.Logging.VModule, want) {
		t.Errorf("vmodule %v, want %v", c.Logging.VModule, want)
	}
	if patterns[:2][1].FilePattern != "" {
		t.Error("the file's own list was written to")
	}
}

func sampleTaints(t *testing.T) []v1.Taint {
	t.Helper()
	var c v1beta1.KubeletConfiguration
	parse(t, "--register-with-taints=x=y:NoExecute").Overlay(&c)
	return c.RegisterWithTaints
}

// TestEmptySaysNothing, where the kubelet has it so, or needs a text.
func TestEmptySaysNothing(t *testing.T) {
	s := parse(t, "--address=", "--healthz-bind-address=", "--reserved-memory=", "--cgroup-driver=", "--authorization-mode=")
	c := v1beta1.KubeletConfiguration{Address: "192.0.2.1", HealthzBindAddress: "192.0.2.2", ReservedMemory: []v1beta1.MemoryReservation{{NumaNode: 7}}, CgroupDriver: "systemd"}
	c.Authorization.Mode = v1beta1.KubeletAuthorizationModeWebhook
	want := c
	if from := s.Overlay(&c); len(from) > 0 || !reflect.DeepEqual(c, want) {
		t.Errorf("wrote %v: %+v", from, c)
	}
}

// TestEmptyTakesBack what the file says, where a setting may be empty.
func TestEmptyTakesBack(t *testing.T) {
	s := parse(t, "--resolv-conf=", "--pod-manifest-path=", "--cluster-domain=", "--eviction-hard=", "--cluster-dns=")
	c := v1beta1.KubeletConfiguration{ResolverConfig: ptr.To("/a"), StaticPodPath: "/b", ClusterDomain: "c", EvictionHard: map[string]string{"d": "1"}, ClusterDNS: []string{"192.0.2.1"}}
	s.Overlay(&c)
	if *c.ResolverConfig != "" || c.StaticPodPath != "" || c.ClusterDomain != "" || c.EvictionHard == nil || len(c.EvictionHard) > 0 || len(c.ClusterDNS) > 0 {
		t.Errorf("got %+v", c)
	}
}

// TestOverlayAgain: what is made of one configuration doesn't reach the next.
func TestOverlayAgain(t *testing.T) {
	s := parse(t, "--eviction-hard=a<1", "--feature-gates=A=true", "--cluster-dns=192.0.2.1", "--max-pods=5", "--oom-score-adj=5", "--vmodule=a=1",
		"--manifest-url-header=a:b", "--reserved-memory=0:memory=1Gi", "--register-with-taints=a=b:NoSchedule", "--node-labels=a=b")
	var first, second, third v1beta1.KubeletConfiguration
	s.Overlay(&first)
	s.Overlay(&second)
	first.EvictionHard["x"], first.FeatureGates["A"], first.ClusterDNS[0] = "y", false, "x"
	*first.OOMScoreAdj, first.Logging.VModule[0].FilePattern, first.StaticPodURLHeader["a"][0] = 0, "x", "x"
	delete(first.ReservedMemory[0].Limits, "memory")
	first.RegisterWithTaints[0].Key = "x"
	s.Values().NodeLabels["x"] = "y"
	s.Overlay(&third)
	if !reflect.DeepEqual(second, third) || len(s.Values().NodeLabels) != 1 {
		t.Errorf("a configuration shares memory with the flags:\n%+v\n%+v", second, third)
	}
}
