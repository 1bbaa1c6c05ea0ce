// Package validation validates the parts of a pod's spec, one topic a file: containers with their ports, environment,
// mounts, probes and hooks; volumes and claims; security contexts, and the restrictions that the pod's operating system
// and host namespaces put on them; requests and limits.
//
// Each function returns the errors that it found at the path it was given, or nil.
package validation

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Required refuses an empty string.
func Required[T ~string](at *field.Path, v T, why string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, why)}
	}
	return nil
}

// OneOf refuses anything but the valid values; an empty value is missing.
func OneOf[T ~string](at *field.Path, v T, valid ...T) field.ErrorList {
	switch {
	case slices.Contains(valid, v):
		return nil
	case v == "":
		return field.ErrorList{field.Required(at, "must be one of "+quoted(valid))}
	default:
		return field.ErrorList{field.NotSupported(at, v, valid)}
	}
}

// OptionalOneOf is OneOf for a pointer that may be nil.
func OptionalOneOf[T ~string](at *field.Path, v *T, valid ...T) field.ErrorList {
	if v == nil {
		return nil
	}
	if slices.Contains(valid, *v) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *v, valid)}
}

// quoted lists values for a person, as NotSupported does.
func quoted[T ~string](values []T) string {
	words := make([]string, 0, len(values))
	for _, v := range values {
		words = append(words, strconv.Quote(string(v)))
	}
	return strings.Join(words, ", ")
}

// Invalid turns the messages of k8s.io/apimachinery's checks into errors.
func Invalid(at *field.Path, v any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(at, v, m))
	}
	return errs
}

// present is Invalid for values that can't be empty: then the messages say that the value is required.
func present(at *field.Path, v string, messages []string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, strings.Join(messages, "; "))}
	}
	return Invalid(at, v, messages)
}

// Label wants a DNS label (RFC 1123), such as a container's name.
func Label(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsDNS1123Label(v))
}

// Subdomain wants a DNS subdomain (RFC 1123), such as an API object's name.
func Subdomain(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsDNS1123Subdomain(v))
}

// OptionalSubdomain is Subdomain where nothing is fine too.
func OptionalSubdomain(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return nil
	}
	return Subdomain(at, v)
}

// QualifiedName wants a name with an optional domain prefix, such as a label's key.
func QualifiedName(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsQualifiedName(v))
}

// ConfigKey wants a key of a ConfigMap or Secret.
func ConfigKey(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsConfigMapKey(v))
}

// Range wants low <= v <= high.
func Range[T cmp.Ordered](at *field.Path, v, low, high T) field.ErrorList {
	if v < low || v > high {
		return field.ErrorList{field.Invalid(at, v, fmt.Sprintf("must be between %v and %v, inclusive", low, high))}
	}
	return nil
}

// AtLeast wants low or more.
func AtLeast[T ~int32 | ~int64](at *field.Path, v, low T) field.ErrorList {
	if v < low {
		return field.ErrorList{field.Invalid(at, v, fmt.Sprintf("must be %d or more", low))}
	}
	return nil
}

// fileMode wants the permission bits of a file; nil is fine.
func fileMode(at *field.Path, mode *int32) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// noBacksteps wants a path without the element "..".
func noBacksteps(at *field.Path, v string) field.ErrorList {
	if slices.Contains(strings.Split(strings.ReplaceAll(v, `\`, "/"), "/"), "..") {
		return field.ErrorList{field.Invalid(at, v, "must not contain '..'")}
	}
	return nil
}

// localPath wants a path that stays below the directory it is relative to.
func localPath(at *field.Path, v string) field.ErrorList {
	if path.IsAbs(v) {
		return field.ErrorList{field.Invalid(at, v, "must be a relative path")}
	}
	return noBacksteps(at, v)
}

// localFile is localPath for a file that is written or read: it must be named,
// and its first element may not even begin with "..", which the atomic update of
// volumes keeps for itself.
func localFile(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, "must be a relative path, such as \"directory/file\"")}
	}
	errs := localPath(at, v)
	if len(errs) == 0 && strings.HasPrefix(v, "..") {
		errs = append(errs, field.Invalid(at, v, "must not start with '..'"))
	}
	return errs
}

// Port wants a port's number.
func Port(at *field.Path, v int32) field.ErrorList {
	return Invalid(at, v, validation.IsValidPortNum(int(v)))
}

// PortOrName wants a port's number or an IANA service name.
func PortOrName(at *field.Path, v intstr.IntOrString) field.ErrorList {
	if v.Type == intstr.String {
		if _, err := strconv.Atoi(v.StrVal); err == nil {
			return field.ErrorList{field.Invalid(at, v.StrVal,
				"must be a port's name; a number is written without quotes")}
		}
		return Invalid(at, v.StrVal, validation.IsValidPortName(v.StrVal))
	}
	return Invalid(at, v.IntVal, validation.IsValidPortNum(int(v.IntVal)))
}

// imageReference wants an image reference that isn't empty and has no white space around it.
// Whether the reference itself is right is left to the runtime.
func imageReference(at *field.Path, v string) field.ErrorList {
	switch {
	case v == "":
		return field.ErrorList{field.Required(at,
			"must be an image reference, such as \"registry.example.com/app:1.2\"")}
	case strings.TrimSpace(v) != v:
		return field.ErrorList{field.Invalid(at, v, "must not have leading or trailing whitespace")}
	}
	return nil
}

// envName wants the name of an environment variable: printable ASCII without "=".
func envName(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, "must be printable ASCII characters without '='")}
	}
	return Invalid(at, v, validation.IsRelaxedEnvVarName(v))
}

// forbidden collects the fields that are set and mustn't be.
type forbidden struct {
	why  string
	errs field.ErrorList
}

func (f *forbidden) set(set bool, at *field.Path) {
	if set {
		f.errs = append(f.errs, field.Forbidden(at, f.why))
	}
}
