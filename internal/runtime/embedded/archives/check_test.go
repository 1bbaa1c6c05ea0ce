package archives_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// writeForged writes an OCI archive of an image of this name, whose manifest and index change makes what they like.
func writeForged(t *testing.T, path, name string, forge func(index, manifest map[string]any)) {
	t.Helper()
	tree := t.TempDir()
	out, err := layout.Write(tree, empty.Index)
	if err == nil {
		err = out.AppendImage(image(t), layout.WithAnnotations(map[string]string{"io.containerd.image.name": name}))
	}
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) (v map[string]any) {
		text, err := os.ReadFile(filepath.Join(tree, path))
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	blob := func(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }
	write := func(path func(digest string) string, v any) (digest string, size int) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		digest = "sha256:" + hex.EncodeToString(sum[:])
		if err := os.WriteFile(filepath.Join(tree, path(digest)), text, 0o600); err != nil {
			t.Fatal(err)
		}
		return digest, len(text)
	}
	index := read("index.json")
	entry := index["manifests"].([]any)[0].(map[string]any)
	manifest := read(blob(entry["digest"].(string)))
	forge(map[string]any{}, manifest)
	entry["digest"], entry["size"] = write(blob, manifest)
	forge(entry, map[string]any{"layers": []any{map[string]any{}}, "config": map[string]any{}})
	write(func(string) string { return "index.json" }, index)
	packTree(t, tree, path)
}

// TestForgedArchives: nothing is taken of an archive that says what can't be, and what had the name before keeps it.
func TestForgedArchives(t *testing.T) {
	f := newDir(t)
	layer := func(size float64) func(_, manifest map[string]any) {
		return func(_, manifest map[string]any) { manifest["layers"].([]any)[0].(map[string]any)["size"] = size }
	}
	plain := func(_, _ map[string]any) {}
	const good = "example.org/good:1"
	path := filepath.Join(t.TempDir(), "a.tar")
	writeForged(t, path, good, plain)
	if refs, err := f.Import(t.Context(), path); err != nil || len(refs) != 1 {
		t.Fatalf("unchanged: %q, %v", refs, err)
	}
	<-f.told
	id, count := f.id(t, good), f.count(t)
	for what, c := range map[string]struct {
		name  string
		forge func(index, manifest map[string]any)
		want  string
	}{
		"a huge layer":         {"example.org/bad:1", layer(1e15), "1000000000000000 bytes"},
		"a negative layer":     {"example.org/bad:1", layer(-1), "-1 bytes"},
		"of a name that's had": {good, layer(1e15), "1000000000000000 bytes"},
		"a huge config": {"example.org/bad:1", func(_, manifest map[string]any) {
			manifest["config"].(map[string]any)["size"] = 1e15
		}, "1000000000000000 bytes"},
		"a huge manifest":    {"example.org/bad:1", func(index, _ map[string]any) { index["size"] = 1e15 }, "1000000000000000"},
		"a path":             {"../../etc/passwd:1", plain, `"../../etc/passwd:1"`},
		"an absolute path":   {"/etc/passwd", plain, `"/etc/passwd"`},
		"escapes":            {"example.org/\x1b[2Jbad:1", plain, `"example.org/\x1b[2Jbad:1"`},
		"a line break":       {"example.org/bad\n:1", plain, `"example.org/bad\n:1"`},
		"another image's ID": {id, plain, id},
	} {
		writeForged(t, path, c.name, c.forge)
		refs, err := f.Import(t.Context(), path)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%s: imported %q, error %v", what, refs, err)
		}
	}
	if len(f.told) > 0 {
		t.Errorf("it told of %q", <-f.told)
	}
	f.awaitCount(t, count)
	if got := f.id(t, good); got != id {
		t.Errorf("%s is %s by now, want %s", good, got, id)
	}
}

// count counts the names of all images.
func (f *directory) count(t *testing.T) (n int) {
	t.Helper()
	list, err := f.images.ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list.GetImages() {
		n += 1 + len(i.GetRepoTags()) + len(i.GetRepoDigests())
	}
	return n
}

// awaitCount asks until the CRI has seen that images are gone: it tells nobody.
func (f *directory) awaitCount(t *testing.T, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); f.count(t) != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there are %d names, want %d", f.count(t), want)
		}
	}
}
