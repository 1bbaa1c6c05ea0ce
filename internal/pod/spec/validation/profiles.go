package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxAppArmorName is the maximum length of the name of a loaded AppArmor profile.
const maxAppArmorName = 4095

func seccomp(p *v1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := OneOf(at.Child("type"), p.Type, v1.SeccompProfileTypeLocalhost, v1.SeccompProfileTypeRuntimeDefault,
		v1.SeccompProfileTypeUnconfined)
	profile := at.Child("localhostProfile")
	if p.Type != v1.SeccompProfileTypeLocalhost {
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(profile, *p.LocalhostProfile,
				"can only be set when seccomp type is Localhost"))
		}
		return errs
	}
	if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
		return append(errs, field.Required(profile, "must be set when seccomp type is Localhost"))
	}
	return append(errs, localPath(profile, *p.LocalhostProfile)...)
}

func appArmor(p *v1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := OneOf(at.Child("type"), p.Type, v1.AppArmorProfileTypeLocalhost, v1.AppArmorProfileTypeRuntimeDefault,
		v1.AppArmorProfileTypeUnconfined)
	profile := at.Child("localhostProfile")
	if p.Type != v1.AppArmorProfileTypeLocalhost {
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(profile, *p.LocalhostProfile,
				"can only be set when AppArmor type is Localhost"))
		}
		return errs
	}
	switch {
	case p.LocalhostProfile == nil || strings.TrimSpace(*p.LocalhostProfile) == "":
		errs = append(errs, field.Required(profile, "must be set when AppArmor type is Localhost"))
	case strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile:
		errs = append(errs, field.Invalid(profile, *p.LocalhostProfile, "must not be padded with whitespace"))
	case len(*p.LocalhostProfile) > maxAppArmorName:
		errs = append(errs, field.TooLong(profile, *p.LocalhostProfile, maxAppArmorName))
	}
	return errs
}

// AppArmorAnnotations validates the deprecated annotations with AppArmor profiles, one for each container. If a
// container also has the field appArmorProfile, both must have the same value.
func AppArmorAnnotations(annotations map[string]string, containers map[string]*v1.Container,
	at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ok := strings.CutPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		item, value := at.Key(key), annotations[key]
		c, ok := containers[name]
		if !ok {
			errs = append(errs, field.Invalid(item, name, "container not found"))
		}
		kind := annotationType(value)
		if kind == "" {
			errs = append(errs, field.Invalid(item, value,
				`must be "runtime/default", "unconfined" or "localhost/<profile>"`))
		}
		if kind != "" && c != nil && c.SecurityContext != nil &&
			!agrees(kind, value, c.SecurityContext.AppArmorProfile) {
			errs = append(errs, field.Forbidden(item,
				fmt.Sprintf("must match securityContext.appArmorProfile of container %s", name)))
		}
	}
	return errs
}

// annotationType returns the profile type that an annotation's value stands for; "" if the value is invalid.
func annotationType(value string) v1.AppArmorProfileType {
	switch {
	case value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return v1.AppArmorProfileTypeRuntimeDefault
	case value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return v1.AppArmorProfileTypeUnconfined
	case strings.HasPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix):
		return v1.AppArmorProfileTypeLocalhost
	}
	return ""
}

func agrees(kind v1.AppArmorProfileType, value string, p *v1.AppArmorProfile) bool {
	if p == nil {
		return true
	}
	if p.Type != kind {
		return false
	}
	return kind != v1.AppArmorProfileTypeLocalhost ||
		p.LocalhostProfile != nil && v1.DeprecatedAppArmorBetaProfileNamePrefix+*p.LocalhostProfile == value
}
