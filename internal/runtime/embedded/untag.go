package embedded

import (
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
	// noticed is how long containerd's CRI may take to notice that a name is gone, glance how often it is asked meanwhile.
	noticed = 5 * time.Second
	glance  = 20 * time.Millisecond
)

// Untag removes names of images, in full as the CRI has them. The images stay if they have others. It returns when the CRI
// doesn't list the names any more.
func Untag(ctx context.Context, conn grpc.ClientConnInterface, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, noticed)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	client := images.NewImagesClient(conn)
	list, err := client.List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list the images: %w", err)
	}
	for _, img := range list.GetImages() {
		if !slices.Contains(names, archives.Canonical(img.GetName())) {
			continue
		}
		if _, err := client.Delete(ctx, &images.DeleteImageRequest{Name: img.GetName()}); err != nil && status.Code(err) != codes.NotFound {
			return fmt.Errorf("remove the name %s: %w", img.GetName(), err)
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
	ctx, cancel := context.WithTimeout(ctx, noticed)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	client := images.NewImagesClient(conn)
	list, err := client.List(ctx, &images.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list the images: %w", err)
	}
	source := archives.Record(list.GetImages(), append(slices.Clone(names), id)...)
	if source == nil {
		return fmt.Errorf("containerd doesn't have image %s any more", id)
	}
	var otherwise []*images.Image
	known := false
	for _, i := range list.GetImages() {
		if i.GetName() == target {
			known = true
		} else if archives.Canonical(i.GetName()) == target {
			otherwise = append(otherwise, i)
		}
	}
	// The CRI lists a name that an archive, or ctr, has written otherwise as the target, but doesn't find the image by
	// that. It lists it for as long as it runs, unless the image has had the name in full.
	if len(otherwise) > 0 && !known {
		if err := giveName(ctx, client, target, otherwise[0].GetTarget(), false); err != nil {
			return err
		}
		if err := awaitStatus(ctx, conn, target, func(i *cri.Image) bool { return i != nil }); err != nil {
			return err
		}
		known = true
	}
	if err := giveName(ctx, client, target, source.GetTarget(), known); err != nil {
		return err
	}
	for _, i := range otherwise {
		_, err := client.Delete(ctx, &images.DeleteImageRequest{Name: i.GetName()})
		if err != nil && status.Code(err) != codes.NotFound {
			return fmt.Errorf("remove the name %s: %w", i.GetName(), err)
		}
	}
	return awaitStatus(ctx, conn, target, func(i *cri.Image) bool { return i.GetId() == id })
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
