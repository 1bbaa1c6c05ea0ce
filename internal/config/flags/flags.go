// Package flags is the agent's command line: the kubelet's flags, with the same names, types, defaults and
// deprecations, and a few of deckhand's own.
//
// Each flag is a row of a table. It belongs to a field of the configuration file or to a field of Values, or it has no
// effect and the row has the reason. Values of types that pflag doesn't have are parsed as in the kubelet.
package flags

import (
	"maps"
	"path/filepath"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
)

const (
	kubeletRootDir = "/var/lib/kubelet"
	// certsBelow is the directory of certificates in the root directory.
	certsBelow = "pki"
)

// Set is the flags of one command line with their values. Call AddTo first, then parse, and then the methods that
// return values, which may be called concurrently.
type Set struct {
	tables []table
	rows   map[string]*row // rows of the tables by name
	flags  *pflag.FlagSet
	// kubelet and values are the targets of parsing.
	kubelet v1beta1.KubeletConfiguration
	values  Values
}

// New returns the flags with no values given. rootDir is the default of --root-dir.
func New(rootDir string) *Set {
	s := &Set{
		rows:   map[string]*row{},
		flags:  pflag.NewFlagSet("agent", pflag.ContinueOnError),
		values: Values{NodeLabels: map[string]string{}, Version: newVersion(buildinfo.Kubernetes)},
	}
	s.flags.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	s.kubelet.Logging.FlushFrequency.SerializeAsString = true
	s.tables = s.allTables(rootDir)
	indexes := fieldIndexes()
	for _, t := range s.tables {
		for i := range t.rows {
			r := &t.rows[i]
			r.index = indexes[r.field]
			s.rows[r.name] = r
			define(s.flags, r, t.usage(*r), s.target(r))
		}
	}
	return s
}

// allTables returns the flags in the order of the help.
func (s *Set) allTables(rootDir string) []table {
	v := &s.values
	return []table{
		{title: "Configuration", usage: withRemarks, rows: configuration(v)},
		{title: "Pods", usage: withRemarks, rows: pods(v)},
		{title: "Node and cluster", usage: withRemarks, rows: node(v, certDir(rootDir))},
		{title: "Container runtime and images", usage: withRemarks, rows: containers(v)},
		{title: "Logging", usage: withRemarks, rows: logs()},
		{title: "This process", usage: withRemarks, rows: process(v, rootDir)},
		{title: "Deprecated: the configuration file has a field for each", sorted: true, usage: fieldFirst,
			rows: inFile()},
		{title: "Accepted without effect", sorted: true, usage: plain, rows: withoutEffect()},
	}
}

// certDir returns the default of --cert-dir. With the kubelet's root directory as rootDir, it is the kubelet's default,
// which doesn't depend on --root-dir. With another rootDir, the certificates are below --root-dir (see Values), so that
// agents on one host don't share keys, and leave no files elsewhere.
func certDir(rootDir string) string {
	if rootDir == kubeletRootDir {
		return filepath.Join(kubeletRootDir, certsBelow)
	}
	return ""
}

// AddTo adds the flags to the flags of a command, which then accepts "_" for "-" in names. Parsing the command's flags
// sets the values of s. Deprecated flags print no warning while parsing; see Deprecated.
func (s *Set) AddTo(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.AddFlagSet(s.flags)
}

// Has reports whether there is a flag of this name.
func (s *Set) Has(name string) bool { return s.flags.Lookup(name) != nil }

// Fields maps the name of each flag that sets a field of the configuration file to the path of the field.
func (s *Set) Fields() map[string]string {
	fields := map[string]string{}
	for name, r := range s.rows {
		if r.field != "" {
			fields[name] = r.field
		}
	}
	return fields
}

// Given reports whether a flag was given, even with its default.
func (s *Set) Given(name string) bool { return s.flags.Changed(name) }

// Values returns the values of flags without a field in the configuration file.
func (s *Set) Values() Values {
	v := s.values
	v.NodeLabels = maps.Clone(v.NodeLabels)
	if v.CertDir == "" {
		v.CertDir = filepath.Join(v.RootDir, certsBelow)
	}
	return v
}
