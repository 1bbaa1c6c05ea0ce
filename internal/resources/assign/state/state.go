// Package state is the form of the kubelet's files about CPUs and memory that containers have to themselves:
// cpu_manager_state and memory_manager_state. A kubelet and the agent read each other's files.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/dump"
)

// The names of this package and of types in it that occur in a file are the kubelet's: its checksum is over a text with
// the names of the types.

// Checksum is the checksum of a file's content.
type Checksum uint64

// CPUManagerCheckpoint is the content of cpu_manager_state.
type CPUManagerCheckpoint struct {
	PolicyName string `json:"policyName"`
	// DefaultCPUSet are the CPUs of all containers that have none to themselves; empty with the policy none.
	DefaultCPUSet string `json:"defaultCpuSet"`
	// Entries are the CPUs of containers by the UID of the pod and the name of the container.
	Entries  map[string]map[string]string `json:"entries,omitempty"`
	Checksum Checksum                     `json:"checksum"`
}

// podEntry are the CPUs of a pod as a whole, which a kubelet records if its alpha gate PodLevelResourceManagers is on.
type podEntry struct {
	CPUSet string `json:"cpuSet,omitempty"`
}

// cpuManagerCheckpointV1 is the form before Kubernetes 1.18: Entries has the IDs of containers.
type cpuManagerCheckpointV1 struct {
	PolicyName    string            `json:"policyName"`
	DefaultCPUSet string            `json:"defaultCpuSet"`
	Entries       map[string]string `json:"entries,omitempty"`
	Checksum      Checksum          `json:"checksum"`
}

// Encode returns the text of the file. It sets the checksum.
func (c *CPUManagerCheckpoint) Encode() ([]byte, error) { return c.EncodeWith(nil) }

// EncodeWith returns the text of the file with the CPUs of pods as a whole, by UID. The checksum doesn't cover these: a
// kubelet without PodLevelResourceManagers ignores them.
func (c *CPUManagerCheckpoint) EncodeWith(pods map[string]string) ([]byte, error) {
	c.Checksum = 0
	c.Checksum = sum(c)
	file := struct {
		*CPUManagerCheckpoint
		PodEntries map[string]podEntry `json:"podEntries,omitempty"`
	}{c, map[string]podEntry{}}
	for uid, list := range pods {
		file.PodEntries[uid] = podEntry{list}
	}
	return json.Marshal(file)
}

// CPUs is the content of a cpu_manager_state of any version.
type CPUs struct {
	Policy string
	// Shared are the CPUs of all containers that have none to themselves.
	Shared cpuset.CPUSet
	// Of are the CPUs of containers by the UID of the pod and the name of the container, ByID by the container's ID:
	// Kubernetes before 1.18 wrote these.
	Of   map[string]map[string]cpuset.CPUSet
	ByID map[string]cpuset.CPUSet
	// Pods are the CPUs of pods as a whole.
	Pods map[string]cpuset.CPUSet
}

