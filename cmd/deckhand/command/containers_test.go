package command

import (
	"os"
	"path/filepath"
	"testing"
)

// The first process of a container is the one that started first, whatever the numbers are and whatever a process calls itself.
func TestFirstProcesses(t *testing.T) {
	proc := t.TempDir()
	for pid, files := range map[string][2]string{
		"900": {"0::/kubepods/podu1/abc\n", "900 (app) S 1 900 900 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1000 1 1"},
		"12":  {"0::/kubepods/podu1/abc\n", "12 (sh) 1 2 3 4) S 900 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 2000 1 1"}, // numbers have begun anew
		"7":   {"0::/system.slice\n", "7 (abc) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1 1 1"},
		"8":   {"12:cpu:/kubepods/podu2/cri-containerd-def.scope\n", "8 (b) S 1 8 8 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 1 1"},
		"9":   {"0::/kubepods/podu1/abc\n", "9 (cut) S 1"},
	} {
		dir := filepath.Join(proc, pid)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"cgroup", "stat"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(files[i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	find := firstProcesses(proc)
	for id, want := range map[string]int{"abc": 900, "def": 8, "ghi": 0, "": 0} {
		if got := find(id); got != want {
			t.Errorf("%q: %d, want %d", id, got, want)
		}
	}
}
