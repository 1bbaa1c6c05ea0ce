package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyRegistry: a registry on loopback is described where nobody has, and no other.
func TestVerifyRegistry(t *testing.T) {
	for image, want := range map[string]string{
		"127.0.0.1:5000/a:1": "http://127.0.0.1:5000", "localhost:5000/a": "http://localhost:5000", "[::1]:5000/a": "http://[::1]:5000", "127.1.2.3:443/a": "https://127.1.2.3:443",
		"localhost/a": "https://localhost", "127.0.0.1:80/a": "", "192.0.2.1:5000/a": "", "a": "", "localhost.example:5000/a": "",
	} {
		root := t.TempDir()
		certs := filepath.Join(root, "containerd", "certs.d")
		for range 2 {
			if err := (Config{RootDir: root}).VerifyRegistry(image); err != nil {
				t.Errorf("%s: %v", image, err)
			}
		}
		_, host, _ := strings.Cut(want, "://")
		text, err := os.ReadFile(filepath.Join(certs, host, "hosts.toml"))
		if want == "" {
			if list, err := os.ReadDir(certs); !os.IsNotExist(err) {
				t.Errorf("%s: %v was made", image, list)
			}
		} else if err != nil || !strings.Contains(string(text), "server = \""+want+"\"\nskip_verify = false\n") {
			t.Errorf("%s: %v, and it says\n%s", image, err, text)
		}
	}
	for _, by := range []string{"localhost:5000/hosts.toml", "localhost_5000_/ca.crt", "_default/hosts.toml"} {
		root := t.TempDir()
		certs := filepath.Join(root, "containerd", "certs.d")
		if err := os.MkdirAll(filepath.Join(certs, filepath.Dir(by)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(certs, by), []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (Config{RootDir: root}).VerifyRegistry("localhost:5000/a"); err != nil {
			t.Error(err)
		}
		all, err := filepath.Glob(filepath.Join(certs, "*", "*"))
		if text, _ := os.ReadFile(filepath.Join(certs, by)); err != nil || len(all) != 1 || string(text) != "theirs" {
			t.Errorf("beside %s there is %q, %v, and it says %q", by, all, err, text)
		}
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "containerd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Config{RootDir: root}).VerifyRegistry("localhost:5000/a"); err == nil || !strings.Contains(err.Error(), "registry localhost:5000") {
		t.Errorf("where nothing can be written: %v", err)
	}
}
