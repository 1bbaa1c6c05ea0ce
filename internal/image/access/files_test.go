package access

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/kubelet/config/v1beta1"
)

// TestLayout: the kubelet finds its own files, and nobody else finds a password.
func TestLayout(t *testing.T) {
	dir := t.TempDir()
	r := load(t, dir, "")
	if err := r.Intend("docker.io/hello-world:latest"); err != nil {
		t.Fatal(err)
	}
	pull(t, r, "docker.io/hello-world:1", "sha256:d2c9", secret("s", "uid-1", "hunter2hunter2"))
	// The names are sha256sum's of "docker.io/hello-world:latest" and "sha256:d2c9".
	var intent v1beta1.ImagePullIntent
	readJSON(t, filepath.Join(dir, "image_manager/pulling", fileName("docker.io/hello-world:latest")), &intent)
	if intent.Image != "docker.io/hello-world:latest" || intent.Kind != "ImagePullIntent" || intent.APIVersion != "kubelet.config.k8s.io/v1beta1" {
		t.Errorf("got %+v", intent)
	}
	var rec v1beta1.ImagePulledRecord
	readJSON(t, filepath.Join(dir, "image_manager/pulled", fileName("sha256:d2c9")), &rec)
	got := rec.CredentialMapping["docker.io/hello-world"].KubernetesSecrets
	if rec.ImageRef != "sha256:d2c9" || rec.Kind != "ImagePulledRecord" || rec.APIVersion != "kubelet.config.k8s.io/v1beta1" || time.Since(rec.LastUpdatedTime.Time) > time.Minute ||
		len(got) != 1 || got[0].UID != "uid-1" || got[0].Namespace != "ns" || got[0].Name != "s" || len(got[0].CredentialHash) != 64 {
		t.Errorf("got %+v", rec)
	}
	err := filepath.WalkDir(filepath.Join(dir, "image_manager"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("%s has the password in it", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFileNames(t *testing.T) {
	// echo -n docker.io/library/busybox:1 | sha256sum
	if got := fileName("docker.io/library/busybox:1"); got != "sha256-601084643101c1cee774bcec1349e105083587bf663d1269a540d34679854a0b" {
		t.Errorf("got %s", got)
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAKubeletsRecord: its hash is another than ours, its coordinates are not.
func TestAKubeletsRecord(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "pulled", "sha256:a", `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":"2025-01-01T00:00:00Z","imageRef":"sha256:a",`+
		`"credentialMapping":{"a":{"kubernetesSecrets":[{"uid":"1","namespace":"ns","name":"s","credentialHash":"0123"}]}}}`)
	put(t, dir, "pulled", "sha256:b", `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2025-01-01T00:00:00Z","imageRef":"sha256:b",`+
		`"credentialMapping":{"b":{"nodePodsAccessible":true}}}`)
	r := load(t, dir, "")
	if !may(t, r, "b:9", "sha256:b") || may(t, r, "a:1", "sha256:a", secret("t", "2", "p")) || !may(t, r, "a:1", "sha256:a", secret("s", "1", "p")) {
		t.Error("it isn't understood")
	}
	if !may(t, r, "a:1", "sha256:a", secret("t", "2", "p")) {
		t.Error("its hash wasn't replaced")
	}
}

func put(t testing.TB, dir, sub, of, text string) string {
	t.Helper()
	path := filepath.Join(dir, directory, sub, fileName(of))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDamagedFilesFailSafe(t *testing.T) {
	for _, text := range []string{"", "{", "null", "[]", `{"kind":"ImagePulledRecord","apiVersion":"v1","imageRef":"sha256:a"}`,
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v2","imageRef":"sha256:a","credentialMapping":{"a":{"nodePodsAccessible":true}}}`, `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1"}`,
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:other","credentialMapping":{"a":{"nodePodsAccessible":true}}}`} {
		dir := t.TempDir()
		put(t, dir, "pulled", "sha256:a", text)
		put(t, dir, "pulling", "b:1", text)
		r := load(t, dir, "")
		if may(t, r, "a:1", "sha256:a", secret("s", "1", "p")) || may(t, r, "b:1", "sha256:b", secret("s", "1", "p")) {
			t.Errorf("%q lets somebody in", text)
		}
		pull(t, r, "a:1", "sha256:a", secret("s", "1", "p"))
		pull(t, r, "b:1", "sha256:b", secret("s", "1", "p"))
		if r = load(t, dir, ""); !may(t, r, "a:1", "sha256:a", secret("s", "1", "p")) || !may(t, r, "b:1", "sha256:b", secret("s", "1", "p")) {
			t.Errorf("%q wasn't replaced", text)
		}
		wantCounts(t, r, 0, 2)
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	kept, cut := put(t, dir, "pulled", "x", ""), ""
	other := filepath.Join(filepath.Dir(kept), "README")
	cut = filepath.Join(filepath.Dir(kept), "."+filepath.Base(kept)+".tmp-1")
	for _, path := range []string{other, cut} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load(t, dir, "")
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cut); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a write left behind: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"sha256:a","credentialMapping":{"a":{}}}`))
	f.Add([]byte(`{"credentialMapping":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Contains(strings.ToLower(string(text)), "nodepodsaccessible") {
			return
		}
		dir := t.TempDir()
		put(t, dir, "pulled", "sha256:a", string(text))
		put(t, dir, "pulling", "b:1", string(text))
		r := load(t, dir, "")
		if may(t, r, "a:1", "sha256:a", secret("s", "", "no record has its hash")) || may(t, r, "b:1", "sha256:b") {
			t.Errorf("%q lets somebody in", text)
		}
	})
}
