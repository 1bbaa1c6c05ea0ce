package observed

import (
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// ends adds the container's own termination message to the runtime's report.
type ends struct {
	message func(translate.Identity, *pod.Container) string
}

// complete sets the message of an ended container before its end is merged. Once merged, the message stays: the
// same end isn't read twice, because its source (file or log) may have been removed.
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
		// Such as when the container was OOM-killed after it wrote a message.
		c.Message += ": " + words
	}
}
