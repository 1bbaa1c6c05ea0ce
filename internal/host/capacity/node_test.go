package capacity_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
)

// tree writes files of a host.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// same compares lists by value.
func same(t *testing.T, what string, have v1.ResourceList, want map[v1.ResourceName]string) {
	t.Helper()
	if len(have) != len(want) {
		t.Errorf("%s: %v, want %v", what, have, want)
	}
	for name, value := range want {
		if q := have[name]; q.Cmp(resource.MustParse(value)) != 0 {
			t.Errorf("%s: %s is %s, want %s", what, name, q.String(), value)
		}
	}
}

func TestRead(t *testing.T) {
	n, err := capacity.Read(tree(t, map[string]string{
		"sys/devices/system/cpu/online": "0-2,5\n",
		"proc/meminfo":                  "MemTotal:       10485760 kB\nMemFree:  1 kB\nSwapCached: 7 kB\nSwapTotal:       2097152 kB\nHugePages_Total:       3\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":     "3\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":  "0\n",
		"sys/kernel/mm/hugepages/something-of-tomorrow/description": "x",
	}), "")
	if err != nil || n.CPUs != 4 || n.Memory != 10<<30 || n.Swap != 2<<30 || n.Storage != 0 {
		t.Fatalf("got %+v, %v", n, err)
	}
	same(t, "capacity", n.Capacity(), map[v1.ResourceName]string{"cpu": "4", "memory": "10Gi", "hugepages-2Mi": "6Mi", "hugepages-1Gi": "0"})
	list, err := n.Allocatable(&v1beta1.KubeletConfiguration{KubeReserved: map[string]string{"memory": "1Gi"}, EvictionHard: map[string]string{"nodefs.available": "10%"}})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "allocatable", list, map[v1.ResourceName]string{"cpu": "4", "memory": "9210Mi", "hugepages-2Mi": "6Mi", "hugepages-1Gi": "0"})
}

func TestStorage(t *testing.T) {
	n := capacity.Node{CPUs: 1, Memory: 1 << 30, Storage: 100 << 30, HugePages: map[v1.ResourceName]int64{"hugepages-1Gi": 1 << 30}}
	k := v1beta1.KubeletConfiguration{
		KubeReserved: map[string]string{"ephemeral-storage": "10Gi"}, SystemReserved: map[string]string{"ephemeral-storage": "5Gi", "pid": "1000"},
		EvictionHard: map[string]string{"nodefs.available": "10%", "memory.available": "1Mi"},
	}
	list, err := n.Allocatable(&k)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "allocatable", list, map[v1.ResourceName]string{"cpu": "1", "memory": "0", "ephemeral-storage": "75Gi", "hugepages-1Gi": "1Gi"})
	k.KubeReserved["ephemeral-storage"] = "90Gi"
	if _, err := n.Allocatable(&k); err == nil || !strings.Contains(err.Error(), "ephemeral-storage") || !strings.Contains(err.Error(), "nodefs.available") {
		t.Errorf("too much reserved: %v", err)
	}
	k.EvictionHard["nodefs.available"] = "some"
	if _, err := n.Allocatable(&k); err == nil || !strings.Contains(err.Error(), `evictionHard nodefs.available "some"`) {
		t.Errorf("no threshold: %v", err)
	}
}

func TestReadSaysWhatItCantFindOut(t *testing.T) {
	ok := map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"}
	for name, c := range map[string]struct {
		files   map[string]string
		storage string
		err     string
	}{
		"no meminfo":    {nil, "", "how much memory"},
		"no total":      {map[string]string{"proc/meminfo": "MemFree: 1 kB\n"}, "", "no MemTotal"},
		"not a number":  {map[string]string{"proc/meminfo": "MemTotal: much kB\n"}, "", "MemTotal of /proc/meminfo"},
		"no page count": {map[string]string{"proc/meminfo": "MemTotal: 1 kB\n", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "few\n"}, "", "nr_hugepages of hugepages-2048kB"},
		"no disk":       {ok, "/dev/null/gone", "file system of /dev/null/gone"},
	} {
		if _, err := capacity.Read(tree(t, c.files), c.storage); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.err)
		}
	}
	n, err := capacity.Read(tree(t, ok), t.TempDir())
	if err != nil || n.CPUs != runtime.NumCPU() || len(n.HugePages) != 0 || n.Storage <= 0 {
		t.Errorf("a sparse host: %+v, %v", n, err)
	}
}

func TestReadThisHost(t *testing.T) {
	n, err := capacity.Read("/", "/")
	if err != nil || n.CPUs < 1 || n.Memory < 1<<20 || n.Storage < 1<<20 {
		t.Errorf("got %+v, %v", n, err)
	}
}
