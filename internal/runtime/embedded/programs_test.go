package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func put(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFindPrograms(t *testing.T) {
	first, second, path := t.TempDir(), t.TempDir(), t.TempDir()
	put(t, first, "runc", "images/pause.tar")
	put(t, second, "runc", "bridge", "host-local", "portmap", "loopback", "images/pause.tar")
	put(t, path, "containerd", "containerd-shim-runc-v2", "runc", "bridge")
	t.Setenv("PATH", path)
	p, err := FindPrograms([]string{first, second})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{path + "/containerd", path + "/containerd-shim-runc-v2", first + "/runc", second + "/bridge", first + "/images/pause.tar"}
	if got := []string{p.Containerd, p.Shim, p.Runc, p.Plugin("bridge"), p.PauseArchive}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// A program of PATH that is only called like a CNI plugin isn't taken for one.
func TestPluginsAreNotLookedForInPath(t *testing.T) {
	dir, path := t.TempDir(), t.TempDir()
	put(t, dir, "containerd", "containerd-shim-runc-v2", "host-local", "portmap", "loopback")
	put(t, path, "bridge", "runc")
	t.Setenv("PATH", path)
	p, err := FindPrograms([]string{dir})
	if found := p.Plugin("bridge"); found != "" {
		if !slices.Contains(cniDirs, filepath.Dir(found)) {
			t.Errorf("found %s", found)
		}
		return // this host has the plugin
	}
	if err == nil || !strings.Contains(err.Error(), "the CNI plugin bridge: not found in "+dir+", /opt/cni/bin") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}
