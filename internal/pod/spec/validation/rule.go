// Package validation validates the parts of a pod's spec. Each file is about one topic: containers with their ports,
// environment, mounts, probes and hooks; volumes and claims; security contexts, and the restrictions that the pod's
// operating system and host namespaces put on them; requests and limits.
//
// Each function returns the errors that it found, or nil. The argument at is the path of the checked value, for the
// errors.
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

// Required returns an error for an empty string.
func Required[T ~string](at *field.Path, v T, why string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, why)}
	}
	return nil
}

// OneOf returns an error if v isn't one of the valid values. An empty v is reported as missing.
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

// OptionalOneOf is like OneOf, for a pointer. nil is valid.
func OptionalOneOf[T ~string](at *field.Path, v *T, valid ...T) field.ErrorList {
	if v == nil {
		return nil
	}
	if slices.Contains(valid, *v) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *v, valid)}
}

// quoted lists values for a message, in the format of field.NotSupported.
func quoted[T ~string](values []T) string {
	words := make([]string, 0, len(values))
	for _, v := range values {
		words = append(words, strconv.Quote(string(v)))
	}
	return strings.Join(words, ", ")
}

// Invalid converts the messages of k8s.io/apimachinery's checks of v to errors.
func Invalid(at *field.Path, v any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(at, v, m))
	}
	return errs
}

// present is like Invalid, for values that must not be empty. For an empty value it returns one error: the value is
// required.
func present(at *field.Path, v string, messages []string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, strings.Join(messages, "; "))}
	}
	return Invalid(at, v, messages)
}

// Label checks that v is a DNS label (RFC 1123), such as a container's name.
func Label(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsDNS1123Label(v))
}

// Subdomain checks that v is a DNS subdomain (RFC 1123), such as the name of an API object.
func Subdomain(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsDNS1123Subdomain(v))
}

// OptionalSubdomain is like Subdomain, but an empty v is valid.
func OptionalSubdomain(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return nil
	}
	return Subdomain(at, v)
}

// QualifiedName checks that v is a name with an optional domain prefix, such as a label's key.
func QualifiedName(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsQualifiedName(v))
}

// ConfigKey checks that v is a valid key of a ConfigMap or Secret.
func ConfigKey(at *field.Path, v string) field.ErrorList {
	return present(at, v, validation.IsConfigMapKey(v))
}

// Range checks that low <= v <= high.
func Range[T cmp.Ordered](at *field.Path, v, low, high T) field.ErrorList {
	if v < low || v > high {
		return field.ErrorList{field.Invalid(at, v, fmt.Sprintf("must be between %v and %v, inclusive", low, high))}
	}
	return nil
}

// AtLeast checks that v >= low.
func AtLeast[T ~int32 | ~int64](at *field.Path, v, low T) field.ErrorList {
	if v < low {
		return field.ErrorList{field.Invalid(at, v, fmt.Sprintf("must be %d or more", low))}
	}
	return nil
}

// fileMode checks that the mode has only permission bits of a file. nil is valid.
func fileMode(at *field.Path, mode *int32) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// noBacksteps checks that the path has no element "..".
func noBacksteps(at *field.Path, v string) field.ErrorList {
	if slices.Contains(strings.Split(strings.ReplaceAll(v, `\`, "/"), "/"), "..") {
		return field.ErrorList{field.Invalid(at, v, "must not contain '..'")}
	}
	return nil
}

// localPath checks that the path is relative and has no element "..".
func localPath(at *field.Path, v string) field.ErrorList {
	if path.IsAbs(v) {
		return field.ErrorList{field.Invalid(at, v, "must be a relative path")}
	}
	return noBacksteps(at, v)
}

// localFile is like localPath, for the path of a file in a volume. The path must not be empty, and must not begin
// with "..", which is reserved for the atomic update of volumes.
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

// Port checks that v is a valid port number.
func Port(at *field.Path, v int32) field.ErrorList {
	return Invalid(at, v, validation.IsValidPortNum(int(v)))
}

// PortOrName checks that v is a valid port number or an IANA service name.
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

// imageReference checks that an image reference isn't empty and has no white space around it. The container runtime
// checks the reference itself.
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

// envName checks that v is a name of an environment variable: printable ASCII without "=".
func envName(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return field.ErrorList{field.Required(at, "must be printable ASCII characters without '='")}
	}
	return Invalid(at, v, validation.IsRelaxedEnvVarName(v))
}

// forbidden collects errors for fields that are set although they must not be. why is the reason in each error.
type forbidden struct {
	why  string
	errs field.ErrorList
}

func (f *forbidden) set(set bool, at *field.Path) {
	if set {
		f.errs = append(f.errs, field.Forbidden(at, f.why))
	}
}
