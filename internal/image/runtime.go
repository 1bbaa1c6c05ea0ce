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

// Conn is the part of the CRI that Runtime calls.
type Conn interface {
	// ImageStatus returns an image, or nil without an error if there is no such image.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Extras contains a runtime's functions for images beyond the CRI. engine.Engine implements it.
type Extras interface {
	pull.Transfers
	Keep() map[string]string
	Untag(ctx context.Context, names []string) error
	BeforePull(image string) error
	Store() engine.Store
}

// Runtime implements pull.Runtime on top of the CRI.
type Runtime struct {
	Conn   Conn
	Extras Extras
}

// ImageStatus returns the named image, or the zero value if there is no such image.
func (r Runtime) ImageStatus(ctx context.Context, name string) (pull.Stored, error) {
	img, err := r.Conn.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
	if err != nil || img == nil {
		return pull.Stored{}, inOwnWords(err)
	}
	return pull.Stored{Ref: img.Id, Size: int64(min(img.Size, math.MaxInt64))}, nil
}

// PullImage pulls an image and returns the runtime's reference for it.
func (r Runtime) PullImage(ctx context.Context, name string, login *credentials.Credential) (string, error) {
	if err := r.Extras.BeforePull(name); err != nil {
		return "", err
	}
	var auth *runtimeapi.AuthConfig
	if login != nil {
		// ServerAddress isn't set: containerd ignores the credentials if it differs from the URL of the registry
		// host.
		auth = &runtimeapi.AuthConfig{Username: login.Username, Password: login.Password,
			IdentityToken: login.IdentityToken, RegistryToken: login.RegistryToken}
	}
	ref, err := r.Conn.PullImage(ctx, &runtimeapi.ImageSpec{Image: name}, auth, nil)
	return ref, inOwnWords(err)
}

// inOwnWords returns the runtime's error without the client's prefix: the message has to start with the runtime's
// reason (k8s.io/cri-api/pkg/errors), and the manager adds the image's name.
func inOwnWords(err error) error {
	if criErr := (*cri.Error)(nil); errors.As(err, &criErr) {
		return criErr.Unwrap()
	}
	return err
}
