package rootdir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRefuse(t *testing.T) {
	linked := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", linked); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{"/etc", "/etc/", "/var/lib", "/usr/../etc", "/", "/proc/self", "/dev/shm", linked} {
		if err := Refuse(root); err == nil || !strings.Contains(err.Error(), "a directory of the system") {
			t.Errorf("%s: %v", root, err)
		}
	}
	for name, c := range map[string]struct {
		has  []string
		want string
	}{
		"empty":                {},
		"claimed":              {has: []string{".deckhand", "precious"}},
		"used, not claimed":    {has: []string{"footprint.json", "precious"}},
		"a kubelet's":          {has: []string{"pods/uid", "plugins", "cpu_manager_state", "precious"}},
		"kubeadm's":            {has: []string{"config.yaml", "kubeadm-flags.env", "pki"}},
		"prepared by a person": {has: []string{"images/web.tar", "config.json", "seccomp/x.json", "containerd/certs.d", "lost+found"}},
		"a stranger's":         {has: []string{"precious"}, want: "it has precious"},
		"pods alone":           {has: []string{"pods/precious"}, want: "it has pods"},
		"images and more":      {has: []string{"images/a", "photos"}, want: "it has photos"},
	} {
		root := filepath.Join(t.TempDir(), "root")
		for _, path := range append(slices.Clone(c.has), "") {
			if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.ReadDir(root)
		if err != nil {
			t.Fatal(err)
		}
		err = Refuse(root)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadDir(root); err != nil || len(after) != len(before) {
			t.Errorf("%s: there were %v, and are %v (%v)", name, before, after, err)
		}
	}
	if err := Refuse(filepath.Join(t.TempDir(), "new", "root")); err != nil {
		t.Errorf("a directory that isn't there: %v", err)
	}
}
