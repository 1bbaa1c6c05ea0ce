package document

import "strconv"

// Kind is the kind of a setting's source.
type Kind int

// The sources of settings, from low to high precedence.
const (
	Default Kind = iota // the setting isn't set
	Host                // detected on the host
	File                // the configuration file
	DropIn              // a file of the directory of drop-ins
	Flag                // the command line
)

// Origin is the source of a setting.
type Origin struct {
	Kind Kind
	// Name is the path of a file, or a flag with its dashes ("--max-pods").
	Name string
	// Line is the line in a file, from 1; 0 if unknown.
	Line int
}

// String formats the origin: "/var/lib/kubelet/config.yaml:12", "--max-pods", "default".
func (o Origin) String() string {
	switch {
	case o.Kind == Default:
		return "default"
	case o.Name == "" && o.Kind == Host:
		return "host"
	case o.Line > 0:
		return o.Name + ":" + strconv.Itoa(o.Line)
	}
	return o.Name
}
