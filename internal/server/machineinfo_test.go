package server_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/server"
)

// host makes a file system with these files.
func host(t *testing.T, files map[string]string) *server.MachineReader {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return server.NewMachineReader(root)
}

const (
	x86 = `processor	: 0
vendor_id	: GenuineIntel
cpu MHz		: 2100.500
physical id	: 0
core id		: 0

processor	: 1
vendor_id	: GenuineIntel
cpu MHz		: 2200.000
physical id	: 0
core id		: 0

processor	: 2
vendor_id	: GenuineIntel
cpu MHz		: 1000.000
physical id	: 1
core id		: 0
`
	meminfo = "MemTotal:        4028204 kB\nMemFree: 1 kB\nSwapTotal:       1024 kB\nHugePages_Total: 7\n"
)

func TestInfo(t *testing.T) {
	got, err := host(t, map[string]string{
		"proc/cpuinfo":                   x86,
		"proc/meminfo":                   meminfo,
		"proc/sys/kernel/random/boot_id": "0d5c\n",
		"etc/machine-id":                 "",
		"var/lib/dbus/machine-id":        "abc\n",
		"sys/class/dmi/id/product_uuid":  "UUID\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
		"sys/kernel/mm/hugepages/other":                         "",
	}).Info()
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(got.Timestamp) > time.Minute {
		t.Errorf("timestamp %v", got.Timestamp)
	}
	got.Timestamp = time.Time{}
	want := &server.MachineInfo{
		CPUVendorID: "GenuineIntel", NumCores: 3, NumPhysicalCores: 2, NumSockets: 2, CPUFrequency: 2200000,
		MemoryCapacity: 4028204 << 10, SwapCapacity: 1 << 20,
		HugePages: []server.HugePages{{PageSize: 2048, NumPages: 3}},
		MachineID: "abc", SystemUUID: "UUID", BootID: "0d5c",
		CloudProvider: "Unknown", InstanceType: "Unknown", InstanceID: "None",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSmallDevice(t *testing.T) {
	got, err := host(t, map[string]string{
		"proc/cpuinfo":   "processor\t: 0\nBogoMIPS\t: 48.00\n\nprocessor\t: 1\n",
		"proc/meminfo":   meminfo,
		"etc/machine-id": "abc\n",
		"sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "1800000\n",
	}).Info()
	if err != nil {
		t.Fatal(err)
	}
	if got.NumCores != 2 || got.NumPhysicalCores != 2 || got.NumSockets != 1 || got.CPUFrequency != 1800000 || got.SystemUUID != "abc" || got.HugePages == nil {
		t.Errorf("got %+v", got)
	}
}

func TestWhatMustBeThere(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"processors":      {"proc/meminfo": meminfo},
		"names none":      {"proc/cpuinfo": "", "proc/meminfo": meminfo},
		"memory's size":   {"proc/cpuinfo": x86},
		"has no MemTotal": {"proc/cpuinfo": x86, "proc/meminfo": "MemFree: 3 kB\n"},
	} {
		if _, err := host(t, files).Info(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
}

func TestThisHost(t *testing.T) {
	got, err := server.NewMachineReader("/").Info()
	if err != nil {
		t.Fatal(err)
	}
	if got.NumCores < runtime.NumCPU() || got.MemoryCapacity < 1<<20 || got.BootID == "" {
		t.Errorf("got %+v", got)
	}
}
