package spec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// enums maps each enumeration type among the fields of pods to its valid values, according to the API's comments
// (k8s.io/api/core/v1, +enum). The zero value stands for the default, and is always valid. A test compares the table
// with the API's types.
func enums() map[reflect.Type][]string {
	m := map[reflect.Type][]string{}
	add := func(t reflect.Type, list []string) { m[t] = list }
	add(values(v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever))
	add(values(v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever))
	add(values(v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers))
	add(values(v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn))
	add(values(v1.PullAlways, v1.PullNever, v1.PullIfNotPresent))
	add(values(v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst, v1.DNSDefault, v1.DNSNone))
	add(values(v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile,
		v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev))
	add(values(v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError))
	add(values(v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional))
	add(values(v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled))
	add(values(v1.URISchemeHTTP, v1.URISchemeHTTPS))
	add(values(v1.NotRequired, v1.RestartContainer))
	add(values(v1.SeccompProfileTypeUnconfined, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost))
	add(values(v1.AppArmorProfileTypeUnconfined, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost))
	add(values(v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP))
	add(values(v1.DefaultProcMount, v1.UnmaskedProcMount))
	add(values(v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways))
	add(values(v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict))
	add(values(v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption))
	add(values(v1.PreemptLowerPriority, v1.PreemptNever))
	add(values(v1.Linux, v1.Windows))
	add(values(validation.Signals()...))
	return m
}

// values returns a type, and its values as strings.
func values[T ~string](list ...T) (reflect.Type, []string) {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = string(v)
	}
	return reflect.TypeFor[T](), texts
}

// UnknownValues returns an error for each field of an enumeration type with a value that this node doesn't support. An
// API server accepts only valid values, but a newer API server may support more values. The medium of an emptyDir isn't
// checked, because API servers don't check it: a pod with an unknown medium waits, because its volume can't be created.
func UnknownValues(p *v1.Pod) field.ErrorList {
	w := enumWalk{known: enums()}
	w.walk(reflect.ValueOf(&p.Spec).Elem(), func() *field.Path { return field.NewPath("spec") })
	return w.errs
}

type enumWalk struct {
	known map[reflect.Type][]string
	errs  field.ErrorList
}

// walk checks a value and all values below it. The function at returns the path of the value; walk calls it only for an
// error.
func (w *enumWalk) walk(v reflect.Value, at func() *field.Path) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			w.walk(v.Elem(), at)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			w.walk(v.Index(i), func() *field.Path { return at().Index(i) })
		}
	case reflect.Struct:
		for i := range v.NumField() {
			w.walk(v.Field(i), func() *field.Path {
				name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
				if name == "" { // it is inlined
					return at()
				}
				return at().Child(name)
			})
		}
	case reflect.String:
		allowed, is := w.known[v.Type()]
		if text := v.String(); is && text != "" && !slices.Contains(allowed, text) {
			w.errs = append(w.errs, field.NotSupported(at(), text, allowed))
		}
	}
}

// Refusal returns the errors as one line, for the status of a pod; empty if there are no errors.
func Refusal(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	text := errs[0].Error()
	if more := len(errs) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more like it)", more)
	}
	return text
}
