package embedded

import (
	"context"
	"fmt"
	"slices"
	"time"

	images "github.com/containerd/containerd/api/services/images/v1"
	"github.com/distribution/reference"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
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
		// An archive may have written it otherwise than the CRI does.
		named, err := reference.ParseDockerRef(img.GetName())
		if err != nil || !slices.Contains(names, named.String()) {
			continue
		}
		if _, err := client.Delete(ctx, &images.DeleteImageRequest{Name: img.GetName()}); err != nil && status.Code(err) != codes.NotFound {
			return fmt.Errorf("remove the name %s: %w", img.GetName(), err)
		}
	}
	for {
		// The CRI hears of it by an event, and tells nobody when.
		listed, err := cri.NewImageServiceClient(conn).ListImages(ctx, &cri.ListImagesRequest{})
		if err != nil {
			return fmt.Errorf("wait until containerd's CRI plugin has noticed: %w", err)
		}
		is := func(name string) bool { return slices.Contains(names, name) }
		if !slices.ContainsFunc(listed.GetImages(), func(i *cri.Image) bool {
			return slices.ContainsFunc(i.GetRepoTags(), is) || slices.ContainsFunc(i.GetRepoDigests(), is)
		}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until containerd's CRI plugin has noticed: %w", ctx.Err())
		case <-time.After(glance):
		}
	}
}
