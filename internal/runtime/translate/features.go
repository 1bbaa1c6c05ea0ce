package translate

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Features are the features that a runtime's status reports.
type Features struct {
	// SupplementalGroupsPolicy means that the runtime supports the policy Strict (KEP-3619).
	SupplementalGroupsPolicy bool
	// Handlers are the runtime handlers by name; "" is the default one.
	Handlers map[string]HandlerFeatures
}

// HandlerFeatures are the features of one runtime handler.
type HandlerFeatures struct {
	// UserNamespaces means that the handler supports user namespaces, including idmapped mounts (KEP-127).
	UserNamespaces bool
	// RecursiveReadOnlyMounts means that the handler supports recursively read-only mounts (KEP-3857).
	RecursiveReadOnlyMounts bool
}

// FeaturesOf returns the features of the runtime's status. A feature that isn't reported counts as unsupported.
func FeaturesOf(st *runtimeapi.StatusResponse) *Features {
	f := &Features{
		SupplementalGroupsPolicy: st.GetFeatures().GetSupplementalGroupsPolicy(),
		Handlers:                 make(map[string]HandlerFeatures, len(st.GetRuntimeHandlers())),
	}
	for _, h := range st.GetRuntimeHandlers() {
		f.Handlers[h.GetName()] = HandlerFeatures{
			UserNamespaces:          h.GetFeatures().GetUserNamespaces(),
			RecursiveReadOnlyMounts: h.GetFeatures().GetRecursiveReadOnlyMounts(),
		}
	}
	return f
}

// CheckUsers returns an error for a pod with a user namespace (KEP-127) if its runtime handler doesn't support
// them. Call it before the pod's sandbox is created. The error is a *pod.Failure; f is nil while the runtime hasn't
// reported its features.
func (f *Features) CheckUsers(handler string, p *v1.Pod) error {
	switch {
	case !ownUsers(p):
		return nil
	case f == nil:
		return &pod.Failure{Reason: pod.ReasonFailedCreatePodSandBox,
			Message: "the container runtime hasn't reported yet whether it can do what the pod asks for"}
	case !f.Handlers[handler].UserNamespaces:
		return &pod.Failure{Reason: pod.ReasonFailedCreatePodSandBox, Permanent: true, Message: fmt.Sprintf(
			"can't set `spec.hostUsers: false`, %s does not support user namespaces: it takes containerd 2.0 or "+
				"CRI-O 1.25, runc 1.2 or crun 1.9, and Linux 6.3 or newer", handlerName(handler))}
	}
	return nil
}

func handlerName(handler string) string {
	if handler == "" {
		return "runtime"
	}
	return fmt.Sprintf("runtime handler %q", handler)
}
