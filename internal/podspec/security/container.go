// Package security validates security contexts: of the pod, of its containers,
// and what the pod's operating system and host namespaces allow of them.
package security

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

// Container validates a container's security context; hostUsers is false when
// the pod has a user namespace of its own.
func Container(sc *v1.SecurityContext, hostUsers bool, at *field.Path) field.ErrorList {
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
		errs = append(errs, rule.Invalid(at.Child("runAsUser"), *user, validation.IsValidUserID(*user))...)
	}
	if group != nil {
		errs = append(errs, rule.Invalid(at.Child("runAsGroup"), *group, validation.IsValidGroupID(*group))...)
	}
	return errs
}

// procMount without masks shows the host's secrets, but for a user namespace (KEP-4265).
func procMount(p *v1.ProcMountType, hostUsers bool, at *field.Path) field.ErrorList {
	errs := rule.OptionalOneOf(at, p, v1.DefaultProcMount, v1.UnmaskedProcMount)
	if p != nil && *p == v1.UnmaskedProcMount && hostUsers {
		errs = append(errs, field.Invalid(at, *p, "`hostUsers` must be false to use `Unmasked`"))
	}
	return errs
}

// escalation can't be denied to who has all privileges anyway. An API server knows the
// capability by that one name only, and takes SYS_ADMIN: so does this.
func escalation(sc *v1.SecurityContext, at *field.Path) field.ErrorList {
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return nil
	}
	if sc.Privileged != nil && *sc.Privileged {
		return field.ErrorList{field.Invalid(at, sc.Privileged, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")}
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		return field.ErrorList{field.Invalid(at, "CAP_SYS_ADMIN", "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")}
	}
	return nil
}
