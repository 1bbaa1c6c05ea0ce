package observed

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/observed/podcache"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// The facts below are learnt from effects that succeeded, so that a decision
// taken right after one never sees the world from before it. Whatever the
// runtime itself tells of the same state, before or after, counts for more.

// SandboxCreated tells that a sandbox was made and started.
func (s *Store) SandboxCreated(uid types.UID, name, namespace string, sb pod.Sandbox) {
	who := translate.Identity{UID: uid, Name: name, Namespace: namespace}
	s.cache.Merge(podcache.Reading{Sandboxes: []podcache.Sandbox{{Pod: who, Sandbox: sb}}})
	if len(sb.IPs) == 0 && !sb.HostNetwork && !s.state.streaming() {
		// No event will bring its addresses.
		s.refresh.want(uid)
	}
}

// ContainerCreated tells that a container was made. It may also be called with
// what the runtime told of the container later, such as how it ended.
func (s *Store) ContainerCreated(uid types.UID, name, namespace string, c pod.Container) {
	who := translate.Identity{UID: uid, Name: name, Namespace: namespace}
	s.ends.complete(who, &c, s.cache.Know(c.ID))
	s.cache.Merge(podcache.Reading{Containers: []podcache.Container{{Pod: who, Container: c}}})
}

// ContainerRemoved tells that a container was removed.
func (s *Store) ContainerRemoved(id string) { s.cache.Remove(id) }

// SandboxStopped tells that a sandbox was stopped.
func (s *Store) SandboxStopped(id string) {
	s.cache.Advance(id, func(sb *pod.Sandbox, _ *pod.Container) {
		if sb != nil {
			sb.State = pod.SandboxNotReady
		}
	})
}

// SandboxRemoved tells that a sandbox was removed, and the containers in it with it.
func (s *Store) SandboxRemoved(id string) { s.cache.Remove(id) }

// Doubt tells that an effect failed in the midst: what is known of the pod may not
// be what the runtime has, and no event need ever tell. So the pod is looked at.
func (s *Store) Doubt(uid types.UID) { s.refresh.want(uid) }
