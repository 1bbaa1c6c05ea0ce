package translate

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccompProfile converts a profile for the runtime. Localhost profiles are files below root; no profile means
// RuntimeDefault if byDefault is set (KubeletConfiguration seccompDefault), else Unconfined.
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

// unconfined returns the profile without restrictions.
func unconfined() *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

// selinuxOption converts a label for the runtime; nil leaves the choice to the runtime.
func selinuxOption(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
