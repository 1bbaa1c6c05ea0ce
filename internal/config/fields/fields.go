// Package fields is the table of all fields of v1beta1.KubeletConfiguration: their meaning, and their effect in this
// build. It lists the fields that were set without effect, and prints the table as text for a terminal, as Markdown
// and as JSON.
//
// A test compares the table with the API type and with the code that reads the fields.
package fields

import (
	"slices"
	"strings"
)

// Field describes one field: a value, a list or a map.
type Field struct {
	// Path is the field's path in the file: "logging.verbosity".
	Path string
	// Doc describes the field in a line or two for a user who sets it: meaning, units and valid values.
	Doc string
	// Default describes the default if it depends on something else or isn't in the documented defaults; usually
	// empty.
	Default string
	// Package is the directory of the package under internal/ that reads the field; empty if none does.
	Package string
	// Why is the reason why setting the field has no effect in this build; empty if it has an effect.
	Why string
	// Partly says which part of the field's meaning has no effect, although a Package reads the field; usually empty.
	Partly string
	// Idle is a value, formatted as by valueText, that requests the behaviour that this build always has: setting the
	// field to this value needs no notice. It is empty if there is no such value.
	Idle string
	// Departs says how deckhand's default, or its default behaviour, differs from the kubelet's; usually empty. It
	// completes "unlike the kubelet: ".
	Departs string
	// Gate is the feature gate that the field needs, if any.
	Gate string
	// Embedded means that only the embedded runtime uses the field: with containerRuntimeEndpoint it has no effect.
	Embedded bool
	// Cluster means that the field is about requests to an API server: without --kubeconfig it has no effect.
	Cluster bool
	// Live means that a reload applies a change of the field, without a restart of the agent.
	Live bool
}

// Acts reports whether the field has an effect in this build.
func (f *Field) Acts() bool { return f.Why == "" }

// Topic is a group of related fields.
type Topic struct {
	Name   string
	Fields []Field
}

// Topics returns the table, in reading order.
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
		{"Access to the HTTPS server", access()},
		{"API server", apiServer()},
		{"Node object", node()},
	}
}

// All returns all fields of the table, in the order of Topics.
func All() []Field {
	var all []Field
	for _, t := range Topics() {
		all = append(all, t.Fields...)
	}
	return all
}

// Of returns the field at path, or the field that contains it: evictionHard for "evictionHard[memory.available]". It
// returns false for a struct ("logging"), which isn't in the table.
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

// withoutKeys cuts path at the first bracket: the table has no fields in elements of lists or maps.
func withoutKeys(path string) string {
	path, _, _ = strings.Cut(path, "[")
	return path
}
