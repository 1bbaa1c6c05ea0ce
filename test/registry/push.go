package registry

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Push puts an image into the registry as "repository:tag" and returns its full
// reference by digest.
func (r *Registry) Push(t testing.TB, as string, image v1.Image) string {
	t.Helper()
	repository, tag := split(as)
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		r.put(t, repository, layer.Digest, layer.Compressed)
	}
	r.put(t, repository, image.ConfigName, func() (io.ReadCloser, error) {
		file, err := image.RawConfigFile()
		return io.NopCloser(bytes.NewReader(file)), err
	})
	manifest, err := image.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := image.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	q := httptest.NewRequest(http.MethodPut, "/v2/"+repository+"/manifests/"+tag, bytes.NewReader(manifest))
	q.Header.Set("Content-Type", string(kind))
	w := httptest.NewRecorder()
	r.store.ServeHTTP(w, q)
	if w.Code != http.StatusCreated {
		t.Fatalf("push %s: %d %s", as, w.Code, w.Body)
	}
	return r.Ref(repository + "@" + Digest(t, image))
}

// put stores one blob.
func (r *Registry) put(t testing.TB, repository string, digest func() (v1.Hash, error), open func() (io.ReadCloser, error)) {
	t.Helper()
	hash, err := digest()
	if err != nil {
		t.Fatal(err)
	}
	content, err := open()
	if err != nil {
		t.Fatal(err)
	}
	// What reads a layer also closes it.
	if err := r.blobs.Put(context.Background(), repository, hash, content); err != nil {
		t.Fatalf("push blob %s: %v", hash, err)
	}
}
