package archives_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
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
	f.Importer = archives.New(dir, filewatch.New(filewatch.Every, logr.Discard()), filepath.Join(dir, ".imported.json"), connect, tell, logr.Discard())
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
	return imageOf(t, 100_000)
}

// imageOf is an image whose two layers have so many bytes each.
func imageOf(t *testing.T, size int64) v1.Image {
	t.Helper()
	img, err := random.Image(size, 2)
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
	writeImage(t, path, ref, image(t))
}

// writeLarge is writeArchive of an image that containerd doesn't send at once.
func writeLarge(t *testing.T, path, ref string) {
	t.Helper()
	writeImage(t, path, ref, imageOf(t, 3<<20))
}

func writeImage(t *testing.T, path, ref string, img v1.Image) {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, img); err != nil {
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

// TestExport: what is exported is whole, docker's tools read it, and it can be imported again.
func TestExport(t *testing.T) {
	f := newDir(t)
	const one, two = "example.org/one:1", "example.org/two:1" // the second is an index, for several kinds of machines
	for ref, write := range map[string]func(*testing.T, string, string){one: writeLarge, two: writeIndexed} {
		path := filepath.Join(t.TempDir(), "image.tar")
		write(t, path, ref)
		if _, err := f.Import(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	var out bytes.Buffer
	if err := f.ExportTo(t.Context(), []string{one, two}, &out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(saved, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{one, two} {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		img, err := tarball.ImageFromPath(saved, &tag)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := img.Layers()
		if err != nil || len(layers) != 2 {
			t.Errorf("%s has %d layers: %v", ref, len(layers), err)
		}
	}
	conn := f.in.Connect(t)
	if err := embedded.Untag(t.Context(), conn, []string{one, two}); err != nil {
		t.Fatal(err)
	}
	names, err := f.ImportFrom(t.Context(), &out)
	if err != nil || !slices.Equal(slices.Sorted(slices.Values(names)), []string{one, two}) {
		t.Errorf("imported %q again: %v", names, err)
	}
	if !f.has(t, one) || !f.has(t, two) {
		t.Error("they aren't there again")
	}
	err = f.ExportTo(t.Context(), []string{"example.org/none:1"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "example.org/none:1") {
		t.Errorf("one that isn't there: %v", err)
	}
	full := errors.New("no space left")
	if err := f.ExportTo(t.Context(), []string{one}, fullAfter{1000, full}); !errors.Is(err, full) {
		t.Errorf("a disk that is full: %v", err)
	}
}

// TestRecordOnAFullDisk: archives are imported, and the agent goes on, where the record of that can't be written.
func TestRecordOnAFullDisk(t *testing.T) {
	f := newDir(t)
	disk := t.TempDir()
	if err := unix.Mount("deckhand-test", disk, "tmpfs", 0, "nr_inodes=1"); err != nil { // its top directory is one
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	const ref = "example.org/one:1"
	writeArchive(t, filepath.Join(f.dir, "one.tar"), ref)
	connect := func() (*grpc.ClientConn, error) { return embedded.Dial(f.in.Config) }
	record := filepath.Join(disk, "imported.json")
	im := archives.New(f.dir, filewatch.New(filewatch.Every, logr.Discard()), record, connect, nil, logr.Discard())
	if err := im.Sync(t.Context()); err != nil || !f.has(t, ref) {
		t.Errorf("on a full disk: %v", err)
	}
	if err := unix.Mount("deckhand-test", disk, "tmpfs", unix.MS_REMOUNT, "nr_inodes=10"); err != nil {
		t.Fatal(err)
	}
	if err := im.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(record); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// fullAfter is a disk with room for so many bytes at once.
type fullAfter struct {
	room int
	err  error
}

func (f fullAfter) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return f.room, f.err
	}
	return len(p), nil
}

// TestTag: an image gets a further name, which moves from another image; the CRI has both.
func TestTag(t *testing.T) {
	f := newDir(t)
	const one, two, moves = "example.org/one:1", "example.org/two:1", "example.org/moves:1"
	for _, ref := range []string{one, two} {
		path := filepath.Join(t.TempDir(), "image.tar")
		writeArchive(t, path, ref)
		if _, err := f.Import(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	conn := f.in.Connect(t)
	id := func(ref string) string {
		t.Helper()
		got, err := f.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
		if err != nil || got.GetImage() == nil {
			t.Fatalf("%s: %v, %v", ref, got, err)
		}
		return got.GetImage().GetId()
	}
	for _, ref := range []string{one, two, two} {
		if err := embedded.Tag(t.Context(), conn, id(ref), []string{ref}, moves); err != nil {
			t.Fatal(err)
		}
		if got, want := id(moves), id(ref); got != want {
			t.Errorf("%s is %s, not %s", moves, got, want)
		}
	}
	if id(one) == id(two) {
		t.Error("an image has lost its own name")
	}
	none := "sha256:" + strings.Repeat("0", 64)
	if err := embedded.Tag(t.Context(), conn, none, []string{"example.org/none:1"}, moves); err == nil {
		t.Error("an image that isn't there can be tagged")
	}
}

// TestTagOfANameWrittenOtherwise: a name moves also from an image that has it as an archive has written it, by which
// the CRI doesn't find it.
func TestTagOfANameWrittenOtherwise(t *testing.T) {
	f := newDir(t)
	const one, two, written, full = "example.org/one:1", "example.org/two:1", "a/moves:1", "docker.io/a/moves:1"
	ids := map[string]string{}
	conn := f.in.Connect(t)
	find := func(ref string) *cri.Image {
		t.Helper()
		got, err := f.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
		if err != nil || got.GetImage() == nil {
			t.Fatalf("%s: %v, %v", ref, got, err)
		}
		return got.GetImage()
	}
	for _, ref := range []string{one, two} {
		path := filepath.Join(t.TempDir(), "image.tar")
		writeArchive(t, path, ref)
		if _, err := f.Import(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		ids[ref] = find(ref).GetId()
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	client := images.NewImagesClient(conn)
	has, err := client.Get(ctx, &images.GetImageRequest{Name: one})
	if err != nil {
		t.Fatal(err)
	}
	record := has.GetImage()
	for _, beside := range []bool{false, true} { // the name in full is there beside it
		record.Name = written
		if _, err := client.Create(ctx, &images.CreateImageRequest{Image: record}); err != nil {
			t.Fatal(err)
		}
		if beside {
			record.Name = full
			if _, err := client.Update(ctx, &images.UpdateImageRequest{Image: record}); err != nil {
				t.Fatal(err)
			}
		}
		f.awaitImage(t, full)
		if err := embedded.Tag(t.Context(), conn, ids[two], []string{two}, full); err != nil {
			t.Fatal(err)
		}
		if got := find(full).GetId(); got != ids[two] {
			t.Errorf("%s is %s, not %s", full, got, ids[two])
		}
		if tags := find(one).GetRepoTags(); !slices.Equal(tags, []string{one}) {
			t.Errorf("the image that had the name has %q", tags)
		}
	}
}

// TestUntagOfANameWrittenOtherwise: a name goes also where only ctr has written it, in its own form.
func TestUntagOfANameWrittenOtherwise(t *testing.T) {
	f := newDir(t)
	const one, written, full = "example.org/untagged:1", "a/untagged:1", "docker.io/a/untagged:1"
	path := filepath.Join(t.TempDir(), "image.tar")
	writeArchive(t, path, one)
	if _, err := f.Import(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	conn := f.in.Connect(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	client := images.NewImagesClient(conn)
	record, err := client.Get(ctx, &images.GetImageRequest{Name: one})
	if err != nil {
		t.Fatal(err)
	}
	named := record.GetImage()
	named.Name = written
	if _, err := client.Create(ctx, &images.CreateImageRequest{Image: named}); err != nil {
		t.Fatal(err)
	}
	f.awaitImage(t, full)
	if err := embedded.Untag(t.Context(), conn, []string{full}); err != nil {
		t.Fatal(err)
	}
	got, err := f.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: one}})
	if err != nil || !slices.Equal(got.GetImage().GetRepoTags(), []string{one}) {
		t.Errorf("the image has the names %q, %v; want %q", got.GetImage().GetRepoTags(), err, one)
	}
}

// TestRecord: of two records of a name, in containerd's order, the one in full counts.
func TestRecord(t *testing.T) {
	list := []*images.Image{{Name: "a/web:1"}, {Name: "b/web:1"}, {Name: "docker.io/a/web:1"}}
	for want, names := range map[string][]string{
		"docker.io/a/web:1": {"docker.io/a/web:1"},
		"b/web:1":           {"docker.io/c/web:1", "docker.io/b/web:1", "docker.io/a/web:1"},
		"":                  {"docker.io/c/web:1"},
	} {
		if got := archives.Record(list, names...).GetName(); got != want {
			t.Errorf("%q: got %q, want %q", names, got, want)
		}
	}
}
