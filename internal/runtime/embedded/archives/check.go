package archives

import (
	"context"
	"errors"
	"fmt"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/distribution/reference"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// containerd doesn't validate names of images in an archive and the sizes in its descriptors. So both are checked
// after the import, and the images of an invalid archive are removed again.

const (
	// largest exceeds the size of any part of an image. It limits sizes in descriptors that can't be compared, because
	// the archive needn't include the parts for other platforms.
	largest = 1 << 40
	// mostParts exceeds the number of parts of any image.
	mostParts = 10_000
	// takeBackIn is the timeout for undoing an import.
	takeBackIn = 10 * time.Second
)

// check validates images that were just imported.
func check(ctx context.Context, conn *grpc.ClientConn, names []string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	i := identifier{images: images.NewImagesClient(conn), content: content.NewContentClient(conn)}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
		found, err := i.images.Get(ctx, &images.GetImageRequest{Name: name})
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		target, parts := found.GetImage().GetTarget(), 0
		if err := i.checkSizes(ctx, descriptor{Digest: target.GetDigest(), Size: target.GetSize()}, deepest,
			&parts); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	return nil
}

// checkName rejects invalid image names, such as paths or terminal escape sequences. It also rejects IDs: an archive
// could name its image by the ID of another image, and the CRI would confuse the two.
func checkName(name string) error {
	ref, err := reference.ParseAnyReference(name)
	if _, named := ref.(reference.Named); err == nil && !named {
		err = errors.New("it is an ID")
	}
	if err != nil {
		return fmt.Errorf("image %q: that isn't the name of an image: %s", name, terminal.Line(err.Error()))
	}
	return nil
}

// checkSizes checks a manifest or index and all its parts: for each, the size in the descriptor has to be that of the
// stored content. parts counts the checked parts.
func (i identifier) checkSizes(ctx context.Context, of descriptor, depth int, parts *int) error {
	there, err := i.checkSize(ctx, of, parts)
	if err != nil || !there {
		return err
	}
	if depth == 0 {
		return fmt.Errorf("image indexes are nested too deeply at %s", of.Digest)
	}
	d, err := i.document(ctx, of.Digest, of.Size)
	if err != nil {
		return err
	}
	if d.Config != nil {
		d.Layers = append(d.Layers, *d.Config)
	}
	for _, layer := range d.Layers {
		if _, err := i.checkSize(ctx, layer, parts); err != nil {
			return err
		}
	}
	for _, m := range d.Manifests {
		if err := i.checkSizes(ctx, m, depth-1, parts); err != nil {
			return err
		}
	}
	return nil
}

// checkSize checks the size of one part, and reports whether the part is stored.
func (i identifier) checkSize(ctx context.Context, of descriptor, parts *int) (there bool, err error) {
	if *parts++; *parts > mostParts {
		return false, fmt.Errorf("it has more than %d parts", mostParts)
	}
	info, err := i.content.Info(ctx, &content.InfoRequest{Digest: of.Digest})
	switch {
	case status.Code(err) == codes.NotFound && of.Size >= 0 && of.Size <= largest:
		return false, nil
	case status.Code(err) == codes.NotFound:
		return false, fmt.Errorf("it gives %q an impossible size of %d bytes", of.Digest, of.Size)
	case err != nil:
		return false, fmt.Errorf("find out the size of %q: %w", of.Digest, err)
	case info.GetInfo().GetSize() != of.Size:
		return false, fmt.Errorf("it gives %s a size of %d bytes, but it has %d", of.Digest, of.Size,
			info.GetInfo().GetSize())
	}
	return true, nil
}

// stored returns all images by name.
func stored(ctx context.Context, conn *grpc.ClientConn) (map[string]*images.Image, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	list, err := images.NewImagesClient(conn).List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the images: %w", err)
	}
	out := make(map[string]*images.Image, len(list.GetImages()))
	for _, img := range list.GetImages() {
		out[img.GetName()] = img
	}
	return out, nil
}

// takeBack removes the images with these names, and restores the images that had the names before the import.
func takeBack(ctx context.Context, conn *grpc.ClientConn, names []string, before map[string]*images.Image) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackIn)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	client := images.NewImagesClient(conn)
	var errs []error
	for _, name := range names {
		var err error
		if img := before[name]; img != nil {
			_, err = client.Update(ctx, &images.UpdateImageRequest{Image: img})
		} else {
			_, err = client.Delete(ctx, &images.DeleteImageRequest{Name: name, Sync: true})
		}
		if err != nil && status.Code(err) != codes.NotFound {
			errs = append(errs, fmt.Errorf("undo the import of image %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
