package flags

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/kubelet/config/v1beta1"
)

// Overlay writes the given flags to a configuration that was read from files. It returns the flag of each field that
// it wrote, by the field's path: "evictionHard", "logging.verbosity", "featureGates[MemoryQoS]".
//
// A flag replaces the whole value of its field, including lists and maps. There are two exceptions: the patterns of
// --vmodule are appended to the file's, and --feature-gates replaces only the gates that it names. (According to the
// documented "Kubelet configuration merging order", files override gates of the command line; in kubelet 1.36 the
// command line overrides files, as for all other flags.)
//
// It may be called again for another configuration; c shares no memory with s.
func (s *Set) Overlay(c *v1beta1.KubeletConfiguration) map[string]string {
	from := map[string]string{}
	given := s.kubelet.DeepCopy()
	for name, r := range s.rows {
		if r.field == "" || !s.says(name) {
			continue
		}
		switch r.field {
		case "featureGates":
			overlayGates(c, given.FeatureGates, name, from)
			continue
		case "logging.vmodule":
			c.Logging.VModule = append(slices.Clip(c.Logging.VModule), given.Logging.VModule...)
		default:
			r.of(c).Set(r.of(given))
		}
		from[r.field] = name
	}
	return from
}

func overlayGates(c *v1beta1.KubeletConfiguration, gates map[string]bool, flag string, from map[string]string) {
	merged := maps.Clone(c.FeatureGates)
	if merged == nil {
		merged = map[string]bool{}
	}
	for gate, on := range gates {
		merged[gate] = on
		from["featureGates["+gate+"]"] = flag
	}
	c.FeatureGates = merged
}

// says reports whether a flag was given with a value that has an effect. Some flags have no effect with an empty value.
// If the kubelet ignores the empty value, too, the flag's value implements Given. The other flags of this kind are
// strings with a default. For these, the kubelet rejects an empty value, or gets the value from the runtime
// (--cgroup-driver). Here an empty value is ignored: a unit file contains one if a variable in it isn't set.
func (s *Set) says(name string) bool {
	value, r := s.flags.Lookup(name).Value, s.rows[name]
	if v, ok := value.(interface{ Given() bool }); ok {
		return v.Given()
	}
	if r.def != "" && value.String() == "" && r.of(&s.kubelet).Kind() == reflect.String {
		return false
	}
	return s.Given(name)
}
