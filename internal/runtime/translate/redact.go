package translate

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrRedacted replaces the runtime's message about a container that Redacted is true of.
var ErrRedacted = errors.New(
	"the runtime can't start the program that its command names; its message is redacted, as it quotes the name, and " +
		"that may hold a Secret's value: check that the program exists in the image and may be executed")

// Redacted reports whether what the runtime says of the container may hold a Secret's value:
// runtimes quote the name of a program that they can't start, and this one's is made of
// variables, in a container that has variables of a Secret.
func Redacted(c *v1.Container) bool {
	words := c.Command
	if len(words) == 0 {
		words = c.Args // where the image has no entrypoint, they begin with the program
	}
	return len(words) > 0 && strings.Contains(words[0], "$(") && knowsSecrets(c)
}

func knowsSecrets(c *v1.Container) bool {
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.SecretKeyRef != nil {
			return true
		}
	}
	for i := range c.EnvFrom {
		if c.EnvFrom[i].SecretRef != nil {
			return true
		}
	}
	return false
}

// runtimeMessage is what the runtime says of a container, with ErrRedacted in its place where it may
// hold a Secret's value. That a start was aborted (see lifecycle) is never redacted.
func runtimeMessage(st *runtimeapi.ContainerStatus) string {
	const canceled = "context canceled"
	message := st.GetMessage()
	_, redacted := st.GetAnnotations()[AnnotationRedacted]
	_, older := st.GetAnnotations()[annotationRedacted]
	switch {
	case !redacted && !older || message == "":
		return message
	case strings.Contains(message, canceled):
		return canceled
	}
	return ErrRedacted.Error()
}
