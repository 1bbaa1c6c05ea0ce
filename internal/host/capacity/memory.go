package capacity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Meminfo has the values of /proc/meminfo that the agent uses, in bytes.
type Meminfo struct {
	// Memory and Swap are the totals (MemTotal, SwapTotal), MemoryFree and SwapFree the unused parts of them.
	Memory, Swap         int64
	MemoryFree, SwapFree int64
}

// ReadMeminfo reads /proc/meminfo of the host whose file system is at root.
func ReadMeminfo(root string) (Meminfo, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return Meminfo{}, err
	}
	return ParseMeminfo(text)
}

// ParseMeminfo parses the content of /proc/meminfo, or of a NUMA node's meminfo: there, lines begin with "Node N ".
func ParseMeminfo(text []byte) (m Meminfo, err error) {
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		key = key[bytes.LastIndexByte(key, ' ')+1:]
		var into *int64
		switch string(key) {
		case "MemTotal":
			into = &m.Memory
		case "MemFree":
			into = &m.MemoryFree
		case "SwapTotal":
			into = &m.Swap
		case "SwapFree":
			into = &m.SwapFree
		default:
			continue
		}
		kib, err := strconv.ParseInt(string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB"))), 10, 64)
		if err != nil {
			return Meminfo{}, fmt.Errorf("%s of /proc/meminfo: %w", key, err)
		}
		*into = kib << 10
	}
	if m.Memory == 0 {
		return Meminfo{}, errors.New("/proc/meminfo has no MemTotal")
	}
	return m, nil
}

// HugePagesDir is the directory in which the kernel reports huge pages, relative to the root of the file system.
const HugePagesDir = "sys/kernel/mm/hugepages"

// HugePages are the huge pages of one size.
type HugePages struct {
	// Size is the size of one page in bytes.
	Size int64
	// Count is the number of allocated pages, Overcommit how many more the kernel may allocate on demand.
	Count, Overcommit int64
}

// ReadHugePages reads the subdirectories of dir (a HugePagesDir), one for each size, such as hugepages-2048kB, in
// the order of their names. On a kernel without huge pages the list is empty.
func ReadHugePages(dir fs.FS) ([]HugePages, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []HugePages
	for _, e := range entries {
		var kib int64
		if n, _ := fmt.Sscanf(e.Name(), "hugepages-%dkB", &kib); n == 0 {
			continue // not a directory of a page size
		}
		count, err := number(dir, e.Name(), "nr_hugepages")
		if err != nil {
			return nil, err
		}
		more, err := number(dir, e.Name(), "nr_overcommit_hugepages")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		list = append(list, HugePages{Size: kib << 10, Count: count, Overcommit: more})
	}
	return list, nil
}

func number(dir fs.FS, size, name string) (int64, error) {
	text, err := fs.ReadFile(dir, path.Join(size, name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", name, size, err)
	}
	return n, nil
}
