package embedded

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBoundsHugePages(t *testing.T) {
	v2 := func(controllers string) func(string) error {
		return func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte(controllers), 0o600)
		}
	}
	for name, c := range map[string]struct {
		mount func(dir string) error
		want  bool
	}{
		"cgroup v1 with hugetlb":        {func(dir string) error { return os.Mkdir(filepath.Join(dir, "hugetlb"), 0o700) }, true},
		"cgroup v1 without":             {func(string) error { return nil }, false},
		"cgroup v2 with hugetlb":        {v2("cpu hugetlb memory\n"), true},
		"cgroup v2 without":             {v2("cpu memory\n"), false},
		"cgroup v2 with a similar name": {v2("hugetlb2\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.mount(dir); err != nil {
				t.Fatal(err)
			}
			if got := boundsHugePages(dir); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
