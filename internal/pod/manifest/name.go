package manifest

import (
	"bytes"
	"cmp"
	"regexp"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

const defaultNamespace = "default"

// nameOf returns the "namespace/name" in the metadata of an object of this kind; "" if the object has no name.
func nameOf(kind object.Kind, n *yaml.Node) string {
	return fullName(kind, yaml.Text(n, "metadata", "namespace"), yaml.Text(n, "metadata", "name"))
}

func fullName(kind object.Kind, namespace, name string) string {
	if name == "" || !kind.Namespaced() {
		return name
	}
	return cmp.Or(namespace, defaultNamespace) + "/" + name
}

var (
	kindField = regexp.MustCompile(`(?m)(?:^|[{,])[ \t]*"?kind"?[ \t]*:[ \t]*["']?([a-zA-Z]+)`)

	metadataKey = regexp.MustCompile(`(?m)(?:^|[{,])[ \t]*"?metadata"?[ \t]*:`)
	// metadataField matches the field name or namespace with its value, in YAML or JSON.
	metadataField = regexp.MustCompile(`(?:^|[{,])\s*"?(name|namespace)"?\s*:\s*["']?([-a-zA-Z0-9.]+)`)
)

// guessKind finds the kind in text that can't be parsed; "" for a pod, an unknown kind, or text without a kind.
func guessKind(text []byte) object.Kind {
	m := kindField.FindSubmatch(text)
	if m == nil {
		return ""
	}
	return objectKind(string(m[1]))
}

// guessName finds the name in text that can't be parsed, so that the error can name the pod. It reads the text after
// "metadata:", on the same line or on lines indented alike.
func guessName(kind object.Kind, text []byte) string {
	at := metadataKey.FindIndex(text)
	if at == nil {
		return ""
	}
	const far = 50
	found := map[string]string{}
	indent := -1
	lines := bytes.SplitN(text[at[1]:], []byte{'\n'}, far)
	for i, line := range lines[:min(len(lines), far-1)] {
		rest := bytes.TrimLeft(line, " \t")
		switch in := len(line) - len(rest); {
		case i == 0 || len(bytes.TrimSpace(rest)) == 0 || rest[0] == '#':
		case indent < 0:
			indent = in
		case in < indent:
			return fullName(kind, found["namespace"], found["name"])
		case in > indent:
			continue
		}
		for _, m := range metadataField.FindAllSubmatch(line, -1) {
			if found[string(m[1])] == "" {
				found[string(m[1])] = string(m[2])
			}
		}
	}
	return fullName(kind, found["namespace"], found["name"])
}
