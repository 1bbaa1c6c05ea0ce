package observed

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// The methods below record the effects of successful calls, so that a decision right after a call doesn't use the
// state before the call. A report of the runtime on the same instance takes precedence over them.

// SandboxCreated reports that a sandbox was created and started.
func (s *Store) SandboxCreated(uid types.UID, name, namespace string, sb pod.Sandbox) {
	identity := translate.Identity{UID: uid, Name: name, Namespace: namespace}
	s.cache.Merge(reading{Sandboxes: []sandboxReading{{Pod: identity, Sandbox: sb}}})
	if len(sb.IPs) == 0 && !sb.HostNetwork && !s.state.streaming() {
		// No event will report its addresses.
		s.refresh.want(uid)
	}
}

// ContainerCreated reports that a container was created. It may also be called with a later state of the container
// that the runtime reported, such as how it ended.
func (s *Store) ContainerCreated(uid types.UID, name, namespace string, c pod.Container) {
	identity := translate.Identity{UID: uid, Name: name, Namespace: namespace}
	s.ends.complete(identity, &c, s.cache.Know(c.ID))
	s.cache.Merge(reading{Containers: []*containerReading{{Pod: identity, Container: c}}})
}

// ContainerRemoved reports that a container was removed.
func (s *Store) ContainerRemoved(id string) { s.cache.Remove(id) }

// SandboxStopped reports that a sandbox was stopped.
func (s *Store) SandboxStopped(id string) {
	s.cache.Advance(id, func(sb *pod.Sandbox, _ *pod.Container) {
		if sb != nil {
			sb.State = pod.SandboxNotReady
		}
	})
}

// SandboxRemoved reports that a sandbox was removed together with its containers.
func (s *Store) SandboxRemoved(id string) { s.cache.Remove(id) }

// RequestRefresh queues the pod to be listed again. Call it after an action that failed half-way: the store may
// then differ from the runtime's state, and no event might ever correct that.
func (s *Store) RequestRefresh(uid types.UID) { s.refresh.want(uid) }
