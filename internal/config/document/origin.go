package document

import "strconv"

// Kind says what kind of source a setting comes from.
type Kind int

// The sources of settings, the weaker before the stronger.
const (
	Default Kind = iota // nobody set it
	Host                // it was found out about the host
	File                // the configuration file
	DropIn              // a file of the directory of drop-ins
	Flag                // the command line
)

// Origin is where a setting comes from.
type Origin struct {
	Kind Kind
	// Name is the path of a file, or a flag as it is written ("--max-pods").
	Name string
	// Line is the line in a file, from 1; 0 when unknown.
	Line int
}

// String renders the origin for a person: "/var/lib/kubelet/config.yaml:12",
// "--max-pods", "default".
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
