package archives

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	content "github.com/containerd/containerd/api/services/content/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxDocument is the maximum size of an index or a manifest (registries allow 4 MiB).
const maxDocument = 8 << 20

// deepest is the maximum nesting of indexes: an index has manifests, and might have indexes.
const deepest = 4

// identifier names imported images by their IDs, the digests of their configurations. The CRI gives such names to the
// images that it pulls itself. It doesn't need the name to create a container from an image, but to mount the image as
// a volume.
type identifier struct {
	images  images.ImagesClient
	content content.ContentClient
}

// identify ensures that the images of these names also have their IDs as names. It ignores names that no longer
// exist.
func identify(ctx context.Context, conn *grpc.ClientConn, names []string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	i := identifier{images: images.NewImagesClient(conn), content: content.NewContentClient(conn)}
	var errs []error
	for _, name := range names {
		if err := i.image(ctx, name); err != nil && status.Code(err) != codes.NotFound {
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (i identifier) image(ctx context.Context, name string) error {
	found, err := i.images.Get(ctx, &images.GetImageRequest{Name: name})
	if err != nil {
		return err
	}
	target := found.GetImage().GetTarget()
	id, err := i.config(ctx, target.GetDigest(), target.GetSize())
	if err != nil {
		return err
	}
	_, err = i.images.Create(ctx, &images.CreateImageRequest{
		Image: &images.Image{Name: id, Target: target, Labels: map[string]string{ManagedLabel: Managed}},
	})
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return err
}

// document is an index or a manifest, with the needed fields (OCI image-spec; docker's have the same ones).
type document struct {
	Config    *descriptor  `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
}

type descriptor struct {
	Digest   string `json:"digest"`
	Size     int64  `json:"size"`
	Platform *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

func (i identifier) document(ctx context.Context, digest string, size int64) (d document, err error) {
	text, err := i.read(ctx, digest, size)
	if err != nil {
		return document{}, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return document{}, fmt.Errorf("read the manifest %s: %w", digest, err)
	}
	return d, nil
}

// config returns the digest of an image's configuration for this platform.
func (i identifier) config(ctx context.Context, digest string, size int64) (string, error) {
	for range deepest {
		d, err := i.document(ctx, digest, size)
		if err != nil {
			return "", err
		}
		if d.Config != nil && d.Config.Digest != "" {
			return d.Config.Digest, nil
		}
		at := slices.IndexFunc(d.Manifests, func(m descriptor) bool {
			return m.Platform == nil || m.Platform.OS == runtime.GOOS && m.Platform.Architecture == runtime.GOARCH
		})
		if at < 0 {
			return "", fmt.Errorf("index %s has no manifest for %s/%s", digest, runtime.GOOS, runtime.GOARCH)
		}
		digest, size = d.Manifests[at].Digest, d.Manifests[at].Size
	}
	return "", fmt.Errorf("image indexes are nested too deeply at %s", digest)
}

func (i identifier) read(ctx context.Context, digest string, size int64) ([]byte, error) {
	if size > maxDocument {
		return nil, fmt.Errorf("manifest %s has %d bytes, more than the %d that one may have", digest, size,
			maxDocument)
	}
	ctx, cancel := context.WithCancel(ctx) // ends the stream on every return
	defer cancel()
	stream, err := i.content.Read(ctx, &content.ReadContentRequest{Digest: digest})
	if err != nil {
		return nil, err
	}
	var text []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifest %s: %w", digest, err)
		}
		if text = append(text, part.GetData()...); len(text) > maxDocument {
			return nil, fmt.Errorf("manifest %s has more than %d bytes", digest, maxDocument)
		}
	}
}
