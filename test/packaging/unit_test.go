package packaging

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
)

// options are a unit's settings, by section and name.
func options(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := unit.DeserializeOptions(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range list {
		out[o.Section+"."+o.Name] = o.Value
	}
	return out
}

func TestUnit(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	// What the pods' lives hang on.
	got := options(t, filepath.Join(root, "usr/lib/systemd/system/deckhand.service"))
	for name, want := range map[string]string{
		"Service.KillMode": "process", "Service.Delegate": "yes", "Service.OOMPolicy": "continue", "Service.TasksMax": "infinity",
		"Service.Restart": "always", "Service.RestartPreventExitStatus": "4", "Service.SuccessExitStatus": "4", "Service.Type": "notify", "Unit.StartLimitIntervalSec": "0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if core, _, _ := strings.Cut(got["Service.LimitCORE"], ":"); core != "0" || got["Service.UMask"] != "0022" {
		t.Errorf("LimitCORE=%s, UMask=%s", got["Service.LimitCORE"], got["Service.UMask"])
	}
	// Pods are children of the unit, and would have these as well.
	for name := range got {
		for _, inherited := range []string{"SystemCall", "Restrict", "LockPersonality", "NoNewPrivileges", "MemoryDeny", "Protect", "Private", "CapabilityBoundingSet", "DeviceAllow", "DevicePolicy", "IPAddress"} {
			if strings.HasPrefix(name, "Service."+inherited) {
				t.Errorf("%s would be the pods', too", name)
			}
		}
	}
	verify(t, root, "deckhand.service")
}

// TestPositionIndependent: the agent's program is at another address in each run.
func TestPositionIndependent(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	program, err := elf.Open(filepath.Join(root, "usr/bin/deckhand"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if program.Type != elf.ET_DYN {
		t.Errorf("it is %v", program.Type)
	}
}

// TestUnusedMethodsAreLeftOut: the linker keeps every method of every type, 8 MB of them, once anything that can run looks one up
// by a name that it can't know, as text/template does. Each node would have them in memory.
func TestUnusedMethodsAreLeftOut(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	program, err := os.ReadFile(filepath.Join(root, "usr/bin/deckhand"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("k8s.io/api/core/v1.(*Pod).Marshal")) {
		t.Fatal("the program doesn't tell the names of its methods")
	}
	if bytes.Contains(program, []byte("k8s.io/api/core/v1.(*Pod).SwaggerDoc")) { // which nothing calls
		t.Error("methods that nothing calls are in it: `go build -tags grpcnotrace -ldflags=-dumpdep ./cmd/deckhand 2>&1 | grep ReflectMethod` says why")
	}
}

// The drop-in fits a unit as the kubelet's package has it.
func TestDropInForTheKubelet(t *testing.T) {
	root := t.TempDir()
	output(t, "dpkg-deb", "--extract", file(t, older, ".deb"), root)
	if err := os.Symlink("deckhand", filepath.Join(root, "usr/bin/kubelet")); err != nil {
		t.Fatal(err)
	}
	units := filepath.Join(root, "usr/lib/systemd/system")
	const kubelet = "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n"
	if err := os.WriteFile(filepath.Join(units, "kubelet.service"), []byte(kubelet), 0o644); err != nil {
		t.Fatal(err)
	}
	verify(t, root, "kubelet.service")
	const dropIn = "kubelet.service.d/20-deckhand.conf"
	if err := os.CopyFS(units, os.DirFS(filepath.Join(root, "usr/share/doc/deckhand/examples"))); err != nil {
		t.Fatal(err)
	}
	if got := options(t, filepath.Join(units, dropIn)); got["Service.Type"] != "notify" || got["Service.ExecReload"] == "" {
		t.Errorf("the drop-in says %v", got)
	}
	verify(t, root, "kubelet.service")
}

// verify has systemd read a unit of the tree below root beside those of this host. It mustn't
// give cause for a single remark. systemd looks for the programs, so they are named where they are.
func verify(t *testing.T, root, name string) {
	t.Helper()
	path := filepath.Join(root, "usr/lib/systemd/system", name)
	text := strings.ReplaceAll(read(t, path), "ExecStart=/usr/bin/", "ExecStart="+root+"/usr/bin/")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(output(t, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path)) {
		if strings.Contains(line, name) {
			t.Error(line)
		}
	}
}
