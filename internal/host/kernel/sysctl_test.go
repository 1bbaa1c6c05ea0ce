package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// host has all settings as wanted but for those given; "" is one that isn't there.
func host(t *testing.T, but map[string]string) Sysctls {
	t.Helper()
	h := Sysctls(t.TempDir())
	for _, f := range Wanted() {
		value, other := but[f.Name]
		if !other {
			value = f.Want
		}
		path := h.path(f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if value == "" {
			continue
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func TestDifferences(t *testing.T) {
	if got := host(t, nil).Differences(); got != nil {
		t.Errorf("a good host differs: %q", got)
	}
	got := host(t, map[string]string{"kernel.panic": "0", "vm.panic_on_oom": ""}).Differences()
	if len(got) != 2 || !strings.HasPrefix(got[0], "vm.panic_on_oom can't be read") || got[1] != "kernel.panic is 0, should be 10" {
		t.Errorf("%q", got)
	}
}

func TestSet(t *testing.T) {
	h := host(t, map[string]string{"kernel.panic": "0", "vm.overcommit_memory": "2"})
	changed, err := h.Set()
	if err != nil || !slices.Equal(changed, []string{"vm.overcommit_memory", "kernel.panic"}) || h.Differences() != nil {
		t.Errorf("changed %q, %v; left %q", changed, err, h.Differences())
	}
	if changed, err := h.Set(); err != nil || changed != nil {
		t.Errorf("again: %q, %v", changed, err)
	}
}

func TestWhatCannotBeSetIsNamed(t *testing.T) {
	h := host(t, map[string]string{"vm.panic_on_oom": "", "kernel.panic": "5"})
	if err := os.RemoveAll(filepath.Join(string(h), "vm")); err != nil {
		t.Fatal(err)
	}
	changed, err := h.Set()
	if err == nil || !strings.Contains(err.Error(), "vm.panic_on_oom can't be set to 0") || !slices.Equal(changed, []string{"kernel.panic"}) {
		t.Errorf("%q, %v", changed, err)
	}
}
