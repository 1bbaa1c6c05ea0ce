package admission_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

var tolerated = v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}

// TestPressure holds what dashboards and controllers read, and who waits where nothing would create it again.
func TestPressure(t *testing.T) {
	const (
		memory  = "rejected Evicted: The node had condition: [MemoryPressure]. "
		disk    = "rejected Evicted: The node had condition: [DiskPressure]. "
		in, not = true, false
	)
	from := func(source pod.Source, p *v1.Pod) *v1.Pod {
		p.Annotations = map[string]string{pod.AnnotationConfigSource: string(source)}
		return p
	}
	tolerates := func(p *v1.Pod, t v1.Toleration) *v1.Pod {
		return with(p, func(s *v1.PodSpec) { s.Tolerations = []v1.Toleration{t} })
	}
	of := func(qos v1.PodQOSClass) *v1.Pod { return from(pod.SourceAPI, ranked(requests("p"), 0, qos)) }
	mirror := of(v1.PodQOSBestEffort)
	mirror.Annotations[v1.MirrorPodAnnotationKey] = "hash"
	for _, tc := range []struct {
		name      string
		inCluster bool
		pressure  admission.Pressure
		pod       *v1.Pod
		want      string
	}{
		{"none", in, admission.Pressure{}, of(v1.PodQOSBestEffort), "admitted"},
		{"memory", in, admission.Pressure{Memory: true}, of(v1.PodQOSBestEffort), memory},
		{"memory, burstable", in, admission.Pressure{Memory: true}, of(v1.PodQOSBurstable), "admitted"},
		{"memory, guaranteed", in, admission.Pressure{Memory: true}, of(v1.PodQOSGuaranteed), "admitted"},
		{"memory, tolerated", in, admission.Pressure{Memory: true}, tolerates(of(v1.PodQOSBestEffort), tolerated), "admitted"},
		{"memory, everything tolerated", in, admission.Pressure{Memory: true}, tolerates(of(v1.PodQOSBestEffort), v1.Toleration{Operator: v1.TolerationOpExists}), "admitted"},
		{"memory, another effect tolerated", in, admission.Pressure{Memory: true}, tolerates(of(v1.PodQOSBestEffort), v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}), memory},
		{"disk", in, admission.Pressure{Disk: true}, of(v1.PodQOSGuaranteed), disk},
		{"disk, tolerated", in, admission.Pressure{Disk: true}, tolerates(of(v1.PodQOSGuaranteed), v1.Toleration{Operator: v1.TolerationOpExists}), disk},
		{"process IDs", in, admission.Pressure{PIDs: true}, of(v1.PodQOSBurstable), "rejected Evicted: The node had condition: [PIDPressure]. "},
		{"memory and disk, tolerated", in, admission.Pressure{Memory: true, Disk: true}, tolerates(of(v1.PodQOSBurstable), tolerated), "rejected Evicted: The node had condition: [MemoryPressure DiskPressure]. "},
		{"all", in, admission.Pressure{Memory: true, Disk: true, PIDs: true}, of(v1.PodQOSBurstable), "rejected Evicted: The node had condition: [MemoryPressure DiskPressure PIDPressure]. "},
		{"critical", in, admission.Pressure{Memory: true, Disk: true}, ranked(of(v1.PodQOSBestEffort), critical, v1.PodQOSBestEffort), "admitted"},
		{"nearly critical", in, admission.Pressure{Disk: true}, ranked(of(v1.PodQOSBestEffort), critical-1, v1.PodQOSBestEffort), disk},
		{"static", in, admission.Pressure{Disk: true}, from(pod.SourceFile, of(v1.PodQOSBestEffort)), "admitted"},
		{"mirror", in, admission.Pressure{Disk: true}, mirror, "admitted"},
		{"of another node", in, admission.Pressure{Disk: true}, with(of(v1.PodQOSBestEffort), func(s *v1.PodSpec) { s.NodeName = "other" }), "rejected NodeName: Predicate NodeName failed: node(s) didn't match the requested node name"},
		{"alone: disk", not, admission.Pressure{Disk: true}, from(pod.SourceFile, of(v1.PodQOSBestEffort)), "waits for Pressure, : the end of the node's DiskPressure"},
		{"alone: all", not, admission.Pressure{Memory: true, Disk: true, PIDs: true}, from(pod.SourceFile, of(v1.PodQOSBestEffort)), "waits for Pressure, : the end of the node's MemoryPressure, DiskPressure, PIDPressure"},
		{"alone: memory, burstable", not, admission.Pressure{Memory: true}, from(pod.SourceFile, of(v1.PodQOSBurstable)), "admitted"},
		{"alone: critical", not, admission.Pressure{Disk: true}, from(pod.SourceFile, ranked(of(v1.PodQOSBestEffort), critical, v1.PodQOSBestEffort)), "admitted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &admission.Node{Name: "node1", OS: "linux", InCluster: tc.inCluster, Pressure: tc.pressure}
			if got := told(admission.NewJudge(n, nil).Admit(tc.pod, nil)); got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestPressureLaws: pressure keeps out only, is never the reason for which another pod ends, and alone it rejects nothing.
func TestPressureLaws(t *testing.T) {
	sources := []string{"", string(pod.SourceAPI), string(pod.SourceFile), string(pod.SourceHTTP), string(pod.SourceRun)}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(what string) bool { return rapid.Bool().Draw(rt, what) }
		n := &admission.Node{Name: "node1", OS: "linux", InCluster: draw("in a cluster")}
		p := ranked(requests("p", "cpu", rapid.SampledFrom([]string{"0", "1", "3"}).Draw(rt, "cpu")), rapid.SampledFrom([]int32{-1, 0, 1, critical - 1, critical, critical + 1000}).Draw(rt, "priority"),
			rapid.SampledFrom([]v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}).Draw(rt, "qos"))
		source := rapid.SampledFrom(sources).Draw(rt, "source")
		p.Annotations = map[string]string{pod.AnnotationConfigSource: source}
		tolerates := draw("tolerates")
		if tolerates {
			p.Spec.Tolerations = []v1.Toleration{tolerated}
		}
		answer := func(pressure admission.Pressure) admission.Answer {
			n.Pressure = pressure
			j := admission.NewJudge(n, admission.Amount{v1.ResourceCPU: 4000})
			j.Add(held(ranked(requests(types.UID("held"), "cpu", "2"), 0, v1.PodQOSBurstable)))
			return j.Admit(p, admission.Need(p))
		}
		pressure := admission.Pressure{Memory: draw("memory"), Disk: draw("disk"), PIDs: draw("PIDs")}
		without, under := answer(admission.Pressure{}), answer(pressure)
		exempt := *p.Spec.Priority >= critical || n.InCluster && source != "" && source != string(pod.SourceAPI)
		onlyMemory := !pressure.Disk && !pressure.PIDs
		passes := pressure == (admission.Pressure{}) || exempt || onlyMemory && (p.Status.QOSClass != v1.PodQOSBestEffort || tolerates)
		f := under.Failure
		switch {
		case passes:
			if told(under) != told(without) || len(under.Preempt) != len(without.Preempt) {
				rt.Fatalf("%s, and without pressure %s", told(under), told(without))
			}
		case f == nil || under.Preempt != nil:
			rt.Fatalf("%s, and %v end for it", told(under), under.Preempt)
		case f.Rejected != n.InCluster || n.InCluster && f.Reason != pod.ReasonEvicted || !n.InCluster && f.Wait != pod.WaitForPressure:
			rt.Fatalf("in a cluster: %v, %s", n.InCluster, told(under))
		}
		for kind, holds := range map[string]bool{"MemoryPressure": pressure.Memory, "DiskPressure": pressure.Disk, "PIDPressure": pressure.PIDs} {
			if !passes && strings.Contains(f.Message, kind) != holds {
				rt.Fatalf("%s is %v: %s", kind, holds, f.Message)
			}
		}
	})
}
