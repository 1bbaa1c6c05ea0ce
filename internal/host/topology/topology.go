// Package topology reads how a machine's CPUs and memory belong together: cores, caches, sockets and NUMA nodes.
package topology

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
)

// Machine is the state of a machine's CPUs and memory at one time.
type Machine struct {
	// CPUs are the online CPUs by ascending ID.
	CPUs []CPU
	// Offline are CPUs of the machine that aren't online.
	Offline cpuset.CPUSet
	// Isolated are CPUs on which the kernel schedules nothing by itself (isolcpus).
	Isolated cpuset.CPUSet
	// Nodes are the NUMA nodes by ascending ID. There is at least one; a node may have no CPUs or no memory.
	Nodes []Node
	// Flat says that the kernel describes no NUMA nodes: all is in node 0.
	Flat bool
}

// CPU is a logical CPU.
type CPU struct {
	ID int
	// Core is the lowest ID of the online CPUs of the same physical core.
	Core int
	// Socket is 0 where the kernel knows no sockets, as on some arm64 machines.
	Socket int
	// Node is the ID of the NUMA node.
	Node int
	// Cache is the lowest ID of the online CPUs that share the last-level cache (L3), and Core if there is none.
	Cache int
}

// Node is a NUMA node.
type Node struct {
	ID int
	// Memory is the node's memory in bytes, without the part that the kernel reserved for itself at boot.
	Memory int64
	// HugePages are the node's preallocated huge pages.
	HugePages []capacity.HugePages
	// Distances are the distances to the nodes of Machine.Nodes, in their order; nil if the kernel doesn't tell them.
	Distances []int
}

// Online are the IDs of all online CPUs.
func (m *Machine) Online() cpuset.CPUSet {
	ids := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		ids[i] = c.ID
	}
	return cpuset.New(ids...)
}

// The directories of sysfs that are read.
const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

// Read reads the machine whose root directory is root. It fails if it can't find the online CPUs; other facts that are
// missing get the values of a machine without them: cores of one CPU, one socket, one NUMA node.
func Read(root fs.FS) (Machine, error) {
	r := reader{root}
	online, err := r.set(path.Join(cpuDir, "online"))
	if err != nil {
		return Machine{}, fmt.Errorf("find out which CPUs are online: %w", err)
	}
	if online.IsEmpty() {
		return Machine{}, fmt.Errorf("find out which CPUs are online: /%s/online names none", cpuDir)
	}
	present, _ := r.set(path.Join(cpuDir, "present"))
	isolated, _ := r.set(path.Join(cpuDir, "isolated"))
	m := Machine{Offline: present.Difference(online), Isolated: isolated}
	nodeOf := r.nodes(&m)
	for _, id := range online.List() {
		dir := path.Join(cpuDir, "cpu"+strconv.Itoa(id))
		c := CPU{ID: id, Core: r.lowest(path.Join(dir, "topology/thread_siblings_list"), id, online)}
		// -1 says that the kernel doesn't know.
		c.Socket = max(0, r.number(path.Join(dir, "topology/physical_package_id")))
		c.Node = m.Nodes[0].ID
		if node, ok := nodeOf[id]; ok {
			c.Node = node
		}
		c.Cache = r.cache(dir, c.Core, online)
		m.CPUs = append(m.CPUs, c)
	}
	return m, nil
}

type reader struct{ root fs.FS }

// nodes sets the machine's NUMA nodes, and returns the node of each CPU.
func (r reader) nodes(m *Machine) map[int]int {
	of := map[int]int{}
	dirs, _ := fs.Glob(r.root, path.Join(nodeDir, "node[0-9]*"))
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		if err != nil {
			continue
		}
		n := Node{ID: id, Memory: r.memory(path.Join(dir, "meminfo")), Distances: r.numbers(path.Join(dir, "distance")),
			HugePages: r.hugePages(path.Join(dir, "hugepages"))}
		cpus, _ := r.set(path.Join(dir, "cpulist"))
		for _, cpu := range cpus.UnsortedList() {
			of[cpu] = id
		}
		m.Nodes = append(m.Nodes, n)
	}
	if len(m.Nodes) == 0 {
		m.Flat = true
		m.Nodes = []Node{{Memory: r.memory("proc/meminfo"), HugePages: r.hugePages(capacity.HugePagesDir)}}
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return a.ID - b.ID })
	for i := range m.Nodes {
		if len(m.Nodes[i].Distances) != len(m.Nodes) {
			m.Nodes[i].Distances = nil
		}
	}
	return of
}

// cache returns the lowest ID of the online CPUs that share the L3 cache of the CPU in dir, or core.
func (r reader) cache(dir string, core int, online cpuset.CPUSet) int {
	levels, _ := fs.Glob(r.root, path.Join(dir, "cache/index*/level"))
	for _, level := range levels {
		if r.number(level) == 3 {
			return r.lowest(path.Join(path.Dir(level), "shared_cpu_list"), core, online)
		}
	}
	return core
}

// lowest returns the lowest online CPU in a file's list, or id if there is none.
func (r reader) lowest(name string, id int, online cpuset.CPUSet) int {
	list, _ := r.set(name)
	list = list.Intersection(online)
	if list.IsEmpty() {
		return id
	}
	return slices.Min(list.UnsortedList())
}

// memory returns MemTotal of a meminfo in bytes; 0 if it isn't there.
func (r reader) memory(name string) int64 {
	text, _ := fs.ReadFile(r.root, name)
	info, _ := capacity.ParseMeminfo(text)
	return info.Memory
}

func (r reader) hugePages(dir string) []capacity.HugePages {
	sub, err := fs.Sub(r.root, dir)
	if err != nil {
		return nil
	}
	pages, _ := capacity.ReadHugePages(sub)
	return pages
}

func (r reader) set(name string) (cpuset.CPUSet, error) {
	text, err := fs.ReadFile(r.root, name)
	if err != nil {
		return cpuset.New(), err
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return cpuset.New(), fmt.Errorf("/%s: %w", name, err)
	}
	return set, nil
}

// number returns a file's number; -1 if it has none.
func (r reader) number(name string) int {
	if n := r.numbers(name); len(n) == 1 {
		return n[0]
	}
	return -1
}

// numbers returns a file's numbers; none if one of them isn't a number.
func (r reader) numbers(name string) (out []int) {
	text, _ := fs.ReadFile(r.root, name)
	for _, word := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil
		}
		out = append(out, n)
	}
	return out
}
