package topology_test

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/host/topology"
)

// tree describes a machine whose CPUs are numbered in the order of the sockets, NUMA nodes, caches, cores and threads
// below, unless number says otherwise.
type tree struct {
	sockets, nodes, caches, cores, threads int // of each: nodes of a socket, caches of a node, ...
	// number returns the ID of the thread of the core; both count over the whole machine.
	number  func(core, thread int) int
	offline []int
	// socketID is what the kernel says of a socket's ID.
	socketID func(socket int) int
	noCache  bool
	noNodes  bool
	// bare are NUMA nodes without CPUs, after the others; empty are nodes without memory.
	bare, empty int
	nodeID      func(node int) int
}

// spread numbers all first threads before all second ones, as firmware of x86 does; odd numbers from behind.
func spread(total int) func(core, thread int) int {
	return func(core, thread int) int { return thread*total + core }
}

func odd(total int) func(core, thread int) int {
	return func(core, thread int) int { return 2*(total-1-core) + 1 - thread }
}

// build returns the files of the tree's machine, and the machine that they describe.
func (d tree) build() (fstest.MapFS, topology.Machine) {
	files := fstest.MapFS{}
	write := func(text string, name string, args ...any) {
		files[fmt.Sprintf(name, args...)] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	number, socketID, nodeID := d.number, d.socketID, d.nodeID
	if number == nil {
		number = func(core, thread int) int { return core*d.threads + thread }
	}
	if socketID == nil {
		socketID = func(socket int) int { return socket }
	}
	if nodeID == nil {
		nodeID = func(node int) int { return node }
	}
	off := cpuset.New(d.offline...)
	want := topology.Machine{Offline: off, Isolated: cpuset.New(), Flat: d.noNodes}
	var present []int
	online := func(ids []int) cpuset.CPUSet { return cpuset.New(ids...).Difference(off) }
	first := func(ids []int) int { return slices.Min(online(ids).UnsortedList()) }
	nodes := d.sockets*d.nodes + d.bare
	cpus := make([][]int, nodes)
	core := 0
	for socket := range d.sockets {
		for node := range d.nodes {
			node += socket * d.nodes
			for range d.caches {
				var shared []int
				var members []topology.CPU
				for range d.cores {
					var siblings []int
					for thread := range d.threads {
						siblings = append(siblings, number(core, thread))
					}
					core++
					shared = append(shared, siblings...)
					for _, id := range online(siblings).List() {
						write(online(siblings).String(), "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", id)
						write(strconv.Itoa(socketID(socket)), "sys/devices/system/cpu/cpu%d/topology/physical_package_id", id)
						c := topology.CPU{ID: id, Core: first(siblings), Socket: max(0, socketID(socket)), Node: nodeID(node)}
						if d.noNodes {
							c.Node = 0
						}
						members = append(members, c)
					}
				}
				present = append(present, shared...)
				cpus[node] = append(cpus[node], shared...)
				for i := range members {
					c := &members[i]
					c.Cache = c.Core
					write("2", "sys/devices/system/cpu/cpu%d/cache/index2/level", c.ID)
					write(strconv.Itoa(c.ID), "sys/devices/system/cpu/cpu%d/cache/index2/shared_cpu_list", c.ID)
					if !d.noCache {
						c.Cache = first(shared)
						write("3", "sys/devices/system/cpu/cpu%d/cache/index3/level", c.ID)
						write(online(shared).String(), "sys/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list", c.ID)
					}
				}
				want.CPUs = append(want.CPUs, members...)
			}
		}
	}
	slices.SortFunc(want.CPUs, func(a, b topology.CPU) int { return a.ID - b.ID })
	write(cpuset.New(present...).String(), "sys/devices/system/cpu/present")
	write(online(present).String(), "sys/devices/system/cpu/online")
	write("", "sys/devices/system/cpu/isolated")
	write("MemTotal:       4096 kB\nMemFree:        1 kB", "proc/meminfo")
	if d.noNodes {
		want.Nodes = []topology.Node{{Memory: 4 << 20}}
		return files, want
	}
	for i := range nodes {
		n := topology.Node{ID: nodeID(i), Memory: int64(i+1) << 20}
		var distances []string
		for other := range nodes {
			distance := 10 + 11*max(i-other, other-i)
			n.Distances = append(n.Distances, distance)
			distances = append(distances, strconv.Itoa(distance))
		}
		n.HugePages = []capacity.HugePages{{Size: 2 << 20, Count: int64(i)}}
		if i >= nodes-d.empty {
			n.Memory = 0
		}
		write(online(cpus[i]).String(), "sys/devices/system/node/node%d/cpulist", n.ID)
		write(strings.Join(distances, " "), "sys/devices/system/node/node%d/distance", n.ID)
		write(strconv.Itoa(i), "sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages", n.ID)
		write(fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %d MemFree: 1 kB", n.ID, n.Memory>>10, n.ID),
			"sys/devices/system/node/node%d/meminfo", n.ID)
		want.Nodes = append(want.Nodes, n)
	}
	return files, want
}

// trees are machines by name.
func trees() map[string]tree {
	all := map[string]tree{
		"cpu0 is offline":             {sockets: 1, nodes: 2, caches: 1, cores: 2, threads: 2, offline: []int{0}},
		"a sibling is offline":        {sockets: 2, nodes: 1, caches: 1, cores: 2, threads: 2, offline: []int{3}},
		"a node is offline":           {sockets: 2, nodes: 1, caches: 1, cores: 1, threads: 1, offline: []int{1}, noCache: true},
		"odd numbers":                 {sockets: 2, nodes: 1, caches: 1, cores: 3, threads: 2, number: odd(6)},
		"no L3":                       {sockets: 2, nodes: 1, caches: 2, cores: 2, threads: 2, noCache: true},
		"no sockets, as on arm64":     {sockets: 1, nodes: 2, caches: 1, cores: 4, threads: 1, socketID: func(int) int { return -1 }},
		"sockets with gaps":           {sockets: 3, nodes: 1, caches: 1, cores: 2, threads: 1, socketID: func(s int) int { return 36 * s }},
		"no NUMA":                     {sockets: 2, nodes: 1, caches: 1, cores: 2, threads: 2, noNodes: true},
		"a node without CPUs":         {sockets: 1, nodes: 2, caches: 1, cores: 2, threads: 1, bare: 2},
		"a node without memory":       {sockets: 2, nodes: 1, caches: 1, cores: 2, threads: 1, empty: 1},
		"nodes with gaps":             {sockets: 1, nodes: 3, caches: 1, cores: 1, threads: 2, nodeID: func(n int) int { return []int{0, 2, 8}[n] }},
		"ten nodes, not by the names": {sockets: 1, nodes: 11, caches: 1, cores: 1, threads: 1},
	}
	for _, nodes := range []int{1, 2, 3, 4, 8, 16} {
		for _, threads := range []int{1, 2, 4, 8} {
			all[fmt.Sprintf("%d nodes, %d threads", nodes, threads)] = tree{sockets: 1, nodes: nodes, caches: 2, cores: 2, threads: threads}
			all[fmt.Sprintf("%d sockets, %d threads, spread", nodes, threads)] = tree{
				sockets: nodes, nodes: 1, caches: 1, cores: 3, threads: threads, number: spread(nodes * 3)}
		}
	}
	for _, nodes := range []int{1, 2, 4} {
		all[fmt.Sprintf("%d nodes in each of 2 sockets", nodes)] = tree{sockets: 2, nodes: nodes, caches: 2, cores: 2, threads: 2, number: spread(8 * nodes)}
	}
	return all
}

func TestRead(t *testing.T) {
	all := trees()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		files, want := all[name].build()
		got, err := topology.Read(files)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(cpuset.CPUSet.Equals)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestReadWithout: the online CPUs are all that is needed.
func TestReadWithout(t *testing.T) {
	files := fstest.MapFS{"sys/devices/system/cpu/online": &fstest.MapFile{Data: []byte("0-1,4\n")},
		"sys/devices/system/cpu/cpu1/topology/thread_siblings_list":    &fstest.MapFile{Data: []byte("nonsense")},
		"sys/devices/system/cpu/cpu4/topology/thread_siblings_list":    &fstest.MapFile{Data: []byte("77")},
		"sys/devices/system/cpu/cpu4/topology/physical_package_id":     &fstest.MapFile{Data: []byte("1 2")},
		"sys/devices/system/cpu/cpu4/cache/index3/level":               &fstest.MapFile{Data: []byte("3")},
		"sys/devices/system/node/nodes/cpulist":                        &fstest.MapFile{Data: []byte("0")},
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":        &fstest.MapFile{Data: []byte("many")},
		"sys/kernel/mm/hugepages/hugepages-1048576kB/resv_hugepages":   &fstest.MapFile{Data: []byte("1")},
		"sys/devices/system/cpu/cpu4/cache/index3/shared_cpu_list/not": &fstest.MapFile{}}
	got, err := topology.Read(files)
	want := topology.Machine{Offline: cpuset.New(), Isolated: cpuset.New(), Flat: true, Nodes: []topology.Node{{}},
		CPUs: []topology.CPU{{ID: 0, Cache: 0}, {ID: 1, Core: 1, Cache: 1}, {ID: 4, Core: 4, Cache: 4}}}
	if diff := cmp.Diff(want, got, cmp.Comparer(cpuset.CPUSet.Equals)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, online := range []string{"", "\n", "3-1", "x"} {
		files["sys/devices/system/cpu/online"].Data = []byte(online)
		if m, err := topology.Read(files); err == nil {
			t.Errorf("%q: %+v", online, m)
		}
	}
	delete(files, "sys/devices/system/cpu/online")
	if _, err := topology.Read(files); err == nil || !strings.Contains(err.Error(), "which CPUs are online") {
		t.Error(err)
	}
}

// TestReadThisMachine: the kernel's own files.
func TestReadThisMachine(t *testing.T) {
	m, err := topology.Read(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := capacity.ReadMeminfo("/")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, n := range m.Nodes {
		total += n.Memory
	}
	if len(m.CPUs) < runtime.NumCPU() || total > memory.Memory*11/10 || total < memory.Memory*9/10 {
		t.Errorf("%+v, %d CPUs and %d bytes of memory", m, runtime.NumCPU(), memory.Memory)
	}
}
