package image

import (
	"errors"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Waiting reasons, as kubectl and its users know them from the kubelet.
const (
	reasonPull    = "ErrImagePull"
	reasonNever   = "ErrImageNeverPull"
	reasonInspect = "ImageInspectError"
	reasonName    = "InvalidImageName"
)

// withTag checks the reference and adds the default tag where it has neither tag
// nor digest. Everything else is left as written: which registry a short name
// means is the runtime's to know.
func withTag(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", &pod.Failure{
			Reason:    reasonName,
			Message:   fmt.Sprintf("image %q is not a valid reference: %v", image, err),
			Permanent: true,
		}
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}

// pullReason is the reason for a failed pull. Runtimes name the special ones at
// the start of the message (k8s.io/cri-api/pkg/errors).
func pullReason(err error) string {
	message := runtimeMessage(err)
	for _, special := range []error{crierrors.ErrRegistryUnavailable, crierrors.ErrSignatureValidationFailed} {
		if strings.HasPrefix(message, special.Error()) {
			return special.Error()
		}
	}
	return reasonPull
}

// runtimeMessage is what the runtime said, without gRPC's wrapping.
func runtimeMessage(err error) string {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		return g.GRPCStatus().Message()
	}
	return err.Error()
}
