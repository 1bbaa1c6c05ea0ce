package kernel_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
)

func write(t *testing.T, sys, path, text string) {
	t.Helper()
	path = filepath.Join(sys, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEnabled(t *testing.T) {
	for text, want := range map[string]bool{"Y\n": true, "N\n": false, "": false} {
		sys := t.TempDir()
		write(t, sys, "module/apparmor/parameters/enabled", text)
		if got := (kernel.AppArmor{Sys: sys}).Enabled(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if (kernel.AppArmor{Sys: t.TempDir()}).Enabled() {
		t.Error("a host without the module")
	}
}

func TestLoaded(t *testing.T) {
	h := kernel.AppArmor{Sys: t.TempDir()}
	if _, err := h.Loaded("a"); err == nil {
		t.Error("what can't be known counts as not loaded")
	}
	write(t, h.Sys, "kernel/security/apparmor/profiles", "k8s-nginx (enforce)\n/usr/bin/man (complain)\nodd (name) x (enforce)\n")
	for name, want := range map[string]bool{"k8s-nginx": true, "/usr/bin/man": true, "odd (name) x": true, "k8s": false, "": false, "k8s-nginx (enforce)": false} {
		if got, err := h.Loaded(name); err != nil || got != want {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}
