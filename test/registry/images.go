package registry

import (
	"archive/tar"
	"bytes"
	"io"
	"runtime"
	"strconv"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// RandomImage makes an image for this machine of so many layers, each with a file of so
// many random bytes. No two are the same, and there is nothing in them to run.
func RandomImage(t testing.TB, layers int, size int64) v1.Image {
	t.Helper()
	image := empty.Image
	for range layers {
		image = WithLayer(t, image, size)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	return image
}

// WithLayer puts a layer with a file of so many random bytes on top of an image:
// another image that runs the same, with something of its own to pull.
func WithLayer(t testing.TB, image v1.Image, size int64) v1.Image {
	t.Helper()
	layer, err := random.Layer(size, types.DockerLayer)
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	return image
}

// WithFiles puts a layer with so many empty files on top of an image.
func WithFiles(t testing.TB, image v1.Image, files int) v1.Image {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for i := range files {
		if err := w.WriteHeader(&tar.Header{Name: strconv.Itoa(i), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	return image
}

// FromArchive reads an image from an archive, such as bin/images/web.tar, by the
// name it has there, such as deckhand.local/web:1. See images/build.
func FromArchive(t testing.TB, path, ref string) v1.Image {
	t.Helper()
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// Digest is that of an image's manifest, "sha256:...".
func Digest(t testing.TB, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// Layers are the digests of an image's layers as they are pulled, the lowest first.
func Layers(t testing.TB, image v1.Image) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, l := range layers {
		digest, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, digest.String())
	}
	return list
}
