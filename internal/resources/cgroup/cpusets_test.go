package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// The CPUs of a container can be reduced although the container has made groups of its own with all of them, and grow again.
func TestCPUs(t *testing.T) {
	m := onHost(t)
	p := makePod("f", nothing)
	if err := m.Ensure(t.Context(), p, allocated.PodLimits(p, nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CPUs(t.Context(), p.UID, "web"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("without a group:", err)
	}
	l, err := m.hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	if l.V2 || l.Mounts["cpuset"] == "" {
		t.Skip("only on cgroup v1 a container may make groups with CPUs of their own") // on v2 test/cgroupv2 has the e2e tests
	}
	mount, name := l.Mounts["cpuset"], filepath.Join(m.Group(p), "web")
	for _, dir := range []string{l.Mounts["memory"], mount} {
		if err := os.MkdirAll(filepath.Join(dir, name, "inner", "most"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readCPUs(filepath.Join(mount, cpusFile))
	if err != nil || all.Size() < 2 {
		t.Fatalf("this test needs 2 CPUs: %v, %v", all, err)
	}
	mems, err := os.ReadFile(filepath.Join(mount, "cpuset.mems"))
	if err != nil {
		t.Fatal(err)
	}
	for at, rest := mount, filepath.Join(name, "inner", "most"); rest != ""; { // the kernel makes groups without CPUs
		var part string
		part, rest = cut(rest)
		at = filepath.Join(at, part)
		if err := errors.Join(writeFile(filepath.Join(at, cpusFile), all.String()), writeFile(filepath.Join(at, "cpuset.mems"), string(mems))); err != nil {
			t.Fatal(err)
		}
	}
	one, other := cpuset.New(all.List()[1]), cpuset.New(all.List()[0])
	for _, want := range []cpuset.CPUSet{one, other, all} {
		if err := m.SetCPUs(t.Context(), p.UID, "web", want); err != nil {
			t.Fatal(err)
		}
		if got, err := m.CPUs(t.Context(), p.UID, "web"); err != nil || !got.Equals(want) {
			t.Errorf("the CPUs are %v, want %v (%v)", got, want, err)
		}
		if got, err := readCPUs(filepath.Join(mount, name, "inner", "most", cpusFile)); err != nil || got.Size() != 1 || !got.IsSubsetOf(want) {
			t.Errorf("those of the container's own groups are %v, want one of %v (%v)", got, want, err)
		}
	}
}

// cut returns the first part of a relative path, and the rest.
func cut(path string) (first, rest string) {
	for i := range path {
		if i > 0 && path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return path, ""
}
