package embedded

import (
	"context"
	"fmt"
	"slices"
	"time"

	images "github.com/containerd/containerd/api/services/images/v1"
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
	return awaitNoticed(ctx, conn, func(list []*cri.Image) bool {
		return !slices.ContainsFunc(list, func(i *cri.Image) bool {
			return slices.ContainsFunc(i.GetRepoTags(), is) || slices.ContainsFunc(i.GetRepoDigests(), is)
		})
	})
}

// Tag gives the image with the ID the name target, in full. names are others that the CRI has of it. Another image
// that had the name loses it. It returns when the CRI lists the name.
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
	labels := map[string]string{archives.ManagedLabel: archives.Managed}
	tagged := &images.Image{Name: target, Target: source.GetTarget(), Labels: labels}
	if old := archives.Record(list.GetImages(), target); old != nil {
		tagged.Name = old.GetName()
		_, err = client.Update(ctx, &images.UpdateImageRequest{Image: tagged})
	} else {
		_, err = client.Create(ctx, &images.CreateImageRequest{Image: tagged})
	}
	if err != nil {
		return err
	}
	return awaitNoticed(ctx, conn, func(list []*cri.Image) bool {
		return slices.ContainsFunc(list, func(i *cri.Image) bool {
			return i.GetId() == id && slices.Contains(i.GetRepoTags(), target)
		})
	})
}

// awaitNoticed returns when the images that the CRI lists are as they should be: it learns of changes by an event,
// and reports to nobody when.
func awaitNoticed(ctx context.Context, conn grpc.ClientConnInterface, done func([]*cri.Image) bool) error {
	for {
		listed, err := cri.NewImageServiceClient(conn).ListImages(ctx, &cri.ListImagesRequest{})
		if err != nil {
			return fmt.Errorf("wait until containerd's CRI plugin has noticed: %w", err)
		}
		if done(listed.GetImages()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until containerd's CRI plugin has noticed: %w", ctx.Err())
		case <-time.After(glance):
		}
	}
}
