package critest

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const mi = 1 << 20

func (f *fixture) update(t *testing.T, id string, r *runtimeapi.LinuxContainerResources) {
	t.Helper()
	if _, err := f.runtime.UpdateContainerResources(f.ctx,
		&runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r}); err != nil {
		t.Fatalf("UpdateContainerResources: %v", err)
	}
}

func testUpdateResources(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "sleep", "1h")
	want := &runtimeapi.LinuxContainerResources{CpuShares: 100}
	check := func(when string) {
		t.Helper()
		got := f.containerStatus(t, id).GetResources().GetLinux()
		have := &runtimeapi.LinuxContainerResources{CpuShares: got.GetCpuShares(), CpuPeriod: got.GetCpuPeriod(),
			CpuQuota: got.GetCpuQuota(), MemoryLimitInBytes: got.GetMemoryLimitInBytes()}
		if !proto.Equal(have, want) {
			t.Errorf("%s its resources are %v, want %v", when, have, want)
		}
		if f.Limits == nil {
			return
		}
		shares, quota, memory := f.Limits(t, p.config.GetMetadata().GetUid(), id)
		if shares != want.CpuShares || want.CpuQuota != 0 && quota != want.CpuQuota || want.MemoryLimitInBytes > 0 &&
			memory != want.MemoryLimitInBytes || want.MemoryLimitInBytes < 0 && memory < 1<<40 {
			t.Errorf("%s its control group has %d shares, a quota of %d and %d bytes of memory, want %v", when, shares,
				quota, memory, want)
		}
	}
	check("as created")
	want.CpuPeriod, want.CpuQuota, want.MemoryLimitInBytes = 100000, 50000, 64*mi
	f.update(t, id, &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 50000,
		MemoryLimitInBytes: 64 * mi})
	check("with limits")
	want.CpuShares = 200
	f.update(t, id, &runtimeapi.LinuxContainerResources{CpuShares: 200})
	check("with more shares") // 0 leaves the other values unchanged
	want.MemoryLimitInBytes = 48 * mi
	f.update(t, id, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 48 * mi})
	check("with less memory")
	want.CpuQuota, want.MemoryLimitInBytes = -1, -1
	f.update(t, id, &runtimeapi.LinuxContainerResources{CpuQuota: -1, MemoryLimitInBytes: -1})
	check("without limits")

	f.stopContainer(t, id, 0)
	f.update(t, id, &runtimeapi.LinuxContainerResources{CpuShares: 300}) // no effect, but no error
}

func testUpdateSandboxResources(t *testing.T, f *fixture) {
	p := f.runPod(t)
	update := func(id string) error {
		_, err := f.runtime.UpdatePodSandboxResources(f.ctx,
			&runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id,
				Overhead:  &runtimeapi.LinuxContainerResources{CpuShares: 10},
				Resources: &runtimeapi.LinuxContainerResources{CpuShares: 200, MemoryLimitInBytes: 64 * mi}})
		return err
	}
	if err := update(p.id); err != nil {
		t.Errorf("UpdatePodSandboxResources: %v", err)
	}
	wantCode(t, "UpdatePodSandboxResources of no sandbox", update("none"), codes.NotFound)
}

func testStats(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "sleep", "1h")
	stats := func(id string) (*runtimeapi.ContainerStats, error) {
		r, err := f.runtime.ContainerStats(f.ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
		return r.GetStats(), err
	}
	st, err := stats(id)
	if err != nil {
		t.Fatal(err)
	}
	if st.GetAttributes().GetId() != id || st.GetMemory().GetUsageBytes().GetValue() == 0 ||
		st.GetMemory().GetWorkingSetBytes().GetValue() == 0 {
		t.Errorf("it uses %v, want some memory in use", st)
	}
	wantRecent(t, "the time of its memory usage", st.GetMemory().GetTimestamp())
	f.stopContainer(t, id, 0)
	_, err = stats(id)
	wantError(t, "stats of an exited container", err)
	_, err = stats("none")
	wantCode(t, "stats of no container", err, codes.NotFound)
}

func testOutOfMemory(t *testing.T, f *fixture) {
	p := f.runPod(t)
	config := p.containerConfig("main", "cat", "/dev/zero")
	config.Linux.Resources.MemoryLimitInBytes = 32 * mi
	id := p.create(t, config)
	f.startContainer(t, id)
	if st := f.awaitExit(t, id); st.GetExitCode() != 137 || st.GetReason() != "OOMKilled" {
		t.Errorf("it ended with code %d and reason %q, want 137 and OOMKilled", st.GetExitCode(), st.GetReason())
	}
}
