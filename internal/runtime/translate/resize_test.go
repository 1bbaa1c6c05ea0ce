package translate_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestUpdateOfContainerResources(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[v1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	both := v1.ResourceRequirements{Requests: list("250m", "32Mi"), Limits: list("500m", "64Mi")}
	for _, c := range []struct {
		name string
		s    translate.Settings
		a    translate.Assignment
		r    v1.ResourceRequirements
		want *runtimeapi.LinuxContainerResources
	}{
		{"both", translate.Settings{}, translate.Assignment{}, both,
			&runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 100_000, CpuQuota: 50_000, MemoryLimitInBytes: 64 << 20}},
		{"the request is the limit", translate.Settings{}, translate.Assignment{}, v1.ResourceRequirements{Limits: list("500m", "")},
			&runtimeapi.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100_000, CpuQuota: 50_000, MemoryLimitInBytes: -1}},
		{"nothing: every limit goes", translate.Settings{}, translate.Assignment{}, v1.ResourceRequirements{},
			&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000, CpuQuota: -1, MemoryLimitInBytes: -1}},
		{"no quotas on this node", translate.Settings{NoCPUQuota: true}, translate.Assignment{}, both,
			&runtimeapi.LinuxContainerResources{CpuShares: 256, MemoryLimitInBytes: 64 << 20}},
		{"another period", translate.Settings{CPUQuotaPeriod: 10 * time.Millisecond}, translate.Assignment{}, both,
			&runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 10_000, CpuQuota: 5_000, MemoryLimitInBytes: 64 << 20}},
		{"no swap", translate.Settings{BoundSwap: true, MemoryCapacity: gi}, translate.Assignment{}, both,
			&runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 100_000, CpuQuota: 50_000, MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 64 << 20}},
		{"no swap, no limit", translate.Settings{BoundSwap: true}, translate.Assignment{}, v1.ResourceRequirements{},
			&runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100_000, CpuQuota: -1, MemoryLimitInBytes: -1, MemorySwapLimitInBytes: -1}},
		{"its own CPUs", translate.Settings{}, translate.Assignment{CPUs: "2-3", Mems: "0", NoQuota: true}, both,
			&runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 100_000, CpuQuota: -1, MemoryLimitInBytes: 64 << 20, CpusetCpus: "2-3", CpusetMems: "0"}},
		{"CPUs of the shared pool", translate.Settings{}, translate.Assignment{CPUs: "0-1"}, both,
			&runtimeapi.LinuxContainerResources{CpuShares: 256, CpuPeriod: 100_000, CpuQuota: 50_000, MemoryLimitInBytes: 64 << 20, CpusetCpus: "0-1"}},
	} {
		equal(t, c.name, translate.ResizedResources(&c.s, &v1.Pod{}, &v1.Container{}, c.r, c.a).String(), c.want.String())
	}
}
