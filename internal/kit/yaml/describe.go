package yaml

import (
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Describe returns the type and value of a node for a message, with an article.
func Describe(n *Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == TagBool, SaysBool(n):
		return "a boolean (" + n.Value + ")"
	case n.ShortTag() == TagInt, n.ShortTag() == TagFloat:
		return "a number (" + Quote(n) + ")"
	case n.ShortTag() == TagNull:
		return "null"
	case n.ShortTag() == TagString, n.ShortTag() == TagTimestamp:
		return "a string (" + Quote(n) + ")"
	default:
		return "of the YAML type " + n.ShortTag()
	}
}

// TypeOf returns the type of a node with its article, and nothing of its value: the node may belong to a Secret, or
// to a file that isn't a manifest.
func TypeOf(n *Node) string {
	if n.Kind != yaml.ScalarNode {
		return Describe(n)
	}
	if !slices.Contains(plainTags, n.ShortTag()) {
		return "of an unknown YAML type" // the tag isn't shown: it may be a secret value that begins with "!"
	}
	what, _, _ := strings.Cut(Describe(n), " (")
	return what
}

// Quote returns a node's text, cut to a length that fits in a message.
func Quote(n *Node) string {
	const most = 40
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		return Describe(n)
	case yaml.AliasNode:
		return "*" + n.Value
	}
	return strconv.Quote(Shorten(n.Value, most))
}

// plainTags are the scalars' tags that contain nothing but a type.
var plainTags = []string{TagNull, TagBool, TagString, TagInt, TagFloat, TagTimestamp, TagBinary}
