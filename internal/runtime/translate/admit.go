package translate

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/profiles"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/sysctls"
)

// Features are what a runtime can do, as its status tells.
type Features struct {
	// SupplementalGroupsPolicy says that it knows the policy Strict (KEP-3619).
	SupplementalGroupsPolicy bool
	// Handlers are its runtime handlers by name; "" is the default one.
	Handlers map[string]HandlerFeatures
}

// HandlerFeatures are what one runtime handler can do.
type HandlerFeatures struct {
	// UserNamespaces includes idmapped mounts (KEP-127).
	UserNamespaces bool
	// RecursiveReadOnlyMounts are KEP-3857's.
	RecursiveReadOnlyMounts bool
}

// FeaturesOf reads them from the runtime's status. A runtime that doesn't tell of
// something can't do it.
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

// Admit refuses a pod that asks for what this node or its runtime can't give or
// doesn't allow: sysctls, AppArmor, strict groups, a user namespace. It is to be asked
// before the pod gets a sandbox, not about one that runs. handler is the runtime
// handler of the pod's RuntimeClass; features are nil while the runtime hasn't told
// them.
//
// The error is a *pod.Failure with the kubelet's reason.
func Admit(s *Settings, features *Features, handler string, p *v1.Pod) error {
	if err := s.sysctlPolicy().Check(p); err != nil {
		return err
	}
	if err := profiles.CheckAppArmor(p, s.AppArmor); err != nil {
		return err
	}
	if !strictGroups(p) && !ownUsers(p) {
		return nil
	}
	switch {
	case features == nil:
		return &pod.Failure{Reason: "FailedCreatePodSandBox", Message: "the container runtime hasn't told yet whether it can do what the pod asks for"}
	case strictGroups(p) && !features.SupplementalGroupsPolicy:
		return &pod.Failure{Reason: "SupplementalGroupsPolicyNotSupported", Rejected: true,
			Message: "SupplementalGroupsPolicy=Strict is not supported in this node: the container runtime doesn't know it"}
	case ownUsers(p) && !features.Handlers[handler].UserNamespaces:
		return &pod.Failure{Reason: "FailedCreatePodSandBox", Permanent: true, Message: fmt.Sprintf(
			"can't set `spec.hostUsers: false`, %s does not support user namespaces: it takes containerd 2.0 or CRI-O 1.25, runc 1.2 or crun 1.9, and Linux 6.3 or newer", handlerName(handler))}
	}
	return nil
}

func handlerName(handler string) string {
	if handler == "" {
		return "runtime"
	}
	return fmt.Sprintf("runtime handler %q", handler)
}

func (s *Settings) sysctlPolicy() sysctls.Policy {
	return sysctls.Policy{Unsafe: s.AllowedUnsafeSysctls, Kernel: s.KernelVersion}
}
