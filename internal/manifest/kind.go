package manifest

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/yamltext"
)

const (
	apiVersion = "v1"
	kindPod    = "Pod"
	kindList   = "List"
)

// supported says which kinds a manifest may hold.
const supported = "a manifest may hold Pod, ConfigMap, Secret, Service, ServiceAccount, " +
	"PersistentVolume and PersistentVolumeClaim (v1), and RuntimeClass (node.k8s.io/v1)"

// objectKind is the kind of an object that isn't a pod; "" if there is no such kind.
func objectKind(kind string) objects.Kind {
	if k := objects.Kind(kind); k.Known() {
		return k
	}
	return ""
}

// versionOf is the apiVersion of a kind; "" for a kind that no manifest may hold.
func versionOf(kind string) string {
	if kind == kindPod {
		return apiVersion
	}
	if k := objectKind(kind); k != "" {
		return k.APIVersion()
	}
	return ""
}

// root reads one parsed document: a pod, another object, or a list of them.
func (d *decoder) root(t *tree) {
	d.aliasCost = 0
	n := yamltext.Deref(t.node)
	if n.Kind != yaml.MappingNode {
		d.refuse(t, "", "", fmt.Sprintf("the document is %s, but must be an object, such as a Pod", typeOf(n)))
		return
	}
	kind, version := text(n, "kind"), text(n, "apiVersion")
	items, isList := strings.CutSuffix(kind, kindList)
	switch {
	case kind == kindList && version == apiVersion:
		d.list(t, "")
	case isList && version != "" && version == versionOf(items):
		d.list(t, items)
	default:
		d.item(t, "")
	}
}

func (d *decoder) refuse(t *tree, kind objects.Kind, path, message string) {
	line := t.lineOf(path)
	d.add(Document{
		Line: t.line(t.node), Kind: kind, Name: nameOf(kind, t.node), root: t,
		Errors: []Error{{Line: line, Path: path, Message: shorten(message, maxMessage)}},
	})
}

// item reads one object. defaultKind is the kind of one that doesn't name its own,
// as the items of a PodList needn't.
func (d *decoder) item(t *tree, defaultKind string) {
	n := yamltext.Deref(t.node)
	kind := text(n, "kind")
	if kind == "" && text(n, "apiVersion") == "" {
		kind = defaultKind
	}
	if problem, path := wrongKind(n, kind); problem != "" {
		d.refuse(t, objectKind(kind), path, problem)
		return
	}
	object := objectKind(kind)
	c := checker{tree: t, aliasCost: &d.aliasCost, secret: object == objects.Secret}
	c.check(schemas()[kind])
	doc := Document{Line: t.line(t.node), Kind: object, Name: nameOf(object, t.node), Errors: c.errors, root: t}
	switch {
	case c.fatal:
	case object == "":
		pod := &v1.Pod{}
		if doc.read(c.out.Bytes(), kind, pod) {
			pod.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: kindPod}
			doc.Pod = pod
		}
	default:
		if o := object.New(); doc.read(c.out.Bytes(), kind, o) {
			o.GetObjectKind().SetGroupVersionKind(object.GroupVersionKind())
			doc.Object = o
		}
	}
	d.add(doc)
}

// read reads an object, and reports whether that worked; else it notes why.
func (d *Document) read(data []byte, kind string, into objects.Object) bool {
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		why := ": " + err.Error()
		if d.Kind == objects.Secret {
			why = "" // it may quote a value
		}
		d.Errors = append(d.Errors, Error{Line: d.Line, Message: "it can't be read as a " + kind + why})
		return false
	}
	for _, e := range strict {
		d.Errors = append(d.Errors, Error{Line: d.Line, Message: e.Error()})
	}
	return true
}

// wrongKind says why a node isn't what a manifest may hold, and at which field; "" if it is.
func wrongKind(n *yaml.Node, kind string) (problem, path string) {
	if n.Kind != yaml.MappingNode {
		return fmt.Sprintf("is %s, but must be an object, such as a Pod", typeOf(n)), ""
	}
	version, want := text(n, "apiVersion"), versionOf(kind)
	switch {
	case kind == "":
		return `kind is missing: the manifest of a pod begins with "apiVersion: v1" and "kind: Pod"`, "kind"
	case want == "":
		return fmt.Sprintf("kind %s (apiVersion %s) can't be used: %s", kind, orMissing(version), supported), "kind"
	case version != want && (version != "" || text(n, "kind") != ""):
		return fmt.Sprintf("apiVersion is %s, but must be %s for a %s", orMissing(version), want, kind), "apiVersion"
	}
	return "", ""
}

func orMissing(s string) string {
	if s == "" {
		return "missing"
	}
	return s
}

// list reads the items of a list, and what is wrong with the list itself as a
// document of its own. itemKind is the kind of those that don't name theirs; "" if they must.
func (d *decoder) list(t *tree, itemKind string) {
	c := checker{tree: t, aliasCost: &d.aliasCost}
	items := c.listItems(yamltext.Deref(t.node))
	if len(c.errors) > 0 {
		d.add(Document{Line: t.line(t.node), Errors: c.errors, root: t})
	}
	for _, item := range items {
		d.item(&tree{node: item, offset: t.offset}, itemKind)
	}
}

// listItems checks the fields of a list and returns its items.
func (c *checker) listItems(n *yaml.Node) []*yaml.Node {
	var items []*yaml.Node
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		keyNode, value := n.Content[i], yamltext.Deref(n.Content[i+1])
		key, ok := c.key(keyNode, "")
		if !ok {
			continue
		}
		if before, ok := seen[key]; ok {
			c.note(keyNode, key, "is given twice (first on line %d)", c.tree.line(before))
			continue
		}
		seen[key] = keyNode
		switch {
		case key != "items":
			if _, known := listSchema.fields[key]; !known {
				c.unknown(keyNode, listSchema, "", key)
			}
		case value.Kind == yaml.SequenceNode:
			items = value.Content
		case value.ShortTag() != tagNull:
			c.note(value, key, "is %s, but must be a list", typeOf(value))
		}
	}
	return items
}

// listSchema holds the fields of a list beside its items; their content plays no part.
var listSchema = &schema{kind: reflect.Struct, fields: map[string]*schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "items": nil,
}}
