package command

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// What uses most is first, what isn't known is said to be, and -w goes on with what is used then.
func TestTop(t *testing.T) {
	use := func(millis, mebibytes uint64) (*statsapi.CPUStats, *statsapi.MemoryStats) {
		return &statsapi.CPUStats{UsageNanoCores: ptr.To(millis * 1e6)}, &statsapi.MemoryStats{WorkingSetBytes: ptr.To(mebibytes << 20), AvailableBytes: ptr.To[uint64](64 << 20)}
	}
	podStats := func(namespace, name string, millis, mebibytes uint64) statsapi.PodStats {
		cpu, memory := use(millis, mebibytes)
		return statsapi.PodStats{PodRef: statsapi.PodReference{Namespace: namespace, Name: name}, CPU: cpu, Memory: memory, Containers: []statsapi.ContainerStats{{Name: "main", CPU: cpu}}}
	}
	var summary atomic.Pointer[statsapi.Summary]
	set := func(webMillis uint64) {
		cpu, memory := use(300, 500)
		own, ownMemory := use(2, 40)
		summary.Store(&statsapi.Summary{Node: statsapi.NodeStats{NodeName: "n1", CPU: cpu, Memory: memory, SystemContainers: []statsapi.ContainerStats{{Name: "kubelet", CPU: own, Memory: ownMemory}}},
			Pods: []statsapi.PodStats{podStats("default", "idle-n1", 0, 90), podStats("default", "web-n1", webMillis, 12)}})
	}
	set(250)
	agent := localtest.New()
	agent.Pages = map[string]http.Handler{"/stats/summary": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(summary.Load()); err != nil {
			t.Error(err)
		}
	})}
	deps := Deps{RootDir: localtest.Serve(t, agent)}
	const (
		heading = "NAMESPACE   NAME      CPU(cores)   MEMORY(bytes)   DISK        RECEIVED    SENT        PROCESSES"
		unknown = "            <unknown>   <unknown>   <unknown>   <unknown>"
	)
	watched := begin(t, deps, "", "top", "pods", "-w")
	watched.expect(watched.out, heading, "default     web-n1    250m         12Mi"+unknown, "default     idle-n1   0m           90Mi"+unknown)
	set(7)
	for line, want := range map[string][]string{
		"top pods --sort-by memory --namespace default": {heading, "default     idle-n1   0m           90Mi" + unknown, "default     web-n1    7m           12Mi" + unknown},
		"top pods --containers pod/web":                 {"NAMESPACE   NAME     CONTAINER   CPU(cores)   MEMORY(bytes)   DISK", "default     web-n1   main        7m           <unknown>       <unknown>"},
		"top node": {"NAME        CPU(cores)   MEMORY(bytes)   AVAILABLE(bytes)   DISK        FREE        RECEIVED    SENT        PROCESSES",
			"n1          300m         500Mi           64Mi               <unknown>   <unknown>   <unknown>   <unknown>   <unknown>", "  kubelet   2m           40Mi            64Mi"},
	} {
		s := begin(t, deps, "", strings.Fields(line)...)
		s.expect(s.out, want...)
		s.ended(0)
	}
	wrong := begin(t, deps, "", "top", "pods", "other")
	wrong.expect(wrong.err, "error: no pod that runs is called other: `deckhand pods` lists all")
	wrong.ended(1)
	watched.expect(watched.out, "", heading, "default     web-n1    7m           12Mi"+unknown, "default     idle-n1   0m           90Mi"+unknown)
	watched.stop()
	watched.ended(0)
}
