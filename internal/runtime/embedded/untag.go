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
	// noticed is how long containerd's CRI may take to process a changed image name. glance is the polling interval
	// meanwhile.
	noticed = 5 * time.Second
	glance  = 20 * time.Millisecond
)

// Untag removes image names, which are full names as in the CRI. Images with other names remain. It returns when
// the CRI doesn't list the names any more.
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

// Tag adds the full name target to the image with the ID. names are the image's other names in the CRI. If another
// image has the name target, that image loses it. Tag returns when the CRI finds the image by the name.
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

// withinNotice sets the timeout of waiting for the CRI, and containerd's namespace of the CRI's images.
func withinNotice(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace), noticed)
}

// completed returns the names of all image records whose full name is name, such as "nginx" for
// "docker.io/library/nginx:latest". An archive or the command ctr may record such a short name. The CRI then lists
// the full name but doesn't find the image by it; and if the short name is removed, the CRI continues to list the
// full name until containerd ends. So completed creates the record with the full name if it is missing.
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

// giveName creates an image record with this name and the CRI's label for the image at target. If known is true,
// another image may have the name, and its record is changed instead.
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

// awaitStatus returns when the function done accepts the image that the CRI has by this name, nil if it has none.
func awaitStatus(ctx context.Context, conn grpc.ClientConnInterface, name string, done func(*cri.Image) bool) error {
	request := &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}}
	return awaitNoticed(ctx, conn, func(client cri.ImageServiceClient) (bool, error) {
		got, err := client.ImageStatus(ctx, request)
		return done(got.GetImage()), err
	})
}

// awaitNoticed calls the function done until it returns true: the CRI updates its images a while after containerd has
// changed them.
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
