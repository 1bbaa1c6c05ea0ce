package plugins

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Images pulls images for pods that may use them.
type Images interface {
	// Ensure returns when the image is present. Its errors are reported unchanged; a pull error contains the time
	// of the next try.
	Ensure(context.Context, Request) (Image, error)
}

// Request is a request for one image.
type Request struct {
	// Image is the image reference in the volume.
	Image string
	// Policy is Always, Never or IfNotPresent.
	Policy v1.PullPolicy
	// Pod is the pod that has the volume, Objects are the API objects that it may use.
	Pod     *v1.Pod
	Objects object.View
}

// Image is an image that is present on the node.
type Image struct {
	// Ref is the container runtime's reference to the image. Unlike a tag, it always refers to the same image.
	Ref string
}

// ImageVolume is the volume plugin for image volumes.
type ImageVolume struct{ images Images }

// NewImageVolume returns the plugin for image volumes.
func NewImageVolume(images Images) *ImageVolume { return &ImageVolume{images: images} }

// Name is the plugin's name. Its volumes have no directories.
func (*ImageVolume) Name() string { return "kubernetes.io/image" }

// Supports reports whether the volume is an image volume.
func (*ImageVolume) Supports(s volume.Spec) bool { return s.Persistent == nil && s.Volume.Image != nil }

// Mount pulls the image according to the volume's pull policy. For a running pod it only pulls a missing image,
// because the pod keeps the image that it has (API: "The volume gets re-resolved if the pod gets deleted and
// recreated").
func (p *ImageVolume) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	source := r.Spec.Volume.Image
	if source.Reference == "" {
		return volume.Mounted{},
			fmt.Errorf("an image volume without a reference is %w: set image.reference", volume.ErrUnsupported)
	}
	policy := source.PullPolicy
	if r.InUse && policy != v1.PullNever {
		policy = v1.PullIfNotPresent
	}
	img, err := p.images.Ensure(ctx, Request{Image: source.Reference, Policy: policy, Pod: r.Pod, Objects: r.Objects})
	if err != nil {
		return volume.Mounted{}, err
	}
	return volume.Mounted{
		ReadOnly:     true,
		Unpropagated: true,
		Image:        &runtimeapi.ImageSpec{Image: img.Ref, UserSpecifiedImage: source.Reference},
	}, nil
}
