package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// operatingSystem returns errors for the fields that the pod's operating system doesn't support, according to the
// API's comment on PodSpec.os.
func operatingSystem(s *v1.PodSpec, at *field.Path) field.ErrorList {
	if s.OS == nil {
		return nil
	}
	switch s.OS.Name {
	case v1.Linux:
		return linuxFields(s, at)
	case v1.Windows:
		return windowsFields(s, at)
	}
	return OneOf(at.Child("os", "name"), s.OS.Name, v1.Linux, v1.Windows)
}

func linuxFields(s *v1.PodSpec, at *field.Path) field.ErrorList {
	f := forbidden{why: "may not be set for a linux pod: leave it out"}
	if s.SecurityContext != nil {
		f.set(s.SecurityContext.WindowsOptions != nil, at.Child("securityContext", "windowsOptions"))
	}
	eachContext(s, at, func(sc *v1.SecurityContext, at *field.Path) {
		f.set(sc.WindowsOptions != nil, at.Child("windowsOptions"))
	})
	return f.errs
}

func windowsFields(s *v1.PodSpec, at *field.Path) field.ErrorList {
	f := forbidden{why: "may not be set for a windows pod: leave it out"}
	f.set(s.HostPID, at.Child("hostPID"))
	f.set(s.HostIPC, at.Child("hostIPC"))
	f.set(s.HostUsers != nil, at.Child("hostUsers"))
	f.set(s.Resources != nil, at.Child("resources"))
	f.set(s.ShareProcessNamespace != nil, at.Child("shareProcessNamespace"))
	if sc := s.SecurityContext; sc != nil {
		at := at.Child("securityContext")
		f.set(sc.AppArmorProfile != nil, at.Child("appArmorProfile"))
		f.set(sc.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		f.set(sc.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
		f.set(sc.SeccompProfile != nil, at.Child("seccompProfile"))
		f.set(sc.FSGroup != nil, at.Child("fsGroup"))
		f.set(sc.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		f.set(len(sc.Sysctls) > 0, at.Child("sysctls"))
		f.set(sc.RunAsUser != nil, at.Child("runAsUser"))
		f.set(sc.RunAsGroup != nil, at.Child("runAsGroup"))
		f.set(len(sc.SupplementalGroups) > 0, at.Child("supplementalGroups"))
		f.set(sc.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
	}
	eachContext(s, at, f.windowsContainer)
	return f.errs
}

func (f *forbidden) windowsContainer(sc *v1.SecurityContext, at *field.Path) {
	f.set(sc.AppArmorProfile != nil, at.Child("appArmorProfile"))
	f.set(sc.SELinuxOptions != nil, at.Child("seLinuxOptions"))
	f.set(sc.SeccompProfile != nil, at.Child("seccompProfile"))
	f.set(sc.Capabilities != nil, at.Child("capabilities"))
	f.set(sc.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
	f.set(sc.Privileged != nil, at.Child("privileged"))
	f.set(sc.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
	f.set(sc.ProcMount != nil, at.Child("procMount"))
	f.set(sc.RunAsUser != nil, at.Child("runAsUser"))
	f.set(sc.RunAsGroup != nil, at.Child("runAsGroup"))
}

// eachContext calls do with the security context of every container that has one.
func eachContext(s *v1.PodSpec, at *field.Path, do func(*v1.SecurityContext, *field.Path)) {
	for i := range s.InitContainers {
		if sc := s.InitContainers[i].SecurityContext; sc != nil {
			do(sc, at.Child("initContainers").Index(i).Child("securityContext"))
		}
	}
	for i := range s.Containers {
		if sc := s.Containers[i].SecurityContext; sc != nil {
			do(sc, at.Child("containers").Index(i).Child("securityContext"))
		}
	}
	for i := range s.EphemeralContainers {
		if sc := s.EphemeralContainers[i].SecurityContext; sc != nil {
			do(sc, at.Child("ephemeralContainers").Index(i).Child("securityContext"))
		}
	}
}
