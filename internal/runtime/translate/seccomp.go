package translate

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccompProfile is the runtime's form of a profile. Localhost ones are files below root;
// no profile means the runtime's own if byDefault is set (KubeletConfiguration
// seccompDefault), and none otherwise.
func seccompProfile(p *v1.SeccompProfile, root string, byDefault bool) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		if byDefault {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
		}
		return unconfined(), nil
	}
	switch p.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeUnconfined:
		return unconfined(), nil
	case v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || !filepath.IsLocal(*p.LocalhostProfile) {
			return nil, errors.New("seccompProfile of type Localhost needs localhostProfile, a path inside the " +
				"node's seccomp directory")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(root, *p.LocalhostProfile),
		}, nil
	}
	return nil, fmt.Errorf("seccompProfile has the unknown type %q: use RuntimeDefault, Unconfined or Localhost",
		p.Type)
}

// unconfined is the profile that confines nothing.
func unconfined() *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

// selinuxOption is the runtime's form of a label; nil leaves the choice to the runtime.
func selinuxOption(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
