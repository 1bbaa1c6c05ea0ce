package observed

import (
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// ends adds the container's own termination message to what the runtime reports.
type ends struct {
	message func(translate.Identity, *pod.Container) string
}

// complete completes the message of a container that has ended, before its end is
// merged. Once merged, the message stays as it is: the same end isn't read twice,
// and what it was read from may be gone by then.
func (e ends) complete(who translate.Identity, c *pod.Container, k Knowledge) {
	if e.message == nil || c.State != pod.ContainerExited || k.Gone {
		return
	}
	if k.Container == pod.ContainerExited {
		c.Message = k.Instance.Message
		return
	}
	switch words := e.message(who, c); {
	case words == "":
	case c.Message == "":
		c.Message = words
	default:
		// As when it was killed and has said something before.
		c.Message += ": " + words
	}
}
