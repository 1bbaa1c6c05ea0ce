package observed

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// The methods below record what successful calls have changed, so that a decision
// taken right after a call never sees the state from before it. Whatever the
// runtime itself reports of the same state, before or after, takes precedence.

// SandboxCreated reports that a sandbox was created and started.
func (s *Store) SandboxCreated(uid types.UID, name, namespace string, sb pod.Sandbox) {
	who := translate.Identity{UID: uid, Name: name, Namespace: namespace}
	s.cache.Merge(reading{Sandboxes: []sandboxReading{{Pod: who, Sandbox: sb}}})
	if len(sb.IPs) == 0 && !sb.HostNetwork && !s.state.streaming() {
		// No event will bring its addresses.
		s.refresh.want(uid)
	}
}

// ContainerCreated reports that a container was created. It may also be called with
// what the runtime reported of the container later, such as how it ended.
func (s *Store) ContainerCreated(uid types.UID, name, namespace string, c pod.Container) {
	who := translate.Identity{UID: uid, Name: name, Namespace: namespace}
	s.ends.complete(who, &c, s.cache.Know(c.ID))
	s.cache.Merge(reading{Containers: []containerReading{{Pod: who, Container: c}}})
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

// SandboxRemoved reports that a sandbox was removed, and the containers in it with it.
func (s *Store) SandboxRemoved(id string) { s.cache.Remove(id) }

// RequestRefresh has the pod listed again. It is for an action that failed half-way: the
// store may differ from what the runtime has, and no event need ever correct it.
func (s *Store) RequestRefresh(uid types.UID) { s.refresh.want(uid) }
