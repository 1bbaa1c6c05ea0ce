package cri

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type images = internalapi.ImageManagerService

// ImageStatus returns one image; nil without an error means that it doesn't exist.
func (c *Conn) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	return get(ctx, c, c.image, "image_status", image.GetImage(),
		func(ctx context.Context, s images) (*runtimeapi.Image, error) {
			r, err := s.ImageStatus(ctx, image, false)
			return r.GetImage(), err
		})
}

// PullImage pulls an image and returns the runtime's reference to it. It has no timeout except ctx. auth and
// sandbox may be nil.
func (c *Conn) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
	sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	return get(ctx, c, c.image, "pull_image", image.GetImage(), func(ctx context.Context, s images) (string, error) {
		return s.PullImage(ctx, image, auth, sandbox)
	})
}

// ListImages lists images; a nil filter lists all.
func (c *Conn) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return get(ctx, c, c.image, "list_images", "", func(ctx context.Context, s images) ([]*runtimeapi.Image, error) {
		return s.ListImages(ctx, filter)
	})
}

// RemoveImage removes an image. A missing image isn't an error.
func (c *Conn) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return call(ctx, c, c.image, "remove_image", image.GetImage(), func(ctx context.Context, s images) error {
		return s.RemoveImage(ctx, image)
	})
}

// ImageFsInfo returns the file systems of images and their usage.
func (c *Conn) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return get(ctx, c, c.image, "image_fs_info",
		"", func(ctx context.Context, s images) (*runtimeapi.ImageFsInfoResponse, error) {
			return s.ImageFsInfo(ctx)
		})
}
