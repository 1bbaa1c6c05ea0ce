package validation

import (
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodSecurity validates a pod's security context, its host namespaces and its operating system.
func PodSecurity(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if sc := s.SecurityContext; sc != nil {
		path := at.Child("securityContext")
		errs = append(errs, podContext(sc, path)...)
		errs = append(errs, sysctls(s, path.Child("sysctls"))...)
	}
	errs = append(errs, hostNamespaces(s, at)...)
	errs = append(errs, hostProcess(s, at)...)
	return append(errs, operatingSystem(s, at)...)
}

func podContext(sc *v1.PodSecurityContext, at *field.Path) field.ErrorList {
	errs := userAndGroup(sc.RunAsUser, sc.RunAsGroup, at)
	if sc.FSGroup != nil {
		errs = append(errs, Invalid(at.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup))...)
	}
	for i, g := range sc.SupplementalGroups {
		errs = append(errs, Invalid(at.Child("supplementalGroups").Index(i), g, validation.IsValidGroupID(g))...)
	}
	errs = append(errs, OptionalOneOf(at.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy,
		v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)...)
	errs = append(errs, OptionalOneOf(at.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy,
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)...)
	errs = append(errs, OptionalOneOf(at.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy,
		v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption)...)
	errs = append(errs, seccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	return append(errs, windows(sc.WindowsOptions, at.Child("windowsOptions"))...)
}

// sysctlName matches the name of a sysctl: words of lower-case letters, digits, "-" and "_", separated by dots or
// slashes.
var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

const maxSysctlName = 253

func sysctls(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	unique := Unique{}
	for i, c := range s.SecurityContext.Sysctls {
		name := at.Index(i).Child("name")
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(name, "must name a kernel parameter, such as \"net.core.somaxconn\""))
			continue
		case len(c.Name) > maxSysctlName || !sysctlName.MatchString(c.Name):
			errs = append(errs, field.Invalid(name, c.Name,
				"must have at most 253 characters and match regex "+sysctlName.String()))
			continue
		}
		dotted := dots(c.Name)
		errs = append(errs, unique.Check(name, dotted)...)
		if s.HostNetwork && strings.HasPrefix(dotted, "net.") {
			errs = append(errs, field.Invalid(name, c.Name, "may not be set when `hostNetwork` is true"))
		}
		if s.HostIPC && ipcSysctl(dotted) {
			errs = append(errs, field.Invalid(name, c.Name, "may not be set when `hostIPC` is true"))
		}
	}
	return errs
}

// dots converts a sysctl's name to the form with dots as separators. If the first separator in the name is a slash,
// slashes are the separators, and dots are part of the words (sysctl.d(5)).
func dots(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}

// ipcSysctl reports whether a sysctl belongs to the IPC namespace
// (https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/).
func ipcSysctl(name string) bool {
	for _, prefix := range []string{"kernel.shm", "kernel.msg", "fs.mqueue."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "kernel.sem"
}

// hostNamespaces checks which namespaces of the host the pod shares. A pod with its own user namespace can share
// none of them (KEP-127), and can't use block devices.
func hostNamespaces(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID {
		errs = append(errs, field.Invalid(at.Child("shareProcessNamespace"), true,
			"ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if s.HostUsers == nil || *s.HostUsers {
		return errs
	}
	for _, ns := range []struct {
		shared bool
		name   string
	}{{s.HostNetwork, "hostNetwork"}, {s.HostPID, "hostPID"}, {s.HostIPC, "hostIPC"}} {
		if ns.shared {
			errs = append(errs, field.Forbidden(at.Child(ns.name), "may not be set when `hostUsers` is false"))
		}
	}
	return append(errs, noDevices(s, at)...)
}

func noDevices(s *v1.PodSpec, at *field.Path) field.ErrorList {
	f := forbidden{why: "may not be set when `hostUsers` is false"}
	for i := range s.InitContainers {
		f.set(len(s.InitContainers[i].VolumeDevices) > 0, at.Child("initContainers").Index(i).Child("volumeDevices"))
	}
	for i := range s.Containers {
		f.set(len(s.Containers[i].VolumeDevices) > 0, at.Child("containers").Index(i).Child("volumeDevices"))
	}
	for i := range s.EphemeralContainers {
		f.set(len(s.EphemeralContainers[i].VolumeDevices) > 0,
			at.Child("ephemeralContainers").Index(i).Child("volumeDevices"))
	}
	return f.errs
}

// containerSecurity validates a container's security context; hostUsers is false when
// the pod has a user namespace of its own.
func containerSecurity(sc *v1.SecurityContext, hostUsers bool, at *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	var errs field.ErrorList
	errs = append(errs, userAndGroup(sc.RunAsUser, sc.RunAsGroup, at)...)
	errs = append(errs, procMount(sc.ProcMount, hostUsers, at.Child("procMount"))...)
	errs = append(errs, escalation(sc, at)...)
	errs = append(errs, seccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	return append(errs, windows(sc.WindowsOptions, at.Child("windowsOptions"))...)
}

func userAndGroup(user, group *int64, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if user != nil {
		errs = append(errs, Invalid(at.Child("runAsUser"), *user, validation.IsValidUserID(*user))...)
	}
	if group != nil {
		errs = append(errs, Invalid(at.Child("runAsGroup"), *group, validation.IsValidGroupID(*group))...)
	}
	return errs
}

// procMount checks the type of the /proc mount. Unmasked needs a user namespace, because it would show the host's
// secrets (KEP-4265).
func procMount(p *v1.ProcMountType, hostUsers bool, at *field.Path) field.ErrorList {
	errs := OptionalOneOf(at, p, v1.DefaultProcMount, v1.UnmaskedProcMount)
	if p != nil && *p == v1.UnmaskedProcMount && hostUsers {
		errs = append(errs, field.Invalid(at, *p, "`hostUsers` must be false to use `Unmasked`"))
	}
	return errs
}

// escalation checks allowPrivilegeEscalation. It can't be false for a container that has all privileges anyway. Like
// an API server, it detects the capability by the name CAP_SYS_ADMIN only, and accepts SYS_ADMIN.
func escalation(sc *v1.SecurityContext, at *field.Path) field.ErrorList {
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return nil
	}
	if sc.Privileged != nil && *sc.Privileged {
		return field.ErrorList{field.Invalid(at, sc.Privileged,
			"cannot set `allowPrivilegeEscalation` to false and `privileged` to true")}
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		return field.ErrorList{field.Invalid(at, "CAP_SYS_ADMIN",
			"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")}
	}
	return nil
}
