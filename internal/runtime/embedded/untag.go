package embedded

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/archives"
)

const (
	// noticed is how long containerd's CRI may take to notice that a name is gone, glance how often it is asked
	// meanwhile.
	noticed = 5 * time.Second
	glance  = 20 * time.Millisecond
)

// Untag removes names of images, in full as the CRI has them. The images stay if they have others. It returns when the
// CRI doesn't list the names any more.
func Untag(ctx context.Context, conn grpc.ClientConnInterface, names []string) error {
	ctx, cancel := withinNotice(ctx)
	defer cancel()
	client := images.NewImagesClient(conn)
	list, err := client.List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list the images: %w", err)
	}
	for _, name := range names {
		written, err := completed(ctx, conn, list.GetImages(), name)
		if err != nil {
			return err
		}
		if err := deleteNames(ctx, client, written); err != nil {
			return err
		}
	}
	is := func(name string) bool { return slices.Contains(names, name) }
	return awaitNoticed(ctx, conn, func(client cri.ImageServiceClient) (bool, error) {
		list, err := client.ListImages(ctx, &cri.ListImagesRequest{})
		return !slices.ContainsFunc(list.GetImages(), func(i *cri.Image) bool {
			return slices.ContainsFunc(i.GetRepoTags(), is) || slices.ContainsFunc(i.GetRepoDigests(), is)
		}), err
	})
}

// Tag gives the image with the ID the name target, in full. names are others that the CRI has of it. Another image
// that had the name loses it. It returns when the CRI finds it by the name.
func Tag(ctx context.Context, conn grpc.ClientConnInterface, id string, names []string, target string) error {
	ctx, cancel := withinNotice(ctx)
	defer cancel()
	client := images.NewImagesClient(conn)
	list, err := client.List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list the images: %w", err)
	}
	source := archives.Record(list.GetImages(), append(slices.Clone(names), id)...)
	if source == nil {
		return fmt.Errorf("containerd doesn't have image %s any more", id)
	}
	written, err := completed(ctx, conn, list.GetImages(), target)
	if err != nil {
		return err
	}
	if err := giveName(ctx, client, target, source.GetTarget(), len(written) > 0); err != nil {
		return err
	}
	written = slices.DeleteFunc(written, func(name string) bool { return name == target })
	if err := deleteNames(ctx, client, written); err != nil {
		return err
	}
	return awaitStatus(ctx, conn, target, func(i *cri.Image) bool { return i.GetId() == id })
}

// withinNotice limits what waits for the CRI, and chooses the CRI's images of containerd's.
func withinNotice(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace), noticed)
}

// completed returns the names of all records of images that stand for the name, and first creates the record with the
// name in full if it is missing. An archive or ctr may write a name in short form: the CRI lists that in full, but
// doesn't find the image by it, and without a record in full lists it until containerd ends.
func completed(
	ctx context.Context, conn grpc.ClientConnInterface, list []*images.Image, name string,
) (written []string, err error) {
	var first *images.Image
	for _, i := range list {
		if archives.Canonical(i.GetName()) == name {
			first, written = cmp.Or(first, i), append(written, i.GetName())
		}
	}
	if first == nil || slices.Contains(written, name) {
		return written, nil
	}
	if err := giveName(ctx, images.NewImagesClient(conn), name, first.GetTarget(), false); err != nil {
		return nil, err
	}
	return append(written, name), awaitStatus(ctx, conn, name, func(i *cri.Image) bool { return i != nil })
}

func deleteNames(ctx context.Context, client images.ImagesClient, names []string) error {
	for _, name := range names {
		_, err := client.Delete(ctx, &images.DeleteImageRequest{Name: name})
		if err != nil && status.Code(err) != codes.NotFound {
			return fmt.Errorf("remove the name %s: %w", name, err)
		}
	}
	return nil
}

// giveName gives what is at target the name, as an image of the CRI's; known says that another may have it.
func giveName(
	ctx context.Context, client images.ImagesClient, name string, target *types.Descriptor, known bool,
) (err error) {
	labels := map[string]string{archives.ManagedLabel: archives.Managed}
	named := &images.Image{Name: name, Target: target, Labels: labels}
	if known {
		_, err = client.Update(ctx, &images.UpdateImageRequest{Image: named})
	} else {
		_, err = client.Create(ctx, &images.CreateImageRequest{Image: named})
	}
	return err
}

// awaitStatus returns when the image that the CRI has by a name is as it should be; nil is for none.
func awaitStatus(ctx context.Context, conn grpc.ClientConnInterface, name string, done func(*cri.Image) bool) error {
	request := &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}}
	return awaitNoticed(ctx, conn, func(client cri.ImageServiceClient) (bool, error) {
		got, err := client.ImageStatus(ctx, request)
		return done(got.GetImage()), err
	})
}

// awaitNoticed returns when the images that the CRI has are as they should be: it learns of changes by an event,
// and reports to nobody when.
func awaitNoticed(
	ctx context.Context, conn grpc.ClientConnInterface, done func(cri.ImageServiceClient) (bool, error),
) error {
	for {
		ok, err := done(cri.NewImageServiceClient(conn))
		if err != nil {
			return fmt.Errorf("wait until containerd's CRI plugin has noticed: %w", err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until containerd's CRI plugin has noticed: %w", ctx.Err())
		case <-time.After(glance):
		}
	}
}