// DecodeCPUs reads a cpu_manager_state of any version. The checksum of the alpha form with podEntries isn't verified.
func DecodeCPUs(text []byte) (*CPUs, error) {
	var file struct {
		CPUManagerCheckpoint
		PodEntries json.RawMessage            `json:"podEntries"`
		Entries    map[string]json.RawMessage `json:"entries"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if file.PolicyName == "" {
		return nil, errors.New("it has no policyName")
	}
	c := &CPUs{Policy: file.PolicyName, Of: map[string]map[string]cpuset.CPUSet{}, ByID: map[string]cpuset.CPUSet{},
		Pods: map[string]cpuset.CPUSet{}}
	var errs []error
	listed := 0
	parse := func(list string) cpuset.CPUSet {
		if list == "" || len(errs) > 0 {
			return cpuset.New()
		}
		set := cpuset.New()
		count, err := countList(list)
		if listed += count; err == nil && listed > maxListed {
			err = fmt.Errorf("the file has more than %d CPUs", maxListed)
		}
		if err == nil {
			set, err = cpuset.Parse(list)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the CPUs %q: %w", list, err))
		}
		return set
	}
	c.Shared = parse(file.DefaultCPUSet)
	var pods map[string]podEntry
	if json.Unmarshal(file.PodEntries, &pods) == nil { // a later form of an alpha feature is no damage
		for uid, e := range pods {
			c.Pods[uid] = parse(e.CPUSet)
		}
	}
	v1 := cpuManagerCheckpointV1{PolicyName: file.PolicyName, DefaultCPUSet: file.DefaultCPUSet,
		Entries: map[string]string{}}
	now := CPUManagerCheckpoint{PolicyName: file.PolicyName, DefaultCPUSet: file.DefaultCPUSet,
		Entries: map[string]map[string]string{}}
	for key, value := range file.Entries {
		var list string
		var lists map[string]string
		if json.Unmarshal(value, &list) == nil {
			v1.Entries[key], c.ByID[key] = list, parse(list)
		} else if err := json.Unmarshal(value, &lists); err != nil {
			return nil, err
		} else {
			now.Entries[key], c.Of[key] = lists, map[string]cpuset.CPUSet{}
			for name, list := range lists {
				c.Of[key][name] = parse(list)
			}
		}
	}
	ok := file.Checksum == sum(&now)
	switch {
	case len(file.PodEntries) > 0:
		ok = true
	case len(v1.Entries) > 0:
		ok = len(now.Entries) == 0 && (file.Checksum == sum(&v1) || file.Checksum == 0)
	case file.Checksum == 0:
		ok = true // Kubernetes took that in this form, too
	}
	if !ok {
		errs = append(errs, errors.New("its checksum is another one"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// maxCPUs bounds the IDs of CPUs: no kernel has more CPUs, and to expand "0-9999999999" takes all memory. maxListed
// bounds the CPUs of all lists of a file: an exclusive CPU is in one list, or in a few of the same pod.
const (
	maxCPUs   = 8192
	maxListed = 16 * maxCPUs
)

// countList returns how many CPUs a list has. It fails for an ID that no CPU has.
func countList(list string) (count int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		var ends [2]int
		for i, id := range [...]string{from, to} {
			if ends[i], err = strconv.Atoi(strings.TrimSpace(id)); err != nil || ends[i] >= maxCPUs {
				return 0, fmt.Errorf("%q is no CPU", id)
			}
		}
		count += max(0, ends[1]-ends[0]) + 1
	}
	return count, nil
}

// MemoryManagerCheckpoint is the content of memory_manager_state.
type MemoryManagerCheckpoint struct {
	PolicyName string `json:"policyName"`
	// MachineState is the state of the NUMA nodes by their IDs.
	MachineState NUMANodeMap `json:"machineState"`
	// Entries are the blocks of containers by the UID of the pod and the name of the container.
	Entries  ContainerMemoryAssignments `json:"entries,omitempty"`
	Checksum Checksum                   `json:"checksum"`
}

// NUMANodeMap has NUMA nodes by their IDs.
type NUMANodeMap map[int]*NUMANodeState

// NUMANodeState is the use of a NUMA node's memory.
type NUMANodeState struct {
	// NumberOfAssignments is how many blocks of containers touch the node.
	NumberOfAssignments int `json:"numberOfAssignments"`
	// MemoryMap has memory and huge pages.
	MemoryMap map[v1.ResourceName]*MemoryTable `json:"memoryMap"`
	// Cells are the nodes that are used together with this one, and itself.
	Cells []int `json:"cells"`
}

// MemoryTable is the use of one kind of memory of a NUMA node, in bytes.
type MemoryTable struct {
	TotalMemSize   uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

// ContainerMemoryAssignments has blocks by the UID of the pod and the name of the container.
type ContainerMemoryAssignments map[string]map[string][]Block

// Block is memory of one kind that a container has on some NUMA nodes.
type Block struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

// Encode returns the text of the file. It sets the checksum.
func (c *MemoryManagerCheckpoint) Encode() ([]byte, error) {
	c.Checksum = 0
	c.Checksum = sum(c)
	return json.Marshal(c)
}

// DecodeMemory reads a memory_manager_state of any version. The checksum of the alpha form with podEntries isn't
// verified.
func DecodeMemory(text []byte) (*MemoryManagerCheckpoint, error) {
	var file struct {
		MemoryManagerCheckpoint
		PodEntries json.RawMessage `json:"podEntries"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	c := &file.MemoryManagerCheckpoint
	if c.MachineState == nil {
		c.MachineState = NUMANodeMap{}
	}
	if c.Entries == nil {
		c.Entries = ContainerMemoryAssignments{}
	}
	for id, n := range c.MachineState {
		if n == nil {
			return nil, fmt.Errorf("NUMA node %d has no state", id)
		}
		for kind, table := range n.MemoryMap {
			if table == nil {
				return nil, fmt.Errorf("NUMA node %d has no figures of %s", id, kind)
			}
		}
	}
	want := c.Checksum
	c.Checksum = 0
	if c.Checksum = sum(c); c.Checksum != want && len(file.PodEntries) == 0 {
		return nil, errors.New("its checksum is another one")
	}
	return c, nil
}

// sum is the FNV-32a sum of a content with the checksum 0, in the kubelet's text form, in which the type precedes each
// value.
func sum(content any) Checksum {
	text := strings.Replace(dump.ForHash(content), "(*state.cpuManagerCheckpointV1)",
		"(*state.CPUManagerCheckpoint)", 1)
	text = strings.TrimSuffix(text, "(state.Checksum)0}") + "(checksum.Checksum)0}"
	h := fnv.New32a()
	h.Write([]byte(text))
	return Checksum(h.Sum32())
}
