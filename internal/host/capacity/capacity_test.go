package capacity_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
)

func TestAllocatable(t *testing.T) {
	const gi = 1 << 30
	type values = map[string]string
	for _, c := range []struct {
		name        string
		conf        v1beta1.KubeletConfiguration
		cpu, memory string
		err         string
	}{
		{name: "nothing reserved", cpu: "4", memory: "10Gi"},
		{name: "all of it", conf: v1beta1.KubeletConfiguration{
			KubeReserved: values{"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}, SystemReserved: values{"cpu": "1", "memory": "512Mi", "pid": "100"},
			EvictionHard: values{"memory.available": "512Mi", "nodefs.available": "10%"},
		}, cpu: "2500m", memory: "8Gi"},
		{name: "a share", conf: v1beta1.KubeletConfiguration{EvictionHard: values{"memory.available": "10%"}}, cpu: "4", memory: "9Gi"},
		{name: "half a percent", conf: v1beta1.KubeletConfiguration{EvictionHard: values{"memory.available": "0.5%"}}, cpu: "4", memory: "10683731149"},
		{name: "switched off", conf: v1beta1.KubeletConfiguration{EvictionHard: values{"memory.available": "100%"}}, cpu: "4", memory: "10Gi"},
		{name: "CPUs of the system", conf: v1beta1.KubeletConfiguration{KubeReserved: values{"cpu": "3"}, ReservedSystemCPUs: "0-1,3"}, cpu: "1", memory: "10Gi"},
		{name: "everything", conf: v1beta1.KubeletConfiguration{KubeReserved: values{"cpu": "4", "memory": "10Gi"}}, cpu: "0", memory: "0"},
		{name: "too much cpu", conf: v1beta1.KubeletConfiguration{KubeReserved: values{"cpu": "2"}, SystemReserved: values{"cpu": "2001m"}}, err: "4001m of cpu"},
		{name: "too much memory", conf: v1beta1.KubeletConfiguration{KubeReserved: values{"memory": "10Gi"}, EvictionHard: values{"memory.available": "1"}}, err: "10737418241 bytes of memory"},
		{name: "no quantity", conf: v1beta1.KubeletConfiguration{SystemReserved: values{"memory": "10%"}}, err: `systemReserved memory "10%"`},
		{name: "less than nothing", conf: v1beta1.KubeletConfiguration{KubeReserved: values{"cpu": "-1"}}, err: `kubeReserved cpu "-1" is negative`},
		{name: "no threshold", conf: v1beta1.KubeletConfiguration{EvictionHard: values{"memory.available": "lots"}}, err: `evictionHard memory.available "lots"`},
		{name: "negative threshold", conf: v1beta1.KubeletConfiguration{EvictionHard: values{"memory.available": "-1Mi"}}, err: "negative"},
		{name: "no share", conf: v1beta1.KubeletConfiguration{EvictionHard: values{"memory.available": "NaN%"}}, err: `"NaN%"`},
		{name: "more than all", conf: v1beta1.KubeletConfiguration{EvictionHard: values{"memory.available": "101%"}}, err: `"101%"`},
		{name: "no CPUs", conf: v1beta1.KubeletConfiguration{ReservedSystemCPUs: "two"}, err: `reservedSystemCPUs "two"`},
	} {
		got, err := capacity.Node{CPUs: 4, Memory: 10 * gi}.Allocatable(&c.conf)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, %v, want an error with %q", c.name, got, err, c.err)
			}
			continue
		}
		if err != nil || got.Cpu().Cmp(resource.MustParse(c.cpu)) != 0 || got.Memory().Cmp(resource.MustParse(c.memory)) != 0 {
			t.Errorf("%s: cpu %v, memory %v (%v), want %s, %s", c.name, got.Cpu(), got.Memory(), err, c.cpu, c.memory)
		}
		// What isn't allocatable is reserved.
		all := capacity.Node{CPUs: 4, Memory: 10 * gi, Storage: 100 * gi}
		left, list := all.Capacity(), v1.ResourceList{}
		r, err := all.Reserved(&c.conf)
		if err == nil {
			list, err = all.Allocatable(&c.conf)
		}
		for name, q := range left {
			for _, reserved := range []v1.ResourceList{r.System, r.Kube, r.Eviction} {
				q.Sub(reserved[name])
			}
			if err != nil || q.Cmp(list[name]) != 0 {
				t.Errorf("%s: reserved are %+v, which leaves %s of %s, and allocatable are %v (%v)", c.name, r, q.String(), name, list, err)
			}
		}
	}
}

func TestPods(t *testing.T) {
	for _, c := range []struct{ most, perCore, want int32 }{{110, 0, 110}, {110, 10, 40}, {30, 10, 30}, {0, 10, 0}} {
		got := capacity.Node{CPUs: 4}.Pods(&v1beta1.KubeletConfiguration{MaxPods: c.most, PodsPerCore: c.perCore})
		if got.Value() != int64(c.want) {
			t.Errorf("maxPods %d, podsPerCore %d on 4 CPUs: %s, want %d", c.most, c.perCore, got.String(), c.want)
		}
	}
}
