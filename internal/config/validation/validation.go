// Package validation says what is wrong with a KubeletConfiguration
// (kubelet.config.k8s.io/v1beta1), and what would be right.
//
// It holds to the comments of k8s.io/kubelet/config/v1beta1 and to what kubelet 1.36
// refuses, be it when it validates its configuration or when it starts. It is never
// stricter about what the kubelet takes and can live with, so that a node's file stays
// good when its kubelet is replaced.
//
// Nothing is asked of the host here: whether files, CPUs and NUMA nodes exist is seen
// by those who use them. Names of feature gates are checked by package gates.
package validation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// Gates answers whether a feature gate of the kubelet is on.
type Gates interface {
	Enabled(name string) bool
}

// minPeriod keeps what is done again and again from becoming a busy loop.
const minPeriod = 100 * time.Millisecond

// Validate checks a configuration to which defaults were given (defaults.Set).
// It returns everything that is wrong, each with its field and what would be valid.
// Values that may be secret (headers, passwords in URLs) are not repeated. It neither
// changes nor keeps c, and comes to an end quickly whatever c holds.
func Validate(c *v1beta1.KubeletConfiguration, gates Gates) field.ErrorList {
	k := &check{KubeletConfiguration: c, gates: gates}
	k.sources()
	k.serving()
	k.tls()
	k.access()
	k.apiServer()
	k.registration()
	k.names()
	k.runtime()
	k.pods()
	k.sysctls()
	k.images()
	k.imageUse()
	k.containerLogs()
	k.cgroups()
	k.allocatable()
	k.reservations()
	k.reservedMemory()
	k.cpuManager()
	k.memoryManager()
	k.topologyManager()
	k.eviction()
	k.shutdown()
	k.logging()
	k.host()
	k.observing()
	return k.errs
}

// check is one run of Validate: its methods each look at one area and collect what is wrong.
type check struct {
	*v1beta1.KubeletConfiguration
	gates Gates
	errs  field.ErrorList
}

// at is the path of a field, by its names in the file.
func at(name string, more ...string) *field.Path { return field.NewPath(name, more...) }

func (k *check) invalid(path *field.Path, value any, detail string) {
	if text, ok := value.(string); ok {
		value = short(text)
	}
	k.errs = append(k.errs, field.Invalid(path, value, detail))
}

func (k *check) duplicate(path *field.Path, value any) {
	k.errs = append(k.errs, field.Duplicate(path, value))
}

func (k *check) forbidden(path *field.Path, detail string) {
	k.errs = append(k.errs, field.Forbidden(path, detail))
}

func (k *check) required(path *field.Path, detail string) {
	k.errs = append(k.errs, field.Required(path, detail))
}

// needsGate refuses a field that counts only with a gate that is off.
func (k *check) needsGate(path *field.Path, gate string) {
	if !k.gates.Enabled(gate) {
		k.forbidden(path, "needs the feature gate "+gate)
	}
}

// oneOf checks a value of an enumeration.
func oneOf[T ~string](k *check, path *field.Path, value T, known ...T) {
	if !slices.Contains(known, value) {
		k.errs = append(k.errs, field.NotSupported(path, T(short(string(value))), known))
	}
}

// short is as much of a value as helps a person to find it.
func short(value string) string {
	const most = 64
	if r := []rune(value); len(r) > most {
		return string(r[:most]) + "…"
	}
	return value
}

// atLeast checks a number that has no upper bound.
func atLeast[T cmp.Ordered](k *check, name string, value, least T, detail string) {
	if value < least {
		k.invalid(at(name), value, detail)
	}
}

// period checks how often something is done.
func (k *check) period(name string, d time.Duration) {
	if d < minPeriod {
		k.invalid(at(name), d.String(), "must be at least "+minPeriod.String())
	}
}

// positive checks a duration that has to be some time.
func (k *check) positive(path *field.Path, d time.Duration) {
	if d <= 0 {
		k.invalid(path, d.String(), "must be more than 0")
	}
}

// file checks the path of a file or folder, which may be relative or empty.
func (k *check) file(path *field.Path, name string) {
	if strings.ContainsRune(name, 0) {
		k.invalid(path, name, "must be the path of a file or folder")
	}
}
