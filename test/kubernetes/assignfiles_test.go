package kubelet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/utils/cpuset"
)

const fileCases = 50

// randomCPUs returns the CPUs of some containers, and of all others.
func randomCPUs(r *rand.Rand) (of map[string]map[string]cpuset.CPUSet, shared cpuset.CPUSet) {
	ids := r.Perm(r.IntN(70))
	of = map[string]map[string]cpuset.CPUSet{}
	for range r.IntN(5) {
		n := r.IntN(len(ids) + 1)
		uid := fmt.Sprintf("uid-%d", r.IntN(3))
		if of[uid] == nil {
			of[uid] = map[string]cpuset.CPUSet{}
		}
		of[uid][fmt.Sprintf("c-%d", r.IntN(1000))] = cpuset.New(ids[:n]...)
		ids = ids[n:]
	}
	return of, cpuset.New(ids...)
}

// compareCPUFiles: the kubelet reads what deckhand writes, and the other way round; both write the same bytes.
func compareCPUFiles(t *testing.T, d *deckhand, r *rand.Rand) {
	const name = "cpu_manager_state"
	for range fileCases * *rounds {
		of, shared := randomCPUs(r)
		dir := t.TempDir()
		writer, err := cpustate.NewCheckpointState(logr.Discard(), dir, name, "static", containermap.ContainerMap{})
		if err != nil {
			t.Fatal(err)
		}
		writer.SetDefaultCPUSet(shared)
		texts := map[string]map[string]string{}
		for uid, containers := range of {
			texts[uid] = map[string]string{}
			for container, set := range containers {
				writer.SetCPUSet(uid, container, set)
				texts[uid][container] = set.String()
			}
		}
		kubelets, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		var read struct {
			CPUs *struct {
				Policy, Shared string
				Of             map[string]map[string]string
			}
		}
		if fault := d.ask(map[string]any{"DecodeCPUs": string(kubelets)}, &read); fault != "" {
			t.Fatalf("deckhand on the kubelet's %s: %s", kubelets, fault)
		}
		if read.CPUs.Policy != "static" || read.CPUs.Shared != shared.String() || !reflect.DeepEqual(read.CPUs.Of, texts) {
			t.Fatalf("deckhand reads %s as %+v", kubelets, read.CPUs)
		}

		var written struct{ Text string }
		d.ask(map[string]any{"EncodeCPUs": map[string]any{"policyName": "static", "defaultCpuSet": shared.String(), "entries": texts}}, &written)
		if written.Text != string(kubelets) {
			t.Fatalf("deckhand writes %s, the kubelet %s", written.Text, kubelets)
		}
		write(t, filepath.Join(dir, name), written.Text)
		reader, err := cpustate.NewCheckpointState(logr.Discard(), dir, name, "static", containermap.ContainerMap{})
		if err != nil {
			t.Fatalf("the kubelet on deckhand's %s: %v", written.Text, err)
		}
		if got := reader.GetDefaultCPUSet(); !got.Equals(shared) {
			t.Fatalf("the kubelet reads %s as %s", written.Text, got)
		}
		if got := reader.GetCPUAssignments(); len(got) != len(of) || !reflect.DeepEqual(map[string]map[string]cpuset.CPUSet(got), of) {
			t.Fatalf("the kubelet reads %s as %v", written.Text, got)
		}
	}
}

// compareMemoryFiles: as compareCPUFiles.
func compareMemoryFiles(t *testing.T, d *deckhand, r *rand.Rand) {
	const name = "memory_manager_state"
	kinds := []v1.ResourceName{v1.ResourceMemory, "hugepages-2Mi", "hugepages-1Gi"}
	for range fileCases * *rounds {
		dir := t.TempDir()
		writer, err := memorystate.NewCheckpointState(logr.Discard(), dir, name, "Static")
		if err != nil {
			t.Fatal(err)
		}
		machine, entries := memorystate.NUMANodeMap{}, memorystate.ContainerMemoryAssignments{}
		for id := range r.IntN(5) {
			node := &memorystate.NUMANodeState{NumberOfAssignments: r.IntN(3), MemoryMap: map[v1.ResourceName]*memorystate.MemoryTable{}, Cells: r.Perm(1 + r.IntN(3))}
			for _, kind := range kinds[:r.IntN(len(kinds)+1)] {
				node.MemoryMap[kind] = &memorystate.MemoryTable{TotalMemSize: r.Uint64(), SystemReserved: r.Uint64N(9), Allocatable: r.Uint64(), Reserved: r.Uint64N(9), Free: r.Uint64()}
			}
			machine[id] = node
		}
		for uid := range r.IntN(3) {
			containers := map[string][]memorystate.Block{}
			for c := range 1 + r.IntN(3) {
				var blocks []memorystate.Block
				for _, kind := range kinds[:1+r.IntN(len(kinds))] {
					blocks = append(blocks, memorystate.Block{NUMAAffinity: r.Perm(1 + r.IntN(3)), Type: kind, Size: r.Uint64()})
				}
				containers[fmt.Sprintf("c-%d", c)] = blocks
			}
			entries[fmt.Sprintf("uid-%d", uid)] = containers
		}
		writer.SetMachineState(machine)
		writer.SetMemoryAssignments(entries)
		kubelets, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		var read struct {
			Memory *struct {
				PolicyName   string
				MachineState memorystate.NUMANodeMap
				Entries      memorystate.ContainerMemoryAssignments
			}
		}
		if fault := d.ask(map[string]any{"DecodeMemory": string(kubelets)}, &read); fault != "" {
			t.Fatalf("deckhand on the kubelet's %s: %s", kubelets, fault)
		}
		if m := read.Memory; m.PolicyName != "Static" || !reflect.DeepEqual(m.MachineState, machine) || len(m.Entries)+len(entries) > 0 && !reflect.DeepEqual(m.Entries, entries) {
			t.Fatalf("deckhand reads %s as %+v", kubelets, m)
		}

		var written struct{ Text string }
		d.ask(map[string]any{"EncodeMemory": map[string]any{"policyName": "Static", "machineState": machine, "entries": entries}}, &written)
		if written.Text != string(kubelets) {
			t.Fatalf("deckhand writes %s, the kubelet %s", written.Text, kubelets)
		}
		write(t, filepath.Join(dir, name), written.Text)
		reader, err := memorystate.NewCheckpointState(logr.Discard(), dir, name, "Static")
		if err != nil {
			t.Fatalf("the kubelet on deckhand's %s: %v", written.Text, err)
		}
		if !reflect.DeepEqual(reader.GetMachineState(), machine) || len(entries) > 0 && !reflect.DeepEqual(reader.GetMemoryAssignments(), entries) {
			t.Fatalf("the kubelet reads %s as %+v, %+v", written.Text, reader.GetMachineState(), reader.GetMemoryAssignments())
		}
	}
}
