package cri

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type images = internalapi.ImageManagerService

// ImageStatus tells of one image; nil without an error means that it isn't there.
func (c *Conn) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (out *runtimeapi.Image, err error) {
	err = call(ctx, c, c.image, "image_status", image.GetImage(), func(ctx context.Context, s images) error {
		r, err := s.ImageStatus(ctx, image, false)
		out = r.GetImage()
		return err
	})
	return out, err
}

// PullImage pulls an image and returns the runtime's reference to it. It takes
// as long as it takes: ctx alone bounds it. auth and sandbox may be nil.
func (c *Conn) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (ref string, err error) {
	err = call(ctx, c, c.image, "pull_image", image.GetImage(), func(ctx context.Context, s images) error {
		ref, err = s.PullImage(ctx, image, auth, sandbox)
		return err
	})
	return ref, err
}

// ListImages lists images; a nil filter lists all.
func (c *Conn) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) (out []*runtimeapi.Image, err error) {
	err = call(ctx, c, c.image, "list_images", "", func(ctx context.Context, s images) error {
		out, err = s.ListImages(ctx, filter)
		return err
	})
	return out, err
}

// RemoveImage removes an image. An image that is gone is no error.
func (c *Conn) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	return call(ctx, c, c.image, "remove_image", image.GetImage(), func(ctx context.Context, s images) error {
		return s.RemoveImage(ctx, image)
	})
}

// ImageFsInfo tells where images are kept and how much room they take.
func (c *Conn) ImageFsInfo(ctx context.Context) (out *runtimeapi.ImageFsInfoResponse, err error) {
	err = call(ctx, c, c.image, "image_fs_info", "", func(ctx context.Context, s images) error {
		out, err = s.ImageFsInfo(ctx)
		return err
	})
	return out, err
}
