package images

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// runnable makes an image that runs as one of an archive does, with so many layers more
// of so many random bytes.
func runnable(archive, ref string, layers int, size int64) (v1.Image, error) {
	from, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return nil, err
	}
	image, err := tarball.ImageFromPath(archive, &from)
	if err != nil {
		return nil, err
	}
	for range layers {
		layer, err := random.Layer(size, types.DockerLayer)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
	}
	return image, nil
}

// push puts an image into the registry.
func (r *registry) push(ctx context.Context, image string, content v1.Image) error {
	layers, err := content.Layers()
	if err != nil {
		return err
	}
	config, err := content.RawConfigFile()
	if err != nil {
		return err
	}
	if err := r.blob(ctx, image, content.ConfigName, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(config)), nil }); err != nil {
		return err
	}
	for _, l := range layers {
		if err := r.blob(ctx, image, l.Digest, l.Compressed); err != nil {
			return err
		}
	}
	manifest, err := content.RawManifest()
	if err != nil {
		return err
	}
	kind, err := content.MediaType()
	if err != nil {
		return err
	}
	return r.send(ctx, http.MethodPut, image+"/manifests/"+tag, string(kind), bytes.NewReader(manifest))
}

func (r *registry) blob(ctx context.Context, image string, digest func() (v1.Hash, error), open func() (io.ReadCloser, error)) error {
	hash, err := digest()
	if err != nil {
		return err
	}
	data, err := open()
	if err != nil {
		return err
	}
	// The client closes what it sends.
	return r.send(ctx, http.MethodPost, image+"/blobs/uploads/?digest="+hash.String(), "application/octet-stream", data)
}

func (r *registry) send(ctx context.Context, method, path, kind string, data io.Reader) error {
	q, err := http.NewRequestWithContext(ctx, method, "http://"+r.host+"/v2/"+path, data)
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return nil
}
