package userns

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMappedByProcesses(t *testing.T) {
	proc := t.TempDir()
	put := func(pid, file, text string) {
		if err := os.MkdirAll(filepath.Join(proc, pid), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, pid, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("1", "uid_map", "         0          0 4294967295\n")
	put("20", "uid_map", "         0     131072      65536\n")
	put("20", "gid_map", "         0     131072      65536\n     65536     262144      65536\n")
	put("sys", "uid_map", "nonsense")
	if err := os.Mkdir(filepath.Join(proc, "30"), 0o700); err != nil { // it has ended
		t.Fatal(err)
	}
	got, err := mappedIn(proc)
	slices.SortFunc(got, func(a, b Range) int { return int(a.HostID) - int(b.HostID) })
	if want := []Range{{131072, 65536}, {262144, 65536}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("have %v, %v", got, err)
	}
	put("40", "uid_map", "nonsense")
	if _, err := mappedIn(proc); err == nil {
		t.Error("what can't be read counts as unused")
	}
	if _, err := mappedByProcesses(); err != nil {
		t.Errorf("this host: %v", err)
	}
}
