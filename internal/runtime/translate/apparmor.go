package translate

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// appArmorProfile returns the container's AppArmor profile for the runtime: the container's own, or the profile in its
// deprecated annotation, or the pod's. If the result is nil, the runtime chooses: it uses its default profile on hosts
// with AppArmor. loaded reports whether a profile is loaded on the host; if it is nil, only the runtime checks that.
func appArmorProfile(p *v1.Pod, c *v1.Container,
	loaded func(profile string) (bool, error)) (*runtimeapi.SecurityProfile, error) {
	profile, err := pod.AppArmorProfile(p, c)
	if profile == nil || err != nil {
		return nil, err
	}
	switch profile.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.AppArmorProfileTypeUnconfined:
		return unconfined(), nil
	case v1.AppArmorProfileTypeLocalhost:
	default:
		return nil, fmt.Errorf("appArmorProfile has the unknown type %q: use RuntimeDefault, Unconfined or Localhost",
			profile.Type)
	}
	if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
		return nil, errors.New("appArmorProfile of type Localhost needs localhostProfile, the name of a profile that " +
			"is loaded on the node")
	}
	name := *profile.LocalhostProfile
	if loaded != nil {
		if ok, err := loaded(name); err != nil {
			return nil, fmt.Errorf("cannot enforce AppArmor: %w", err)
		} else if !ok {
			return nil, fmt.Errorf("cannot enforce AppArmor: profile %q is not loaded: load it with apparmor_parser",
				name)
		}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: name}, nil
}
