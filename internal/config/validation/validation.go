// Package validation checks a KubeletConfiguration (kubelet.config.k8s.io/v1beta1); its errors name the valid values.
// It also parses single values: quantities, lists of CPUs, names of cgroups and sysctls.
//
// It follows the comments of k8s.io/kubelet/config/v1beta1 and the checks of kubelet 1.36 in its validation and at
// its start. It is never stricter than the kubelet, so that a node's file stays valid when its kubelet is replaced.
//
// It is pure: it doesn't check whether files, CPUs and NUMA nodes exist; the code that uses them does. Package gates
// checks the names of feature gates.
package validation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/kit/suggest"
)

// Gates reports whether a feature gate of the kubelet is on.
type Gates interface {
	Enabled(name string) bool
}

// minPeriod is the minimum of all settings that are periods, so that no period makes a busy loop.
const minPeriod = 100 * time.Millisecond

// Problem is one error in a configuration.
type Problem struct {
	// Field is the path of a setting: "evictionHard[memory.available]".
	Field string
	// Message describes the error and the valid values.
	Message string
	// Beside is the path of another setting that contradicts Field: the place to correct if Field wasn't set. It is
	// usually empty.
	Beside string
}

// String formats the problem on one line.
func (p Problem) String() string { return p.Field + ": " + p.Message }

// Validate checks a configuration with defaults (config.SetDefaults). It returns all errors, each with its field and
// the valid values. It doesn't repeat values that may be secret (headers, passwords in URLs). It neither changes nor
// keeps c, and returns quickly for any c.
func Validate(c *v1beta1.KubeletConfiguration, gates Gates) []Problem {
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
	return k.problems
}

// check is one run of Validate: each method checks one area and adds its errors.
type check struct {
	*v1beta1.KubeletConfiguration
	gates    Gates
	problems []Problem
}

// at returns the path of a field by its names in the file.
func at(name string, more ...string) *field.Path { return field.NewPath(name, more...) }

func (k *check) add(err *field.Error) {
	k.problems = append(k.problems, Problem{Field: err.Field, Message: err.ErrorBody()})
}

// addBeside is add for an error that another setting may have caused.
func (k *check) addBeside(beside *field.Path, err *field.Error) {
	k.problems = append(k.problems, Problem{Field: err.Field, Message: err.ErrorBody(), Beside: beside.String()})
}

func (k *check) invalid(path *field.Path, value any, detail string) {
	if text, ok := value.(string); ok {
		value = short(text)
	}
	k.add(field.Invalid(path, value, detail))
}

func (k *check) duplicate(path *field.Path, value any) { k.add(field.Duplicate(path, value)) }

func (k *check) forbidden(path *field.Path, detail string) { k.add(field.Forbidden(path, detail)) }

// required adds an error for a setting that is missing although another is set.
func (k *check) required(path, beside *field.Path, message string) {
	k.problems = append(k.problems, Problem{Field: path.String(), Message: message, Beside: beside.String()})
}

// needsGate rejects a field that needs a gate that is off.
func (k *check) needsGate(path *field.Path, gate string) {
	if !k.gates.Enabled(gate) {
		k.forbidden(path, "needs the feature gate "+gate)
	}
}

// oneOf checks that value is one of the known values of an enumeration.
func oneOf[T ~string](k *check, path *field.Path, value T, known ...T) {
	switch {
	case slices.Contains(known, value):
	case value == "":
		k.problems = append(k.problems,
			Problem{Field: path.String(), Message: "it is missing; it must be one of " + joined(known)})
	default:
		k.add(field.NotSupported(path, T(short(string(value))), known))
	}
}

// unknownKey rejects an unknown key of a map.
func (k *check) unknownKey(path *field.Path, key string, known ...string) {
	message := "there is no such key here; known are " + joined(known)
	if meant := suggest.Of(key, slices.Values(known), 2); meant != "" {
		message = "there is no such key here; did you mean " + meant + "? Known are " + joined(known)
	}
	k.problems = append(k.problems, Problem{Field: path.Key(key).String(), Message: message})
}

func joined[T ~string](words []T) string {
	var b strings.Builder
	for i, word := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(word))
	}
	return b.String()
}

// short shortens a value to a length that is enough to recognize it.
func short(value string) string {
	const most = 64
	if r := []rune(value); len(r) > most {
		return string(r[:most]) + "…"
	}
	return value
}

// atLeast checks that a number is at least least. detail describes the valid values for the error.
func atLeast[T cmp.Ordered](k *check, name string, value, least T, detail string) {
	if value < least {
		k.invalid(at(name), value, detail)
	}
}

// period checks a period against minPeriod.
func (k *check) period(name string, d time.Duration) {
	if d < minPeriod {
		k.invalid(at(name), d.String(), "must be at least "+minPeriod.String())
	}
}

// positive checks a duration that must be more than 0.
func (k *check) positive(path *field.Path, d time.Duration) {
	if d <= 0 {
		k.invalid(path, d.String(), "must be more than 0")
	}
}

// notNegative checks a duration that may be 0, which only a flag can set.
func (k *check) notNegative(path *field.Path, d time.Duration) {
	if d < 0 {
		k.invalid(path, d.String(), "must be 0 or more")
	}
}

// file checks the path of a file or directory, which may be relative or empty.
func (k *check) file(path *field.Path, name string) {
	if strings.ContainsRune(name, 0) {
		k.invalid(path, name, "must be the path of a file or directory")
	}
}
