package capacity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"
)

// Node has the totals of a host's resources. Amounts are in bytes.
type Node struct {
	// CPUs is the number of online CPUs.
	CPUs int
	// Memory and Swap are the kernel's totals (MemTotal, SwapTotal).
	Memory, Swap int64
	// HugePages maps a resource such as hugepages-2Mi to the memory in allocated pages of that size; 0 if the
	// kernel supports the size but has no such pages.
	HugePages map[v1.ResourceName]int64
	// Storage is the size of the file system that has the pods' files; 0 if Read was called without a path on it.
	Storage int64
}

// Read reads the resources of the host whose file system is mounted at root ("/"). storage is a path on the file
// system that has the pods' files; if it is empty, Node.Storage stays 0.
func Read(root, storage string) (Node, error) {
	n := Node{CPUs: cpus(root), HugePages: map[v1.ResourceName]int64{}}
	memory, err := ReadMeminfo(root)
	if err != nil {
		return Node{}, fmt.Errorf("find out how much memory this node has: %w", err)
	}
	n.Memory, n.Swap = memory.Memory, memory.Swap
	pages, err := ReadHugePages(os.DirFS(filepath.Join(root, HugePagesDir)))
	if err != nil {
		return Node{}, fmt.Errorf("find out how many huge pages this node has: %w", err)
	}
	for _, p := range pages {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(p.Size, resource.BinarySI).String()
		n.HugePages[v1.ResourceName(name)] = p.Count * p.Size
	}
	if storage == "" {
		return n, nil
	}
	var st unix.Statfs_t
	err = unix.Statfs(storage, &st)
	// A path that doesn't exist yet will be created on the file system of its nearest existing parent.
	for at := storage; errors.Is(err, unix.ENOENT) && at != filepath.Dir(at); {
		at = filepath.Dir(at)
		err = unix.Statfs(at, &st)
	}
	if err != nil {
		return Node{}, fmt.Errorf("find out how big the file system of %s is: %w", storage, err)
	}
	n.Storage = int64(st.Blocks) * int64(st.Frsize)
	return n, nil
}

// cpus counts all online CPUs of the host, including those that this process isn't allowed to run on.
func cpus(root string) int {
	text, err := os.ReadFile(filepath.Join(root, "sys/devices/system/cpu/online"))
	if err == nil {
		if set, err := cpuset.Parse(strings.TrimSpace(string(text))); err == nil && set.Size() > 0 {
			return set.Size()
		}
	}
	return runtime.NumCPU() // /sys isn't readable
}

// Capacity is the node's capacity as in Node.status. It doesn't include swap, which isn't a resource in the API.
func (n Node) Capacity() v1.ResourceList {
	list := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(n.CPUs), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(n.Memory, resource.BinarySI),
	}
	for name, b := range n.HugePages {
		list[name] = *resource.NewQuantity(b, resource.BinarySI)
	}
	if n.Storage > 0 {
		list[v1.ResourceEphemeralStorage] = *resource.NewQuantity(n.Storage, resource.BinarySI)
	}
	return list
}
