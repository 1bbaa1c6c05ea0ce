package profiles

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// AppArmor is the runtime's form of the container's AppArmor profile: its own, or
// else that of its deprecated annotation, or else the pod's. nil leaves it to the
// runtime: its default profile, if the host has AppArmor at all. loaded reports
// whether the host has a profile of a name; nil leaves that to the runtime.
func AppArmor(p *v1.Pod, c *v1.Container, loaded func(profile string) (bool, error)) (*runtimeapi.SecurityProfile, error) {
	profile, err := appArmorOf(p, c)
	if profile == nil || err != nil {
		return nil, err
	}
	switch profile.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.AppArmorProfileTypeUnconfined:
		return Unconfined(), nil
	case v1.AppArmorProfileTypeLocalhost:
	default:
		return nil, fmt.Errorf("appArmorProfile has the unknown type %q: use RuntimeDefault, Unconfined or Localhost", profile.Type)
	}
	if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
		return nil, errors.New("appArmorProfile of type Localhost needs localhostProfile, the name of a profile that is loaded on the node")
	}
	name := *profile.LocalhostProfile
	if loaded != nil {
		if ok, err := loaded(name); err != nil {
			return nil, fmt.Errorf("cannot enforce AppArmor: %w", err)
		} else if !ok {
			return nil, fmt.Errorf("cannot enforce AppArmor: profile %q is not loaded: load it with apparmor_parser", name)
		}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: name}, nil
}

// CheckAppArmor refuses a pod that wants to be confined by AppArmor on a host
// without it (https://kubernetes.io/docs/tutorials/security/apparmor/). The error
// is a *pod.Failure.
func CheckAppArmor(p *v1.Pod, enabled bool) error {
	if enabled {
		return nil
	}
	containers := append(p.Spec.InitContainers[:len(p.Spec.InitContainers):len(p.Spec.InitContainers)], p.Spec.Containers...)
	for i := range p.Spec.EphemeralContainers {
		containers = append(containers, v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range containers {
		profile, err := appArmorOf(p, &containers[i])
		if err == nil && (profile == nil || profile.Type == v1.AppArmorProfileTypeUnconfined) {
			continue
		}
		return &pod.Failure{Reason: "AppArmor", Rejected: true,
			Message: fmt.Sprintf("Cannot enforce AppArmor: AppArmor is not enabled on the host, and container %s asks for a profile", containers[i].Name)}
	}
	return nil
}

// appArmorOf is what is asked for; nil if nothing is.
func appArmorOf(p *v1.Pod, c *v1.Container) (*v1.AppArmorProfile, error) {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile, nil
	}
	if value, ok := p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; ok && value != "" {
		return annotated(value)
	}
	if sc := p.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile, nil
	}
	return nil, nil
}

func annotated(value string) (*v1.AppArmorProfile, error) {
	switch value {
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}, nil
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}, nil
	}
	if name, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}, nil
	}
	return nil, fmt.Errorf(`the AppArmor profile %q of its annotation is none: use "runtime/default", "unconfined" or "localhost/NAME", or better the field appArmorProfile`, value)
}
