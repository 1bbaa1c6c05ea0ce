package image

import (
	"context"
	"errors"
	"math"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// Conn is what is asked of the container runtime, in the terms of the CRI.
type Conn interface {
	// ImageStatus reports one image; nil without an error means that it isn't there.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Extras is what a runtime does with images beyond the CRI; engine.Engine has it.
type Extras interface {
	pull.Transfers
	Keep() map[string]string
	Untag(ctx context.Context, names []string) error
	BeforePull(image string) error
	Store() engine.Store
}

// Runtime offers the runtime's images to the image manager (image.Runtime).
type Runtime struct {
	Conn   Conn
	Extras Extras
}

// ImageStatus returns what the runtime has under a name; the zero value for nothing.
func (r Runtime) ImageStatus(ctx context.Context, name string) (pull.Stored, error) {
	img, err := r.Conn.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
	if err != nil || img == nil {
		return pull.Stored{}, inOwnWords(err)
	}
	return pull.Stored{Ref: img.Id, Size: int64(min(img.Size, math.MaxInt64))}, nil
}

// PullImage fetches an image and returns the runtime's reference for it.
func (r Runtime) PullImage(ctx context.Context, name string, login *credentials.Credential) (string, error) {
	if err := r.Extras.BeforePull(name); err != nil {
		return "", err
	}
	var auth *runtimeapi.AuthConfig
	if login != nil {
		// Not its ServerAddress: containerd drops the rest where that isn't the URL of the host it asks.
		auth = &runtimeapi.AuthConfig{Username: login.Username, Password: login.Password,
			IdentityToken: login.IdentityToken, RegistryToken: login.RegistryToken}
	}
	ref, err := r.Conn.PullImage(ctx, &runtimeapi.ImageSpec{Image: name}, auth, nil)
	return ref, inOwnWords(err)
}

// inOwnWords is what the runtime said, without the connection's words in front: runtimes begin
// with the reason (k8s.io/cri-api/pkg/errors), and which image it is about the manager says.
func inOwnWords(err error) error {
	if told := (*cri.Error)(nil); errors.As(err, &told) {
		return told.Unwrap()
	}
	return err
}
