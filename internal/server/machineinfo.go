package server

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/host/kernel"
)

// MachineInfo is the part of cAdvisor's MachineInfo (github.com/google/cadvisor/info/v1) that is cheap to read. The
// kubelet serves it at /spec/. Sizes are in bytes.
type MachineInfo struct {
	Timestamp        time.Time   `json:"timestamp"`
	CPUVendorID      string      `json:"vendor_id"`
	NumCores         int         `json:"num_cores"`
	NumPhysicalCores int         `json:"num_physical_cores"`
	NumSockets       int         `json:"num_sockets"`
	CPUFrequency     uint64      `json:"cpu_frequency_khz"`
	MemoryCapacity   uint64      `json:"memory_capacity"`
	SwapCapacity     uint64      `json:"swap_capacity"`
	HugePages        []HugePages `json:"hugepages"`
	MachineID        string      `json:"machine_id"`
	SystemUUID       string      `json:"system_uuid"`
	BootID           string      `json:"boot_id"`
	// These are cAdvisor's values for a machine without a cloud provider: the agent doesn't detect cloud providers.
	CloudProvider string `json:"cloud_provider"`
	InstanceType  string `json:"instance_type"`
	InstanceID    string `json:"instance_id"`
}

// HugePages describes the preallocated huge pages of one size.
type HugePages struct {
	// PageSize is in KiB.
	PageSize uint64 `json:"page_size"`
	NumPages uint64 `json:"num_pages"`
}

// MachineReader reads a host's MachineInfo. It may be used concurrently.
type MachineReader struct {
	root string
}

// NewMachineReader returns a reader of the host whose root directory is root: "/", except in tests.
func NewMachineReader(root string) *MachineReader { return &MachineReader{root: root} }

// Info reads the host's current state. Only processors and memory are required; other fields stay empty if they can't
// be read (containers and small devices have no DMI tables, for example).
func (r *MachineReader) Info() (*MachineInfo, error) {
	info := &MachineInfo{
		Timestamp:     time.Now(),
		HugePages:     r.hugePages(),
		MachineID:     r.firstLine("etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID:    r.firstLine("sys/class/dmi/id/product_uuid", "proc/device-tree/vm,uuid", "etc/machine-id"),
		CloudProvider: "Unknown",
		InstanceType:  "Unknown",
		InstanceID:    "None",
	}
	if err := r.processors(info); err != nil {
		return nil, err
	}
	info.BootID, _ = kernel.BootID(r.root) // empty if it can't be read
	memory, err := capacity.ReadMeminfo(r.root)
	if err != nil {
		return nil, fmt.Errorf("reading the memory's size: %w", err)
	}
	info.MemoryCapacity, info.SwapCapacity = uint64(memory.Memory), uint64(memory.Swap)
	return info, nil
}

// processors reads /proc/cpuinfo: "key : value" lines, with a block for each processor that is online.
func (r *MachineReader) processors(info *MachineInfo) error {
	text, err := os.ReadFile(filepath.Join(r.root, "proc/cpuinfo"))
	if err != nil {
		return fmt.Errorf("reading the processors: %w", err)
	}
	sockets, cores := map[string]bool{}, map[string]bool{}
	socket, megahertz := "", 0.0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			info.NumCores++
		case "vendor_id":
			info.CPUVendorID = value
		case "physical id":
			socket = value
			sockets[socket] = true
		case "core id":
			cores[socket+"/"+value] = true
		case "cpu MHz":
			f, _ := strconv.ParseFloat(value, 64) // 0 if unreadable
			megahertz = max(megahertz, f)
		}
	}
	if info.NumCores == 0 {
		return fmt.Errorf("reading the processors: %s names none", filepath.Join(r.root, "proc/cpuinfo"))
	}
	info.NumSockets = max(len(sockets), 1)
	info.NumPhysicalCores = len(cores)
	if len(cores) == 0 { // some architectures don't list them
		info.NumPhysicalCores = info.NumCores
	}
	info.CPUFrequency = uint64(megahertz * 1000)
	if khz := r.number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); khz > 0 {
		info.CPUFrequency = khz
	}
	return nil
}

// hugePages returns the host's huge pages; none if the kernel doesn't support or list them.
func (r *MachineReader) hugePages() []HugePages {
	sizes, _ := capacity.ReadHugePages(os.DirFS(filepath.Join(r.root, capacity.HugePagesDir)))
	out := make([]HugePages, len(sizes))
	for i, s := range sizes {
		out[i] = HugePages{PageSize: uint64(s.Size >> 10), NumPages: uint64(s.Count)}
	}
	return out
}

// firstLine returns the trimmed text of the first of these files that isn't empty.
func (r *MachineReader) firstLine(paths ...string) string {
	for _, p := range paths {
		text, err := os.ReadFile(filepath.Join(r.root, p))
		if err != nil {
			continue
		}
		if line := strings.Trim(string(text), " \t\r\n\x00"); line != "" {
			return line
		}
	}
	return ""
}

func (r *MachineReader) number(path string) uint64 {
	n, err := strconv.ParseUint(r.firstLine(path), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
