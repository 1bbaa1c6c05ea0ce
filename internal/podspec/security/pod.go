package security

import (
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

// Pod validates a pod's security context, its host namespaces and its operating system.
func Pod(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if sc := s.SecurityContext; sc != nil {
		path := at.Child("securityContext")
		errs = append(errs, podContext(sc, path)...)
		errs = append(errs, sysctls(s, path.Child("sysctls"))...)
	}
	errs = append(errs, namespaces(s, at)...)
	errs = append(errs, hostProcess(s, at)...)
	return append(errs, operatingSystem(s, at)...)
}

func podContext(sc *v1.PodSecurityContext, at *field.Path) field.ErrorList {
	errs := userAndGroup(sc.RunAsUser, sc.RunAsGroup, at)
	if sc.FSGroup != nil {
		errs = append(errs, rule.Invalid(at.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup))...)
	}
	for i, g := range sc.SupplementalGroups {
		errs = append(errs, rule.Invalid(at.Child("supplementalGroups").Index(i), g, validation.IsValidGroupID(g))...)
	}
	errs = append(errs, rule.OptionalOneOf(at.Child("fsGroupChangePolicy"), sc.FSGroupChangePolicy, v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)...)
	errs = append(errs, rule.OptionalOneOf(at.Child("supplementalGroupsPolicy"), sc.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)...)
	errs = append(errs, rule.OptionalOneOf(at.Child("seLinuxChangePolicy"), sc.SELinuxChangePolicy, v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption)...)
	errs = append(errs, seccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, appArmor(sc.AppArmorProfile, at.Child("appArmorProfile"))...)
	return append(errs, windows(sc.WindowsOptions, at.Child("windowsOptions"))...)
}

// sysctlName has words of lower-case letters, digits, "-" and "_" between dots
// or slashes.
var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

const maxSysctlName = 253

func sysctls(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	unique := rule.Unique{}
	for i, c := range s.SecurityContext.Sysctls {
		name := at.Index(i).Child("name")
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(name, "must name a kernel parameter, such as \"net.core.somaxconn\""))
			continue
		case len(c.Name) > maxSysctlName || !sysctlName.MatchString(c.Name):
			errs = append(errs, field.Invalid(name, c.Name, "must have at most 253 characters and match regex "+sysctlName.String()))
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

// dots writes a sysctl's name with dots as separators. When the first separator
// is a slash, slashes separate, and dots are part of the words (sysctl.d(5)).
func dots(name string) string {
	first := strings.IndexAny(name, "./")
	if first < 0 || name[first] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}

// ipcSysctl tells which sysctls belong to the IPC namespace
// (https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/).
func ipcSysctl(name string) bool {
	for _, prefix := range []string{"kernel.shm", "kernel.msg", "fs.mqueue."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "kernel.sem"
}

// namespaces checks those of the host that a pod may share. With a user
// namespace of its own it shares no other (KEP-127), nor block devices.
func namespaces(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID {
		errs = append(errs, field.Invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
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
	f := forbidder{why: "may not be set when `hostUsers` is false"}
	for i := range s.InitContainers {
		f.set(len(s.InitContainers[i].VolumeDevices) > 0, at.Child("initContainers").Index(i).Child("volumeDevices"))
	}
	for i := range s.Containers {
		f.set(len(s.Containers[i].VolumeDevices) > 0, at.Child("containers").Index(i).Child("volumeDevices"))
	}
	for i := range s.EphemeralContainers {
		f.set(len(s.EphemeralContainers[i].VolumeDevices) > 0, at.Child("ephemeralContainers").Index(i).Child("volumeDevices"))
	}
	return f.errs
}
