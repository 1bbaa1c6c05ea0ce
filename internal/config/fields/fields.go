// Package fields is the table of all fields of v1beta1.KubeletConfiguration: what each means,
// and what this build does with it. It lists the fields that somebody set in vain, and shows
// the table as text for a terminal, as Markdown and as JSON.
//
// A test compares the table with the API type and with the code that acts on it.
package fields

import (
	"slices"
	"strings"
)

// Field is what there is to know of one field: a value, a list or a map.
type Field struct {
	// Path is the field by its names in the file: "logging.verbosity".
	Path string
	// Doc says in a line or two what it means to a person who sets it: units, and what
	// is valid.
	Doc string
	// Default says in words what holds where the field isn't set, if that depends on
	// something else or isn't to be seen in the defaults; mostly empty.
	Default string
	// Package is the directory of the package under internal/ that acts on it; empty if none does.
	Package string
	// Why says why setting it has no effect in this build; empty if something acts on it.
	Why string
	// Partly says which part of it isn't acted on, beside a Package; mostly empty.
	Partly string
	// Idle is the value that asks for what this build does anyway, as valueText writes
	// it: with it nothing is missing, in spite of Why or Partly. Empty if there is none.
	Idle string
	// Departs says where deckhand's default, or what it does by default, isn't the kubelet's;
	// mostly empty. It goes on from "unlike the kubelet: ".
	Departs string
	// Gate is the feature gate that it needs, if any.
	Gate string
	// Embedded says that only the embedded runtime knows what to do with it: with
	// containerRuntimeEndpoint it has no effect.
	Embedded bool
	// Cluster says that it is about what is asked of an API server, or said to it: without --kubeconfig it has no
	// effect.
	Cluster bool
	// Live says that a reload changes it, without a restart of the agent.
	Live bool
}

// Acts reports whether this build does anything with the field.
func (f *Field) Acts() bool { return f.Why == "" }

// Topic is a group of fields that have to do with each other.
type Topic struct {
	Name   string
	Fields []Field
}

// Topics is the table, in the order in which a person reads it.
func Topics() []Topic {
	return []Topic{
		{"The file", file()},
		{"Where pods come from", sources()},
		{"Container runtime", containerRuntime()},
		{"Network and names", network()},
		{"Images", images()},
		{"Pods and containers", containers()},
		{"Logs of containers", containerLogs()},
		{"Control groups", cgroups()},
		{"Resources kept from pods", reservations()},
		{"CPUs and memory assigned to containers", managers()},
		{"Eviction", eviction()},
		{"Volumes", volumes()},
		{"Host", host()},
		{"Shutdown of the node", shutdown()},
		{"Log of the agent", logging()},
		{"Health and plain HTTP", serving()},
		{"HTTPS server", https()},
		{"Who may use the HTTPS server", access()},
		{"API server", apiServer()},
		{"Node object", node()},
	}
}

// All is every field of the table, in the order of Topics.
func All() []Field {
	var all []Field
	for _, t := range Topics() {
		all = append(all, t.Fields...)
	}
	return all
}

// Of finds the field that path names or is a part of: that of
// "evictionHard[memory.available]" is evictionHard. What lies above the table's fields
// ("logging") has none.
func Of(path string) (Field, bool) {
	path = withoutKeys(path)
	all := All()
	for path != "" {
		if i := slices.IndexFunc(all, func(f Field) bool { return f.Path == path }); i >= 0 {
			return all[i], true
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return Field{}, false
}

// withoutKeys cuts off what stands in brackets, and what follows: no field of the table
// lies in an element of a list or map.
func withoutKeys(path string) string {
	path, _, _ = strings.Cut(path, "[")
	return path
}
