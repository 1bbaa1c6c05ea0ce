package flags

import (
	"maps"
	"reflect"
	"slices"

	"k8s.io/kubelet/config/v1beta1"
)

// Overlay writes what was given into a configuration that was read from files. It
// returns, by the path of each field it wrote, the flag that said so: "evictionHard",
// "logging.verbosity", "featureGates[MemoryQoS]".
//
// A flag takes the place of all the file has in its field, lists and maps too. There
// are two exceptions: the patterns of --vmodule come after the file's, and the gates of
// --feature-gates take the place of the same gates only. (The documented "Kubelet
// configuration merging order" has gates on the command line behind all files; kubelet
// 1.36 has them before, as all other flags.)
//
// It may be called again for another configuration, which shares no memory with s.
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

// says reports whether a flag was given and says something: some do not when empty. Those
// that the kubelet has so are values with the method Said. The others are texts with a
// default: the kubelet refuses an empty one, or asks the runtime (--cgroup-driver), and a
// unit file may have one where a variable isn't set.
func (s *Set) says(name string) bool {
	value, r := s.flags.Lookup(name).Value, s.rows[name]
	if v, ok := value.(interface{ Said() bool }); ok {
		return v.Said()
	}
	if r.def != "" && value.String() == "" && r.of(&s.kubelet).Kind() == reflect.String {
		return false
	}
	return s.Given(name)
}
