package observed

import (
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// ends adds the termination message that the container itself wrote to the message in the runtime's report.
type ends struct {
	message func(translate.Identity, *pod.Container) string
}

// complete sets the message of an ended container before its end is merged into the cache. After that the message
// stays: it isn't read again for the same end, because its source (file or log) may have been removed.
func (e ends) complete(identity translate.Identity, c *pod.Container, k Knowledge) {
	if e.message == nil || c.State != pod.ContainerExited || k.Gone {
		return
	}
	if k.Container == pod.ContainerExited {
		c.Message = k.Instance.Message
		return
	}
	switch words := e.message(identity, c); {
	case words == "":
	case c.Message == "":
		c.Message = words
	default:
		// The runtime also has a message, for example because the container was OOM-killed after it wrote its own.
		c.Message += ": " + words
	}
}
