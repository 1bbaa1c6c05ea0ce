package archives_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/archives"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// directory is an importer of a directory of its own beside a running containerd.
type directory struct {
	dir string
	in  *embeddedtest.Instance
	*archives.Importer
	images cri.ImageServiceClient
	// told gets what the importer tells of.
	told chan []string
}

func newDir(t *testing.T) *directory {
	t.Helper()
	in := embeddedtest.Start(t)
	dir := t.TempDir()
	connect := func() (*grpc.ClientConn, error) { return embedded.Dial(in.Config) }
	told := make(chan []string, 16)
	f := &directory{dir: dir, in: in, images: cri.NewImageServiceClient(in.Connect(t)), told: told}
	tell := func(refs []string) {
		for _, ref := range refs {
			if !f.has(t, ref) {
				t.Errorf("it told of %s, which the runtime doesn't have", ref)
			}
		}
		told <- refs
	}
	f.Importer = archives.New(dir, filepath.Join(dir, ".imported.json"), connect, tell, logr.Discard())
	return f
}

func (f *directory) has(t *testing.T, ref string) bool {
	t.Helper()
	list, err := f.images.ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		t.Error(err) // Not Fatal: the importer calls it too, from its own goroutine.
		return false
	}
	return slices.ContainsFunc(list.GetImages(), func(i *cri.Image) bool { return slices.Contains(i.GetRepoTags(), ref) })
}

// image is a small image that this machine could run.
func image(t *testing.T) v1.Image {
	t.Helper()
	img, err := random.Image(100_000, 2)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	img, err = mutate.ConfigFile(img, file)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func writeArchive(t *testing.T, path, ref string) {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, image(t)); err != nil {
		t.Fatal(err)
	}
}

