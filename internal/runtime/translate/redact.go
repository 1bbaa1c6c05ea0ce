package translate

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrRedacted replaces the runtime's messages about containers for which Redacted is true.
var ErrRedacted = errors.New(
	"the runtime can't start the program that its command names; its message is redacted, as it quotes the name, and " +
		"that may hold a Secret's value: check that the program exists in the image and may be executed")

// Redacted reports whether the runtime's messages about the container may contain a Secret's value. That is so if the
// container has variables from a Secret, and the name of its program contains variables: runtimes quote the name of a
// program that they can't start.
func Redacted(c *v1.Container) bool {
	words := c.Command
	if len(words) == 0 {
		words = c.Args // if the image has no entrypoint, the args start with the program
	}
	return len(words) > 0 && strings.Contains(words[0], "$(") && knowsSecrets(c)
}

func knowsSecrets(c *v1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool {
		return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil
	}) || slices.ContainsFunc(c.EnvFrom, func(e v1.EnvFromSource) bool { return e.SecretRef != nil })
}

// runtimeMessage returns the runtime's message about a container, replaced by ErrRedacted if it may contain a
// Secret's value.
func runtimeMessage(st *runtimeapi.ContainerStatus) string {
	message := st.GetMessage()
	_, redacted := st.GetAnnotations()[AnnotationRedacted]
	_, older := st.GetAnnotations()[annotationRedacted]
	if message == "" || !redacted && !older {
		return message
	}
	return ErrRedacted.Error()
}
