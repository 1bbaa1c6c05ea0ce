package pull

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

// withTag validates the reference and adds the default tag if it has neither tag nor digest. It changes nothing else:
// the runtime resolves the registry of short names.
func withTag(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", &pod.Failure{
			Reason: pod.ReasonInvalidImageName,
			Message: fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", image,
				image, err),
			Permanent: true,
		}
	}
	if reference.IsNameOnly(named) {
		return image + ":latest", nil
	}
	return image, nil
}

// Name returns the name under which Progress lists an image of a container spec: with its tag, latest by default.
func Name(image string) string {
	if name, err := withTag(image); err == nil {
		return name
	}
	return image
}

// pullFailure describes why a pull failed with each of the credentials.
func pullFailure(name string, attempts []attempt) pod.Failure {
	f := pod.Failure{Reason: pullReason(attempts[0].err)}
	var messages []string
	for _, a := range attempts {
		text := runtimeMessage(a.err)
		if a.login != nil {
			text = "with " + a.login.Origin.String() + ": " + text
		}
		// A registry may also repeat the credential of an earlier attempt.
		for _, other := range attempts {
			text = withoutSecrets(text, other.login)
		}
		messages = append(messages, text)
		f.Disk = f.Disk || atomicfile.DiskFails(a.err)
		if pullReason(a.err) != f.Reason {
			f.Reason = pod.ReasonErrImagePull
		}
	}
	f.Message = fmt.Sprintf("failed to pull image %q: %s", name, strings.Join(messages, "; "))
	return f
}

// pullReason returns the reason of a failed pull. Runtimes put special reasons at the start of the message
// (k8s.io/cri-api/pkg/errors).
func pullReason(err error) pod.Reason {
	message := runtimeMessage(err)
	for _, special := range []error{crierrors.ErrRegistryUnavailable, crierrors.ErrSignatureValidationFailed} {
		if strings.HasPrefix(message, special.Error()) {
			return pod.Reason(special.Error())
		}
	}
	return pod.ReasonErrImagePull
}

// runtimeMessage returns the runtime's message without gRPC's prefix.
func runtimeMessage(err error) string {
	var g interface{ GRPCStatus() *status.Status }
	if errors.As(err, &g) {
		return g.GRPCStatus().Message()
	}
	return err.Error()
}

// shortest is the minimum length, in bytes, of secrets that are redacted. Redacting shorter ones would make the text
// unreadable, and its gaps would reveal them.
const shortest = 4

// withoutSecrets redacts the credential's secrets in a message of the registry or runtime.
func withoutSecrets(text string, c *credentials.Credential) string {
	if c == nil {
		return text
	}
	basic := base64.StdEncoding.EncodeToString([]byte(c.Username + ":" + c.Password))
	for _, secret := range []string{basic, c.Password, c.IdentityToken, c.RegistryToken} {
		if len(secret) >= shortest {
			text = strings.ReplaceAll(text, secret, "(secret)")
		}
	}
	return text
}

// unclear reports whether the runtime may have continued or completed a pull that failed with err: its response, if
// there was one, wasn't received.
func unclear(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	case codes.Unknown:
		// Without a gRPC status, the error may not be the runtime's response. It often is one: cri-client removes the
		// status from errors with this code.
		var g interface{ GRPCStatus() *status.Status }
		return !errors.As(err, &g)
	default:
		return false
	}
}

func backoffFailure(name string, s backoffState) *pod.Failure {
	return &pod.Failure{
		Reason:    pod.ReasonImagePullBackOff,
		Message:   fmt.Sprintf("Back-off pulling image %q: %s: %s", name, s.Last.Reason, s.Last.Message),
		NotBefore: s.Until,
		Disk:      s.Last.Disk,
	}
}

func inspectFailure(name string, err error) *pod.Failure {
	return &pod.Failure{Reason: pod.ReasonImageInspectError, Unanswered: !cri.IsAnswer(err),
		Message: fmt.Sprintf("Failed to inspect image %q: %s", name, runtimeMessage(err))}
}

func keyringFailure(name string, err error) *pod.Failure {
	f := &pod.Failure{Reason: pod.ReasonErrImagePull,
		Message: fmt.Sprintf("can't get the credentials for image %q: %s", name, err)}
	if unknown := (*object.Unknown)(nil); errors.As(err, &unknown) {
		f.Awaits, f.NotBefore, f.Unknown = unknown.Key.Object(), unknown.NotBefore, true
	}
	return f
}

func neverFailure(name string, present bool) *pod.Failure {
	f := &pod.Failure{Reason: pod.ReasonErrImageNeverPull}
	if present {
		f.Message = fmt.Sprintf(
			"Container image %q is on this node, but was pulled with credentials that this pod hasn't shown to have, "+
				"and imagePullPolicy Never forbids to check its own at the registry; "+
				"give the pod the pull secret that the image was pulled with, or use IfNotPresent", name)
	} else {
		f.Message = fmt.Sprintf(
			"Container image %q is not present with pull policy of Never: import it, or use IfNotPresent", name)
	}
	return f
}

// hint returns the text to add to the message of a failed pull if the image is already on the node.
func hint(policy v1.PullPolicy) string {
	if policy == v1.PullAlways {
		return "; the image is on this node, but imagePullPolicy Always asks its registry each time: IfNotPresent or " +
			"Never would use it as it is"
	}
	return "; the image is on this node, but was pulled with credentials that this pod hasn't shown to have, so that " +
		"its own are checked at the registry"
}

// failed returns a copy of a shared failure with a suffix and the time of the next retry.
func failed(f pod.Failure, more string, until time.Time) *pod.Failure {
	f.Message += more
	f.NotBefore = until
	return &f
}