func TestSync(t *testing.T) {
	f := newDir(t)
	writeArchive(t, filepath.Join(f.dir, "good.tar"), "example.org/good:1")
	for file, text := range map[string]string{"garbage.tar": "this is no archive", "empty.tar": "", ".half.tar": "x", "notes.txt": "x"} {
		if err := os.WriteFile(filepath.Join(f.dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(f.dir, "directory.tar"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(f.dir, "broken.tar")); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !f.has(t, "example.org/good:1") {
		t.Error("the good archive's image isn't there")
	}
	problems := f.Problems()
	for i, bad := range []string{"broken.tar", "empty.tar", "garbage.tar"} {
		if i >= len(problems) || !strings.Contains(problems[i], bad) {
			t.Fatalf("problems are %q, without %s", problems, bad)
		}
	}
	if len(problems) != 3 {
		t.Errorf("problems are %q", problems)
	}
	for _, bad := range []string{"broken.tar", "empty.tar", "garbage.tar"} {
		if err := os.Remove(filepath.Join(f.dir, bad)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := f.Problems(); len(p) != 0 {
		t.Errorf("with the bad archives gone there are still problems: %q", p)
	}
}

// Each import is told of when the runtime has the images, and nothing else is.
func TestReports(t *testing.T) {
	f := newDir(t)
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for len(f.told) > 0 {
			got = append(got, <-f.told...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("it told of %q, want %q", got, want)
		}
	}
	writeArchive(t, filepath.Join(f.dir, "a.tar"), "example.org/a:1")
	if err := os.WriteFile(filepath.Join(f.dir, "bad.tar"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("example.org/a:1")
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect()
	if _, err := f.Import(t.Context(), filepath.Join(f.dir, "a.tar")); err != nil {
		t.Fatal(err)
	}
	expect("example.org/a:1")
}

func TestEnsure(t *testing.T) {
	f := newDir(t)
	path := filepath.Join(t.TempDir(), "a.tar")
	writeArchive(t, path, "example.org/a:1")
	for range 2 {
		if err := f.Ensure(t.Context(), "example.org/a:1", path); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.told); n != 1 || !f.has(t, "example.org/a:1") {
		t.Errorf("imported %d times", n)
	}
	if err := f.Ensure(t.Context(), "example.org/b:1", filepath.Join(f.dir, "none.tar")); err == nil {
		t.Error("an archive that isn't there was imported")
	}
}

// An archive is imported once, until it changes or its image is removed.
func TestSyncSkipsWhatIsThere(t *testing.T) {
	f := newDir(t)
	path := filepath.Join(f.dir, "a.tar")
	writeArchive(t, path, "example.org/a:1")
	sync := func() {
		t.Helper()
		if err := f.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	digest := func() string {
		t.Helper()
		status, err := f.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "example.org/a:1"}})
		if err != nil {
			t.Fatal(err)
		}
		return status.GetImage().GetId()
	}
	sync()
	first := digest()
	if first == "" {
		t.Fatal("the image isn't there")
	}

	// The same size and time: taken for the same file.
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), int(info.Size())), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	sync()
	if p := f.Problems(); len(p) != 0 {
		t.Errorf("an archive that was imported before was read again: %q", p)
	}

	writeArchive(t, path, "example.org/a:1")
	sync()
	second := digest()
	if second == first {
		t.Error("the changed archive wasn't imported")
	}

	if _, err := f.images.RemoveImage(t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: "example.org/a:1"}}); err != nil {
		t.Fatal(err)
	}
	sync()
	if digest() != second {
		t.Error("the removed image wasn't imported again")
	}
}

func TestImportOCIArchive(t *testing.T) {
	f := newDir(t)
	tree := t.TempDir()
	index, err := layout.Write(tree, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := index.AppendImage(image(t), layout.WithAnnotations(map[string]string{"io.containerd.image.name": "example.org/oci:2"})); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "oci archive.tar")
	packTree(t, tree, path)
	refs, err := f.Import(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(refs, []string{"example.org/oci:2"}) || !f.has(t, "example.org/oci:2") {
		t.Errorf("imported %q", refs)
	}
}

func TestImportSaysWhatIsWrong(t *testing.T) {
	f := newDir(t)
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.tar")
	writeArchive(t, whole, "example.org/cut:1")
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.tar")
	if err := os.WriteFile(cut, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{cut, "can't import it"},
		{dir, "isn't a regular file"},
		{filepath.Join(dir, "none.tar"), "no such file"},
	} {
		refs, err := f.Import(t.Context(), c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: imported %q, error %v", c.path, refs, err)
		}
	}
	if f.has(t, "example.org/cut:1") {
		t.Error("half an image is listed")
	}
}

func TestArchived(t *testing.T) {
	f := newDir(t)
	writeArchive(t, filepath.Join(f.dir, "a.tar"), "example.org/kept:1")
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names := f.Archived(); !slices.Equal(names, []string{"example.org/kept:1"}) {
		t.Errorf("with its archive: %q", names)
	}
	if err := os.Remove(filepath.Join(f.dir, "a.tar")); err != nil {
		t.Fatal(err)
	}
	if names := f.Archived(); len(names) > 0 {
		t.Errorf("without its archive: %q", names)
	}
}

func TestImportFromAReader(t *testing.T) {
	f := newDir(t)
	path := filepath.Join(t.TempDir(), "a.tar")
	writeArchive(t, path, "example.org/streamed:1")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if refs, err := f.ImportFrom(t.Context(), bytes.NewReader(whole[:len(whole)/2])); err == nil || !strings.Contains(err.Error(), "can't import it") {
		t.Errorf("half an archive: %q, %v", refs, err)
	}
	if refs, err := f.ImportFrom(t.Context(), strings.NewReader("")); err == nil {
		t.Errorf("nothing: %q", refs)
	}
	// One that says nothing yet holds up nobody.
	read, write := io.Pipe()
	slow := make(chan error, 1)
	go func() {
		_, err := f.ImportFrom(t.Context(), read)
		slow <- err
	}()
	refs, err := f.Import(t.Context(), path)
	if err != nil || !slices.Equal(refs, []string{"example.org/streamed:1"}) || !f.has(t, "example.org/streamed:1") {
		t.Errorf("imported %q, %v", refs, err)
	}
	if _, err := write.Write(whole); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

// An archive that is copied in slowly, in pieces, is imported when it is whole.
func TestRunImportsWhatAppears(t *testing.T) {
	f := newDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	other := filepath.Join(t.TempDir(), "other.tar")
	writeArchive(t, other, "example.org/slow:1")
	source, err := os.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := os.Create(filepath.Join(f.dir, "slow.tar"))
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := io.CopyN(target, source, 50_000)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(150 * time.Millisecond) // The writer is slow; nothing is awaited here.
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	f.awaitImage(t, "example.org/slow:1")

	writeArchive(t, filepath.Join(f.dir, ".new"), "example.org/renamed:1")
	if err := os.Rename(filepath.Join(f.dir, ".new"), filepath.Join(f.dir, "renamed.tar")); err != nil {
		t.Fatal(err)
	}
	f.awaitImage(t, "example.org/renamed:1")
	if p := f.Problems(); len(p) != 0 {
		t.Errorf("problems are %q", p)
	}
}

// awaitImage asks until the runtime has the image: it tells nobody of new ones.
func (f *directory) awaitImage(t *testing.T, ref string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f.has(t, ref); {
		if time.Now().After(deadline) {
			t.Fatalf("%s wasn't imported; problems: %q", ref, f.Problems())
		}
		time.Sleep(20 * time.Millisecond)
	}
}
