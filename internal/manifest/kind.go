package manifest

import (
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/deckhand-node/deckhand/internal/yamltext"
)

const (
	apiVersion  = "v1"
	kindPod     = "Pod"
	kindList    = "List"
	kindPodList = "PodList"
)

// root reads one parsed document: a Pod, or a list of them.
func (d *decoder) root(t *tree) {
	d.aliasCost = 0
	n := yamltext.Deref(t.node)
	kind := text(n, "kind")
	if n.Kind != yaml.MappingNode {
		d.refuse(t, "", fmt.Sprintf("the document is %s, but must be an object of kind Pod", describe(n)))
		return
	}
	if text(n, "apiVersion") == apiVersion && (kind == kindList || kind == kindPodList) {
		d.list(t, kind)
		return
	}
	d.pod(t, "")
}

func (d *decoder) refuse(t *tree, path, message string) {
	line := t.lineOf(path)
	d.add(Document{
		Line: t.line(t.node), Name: nameOf(t.node), root: t,
		Errors: []Error{{Line: line, Path: path, Message: shorten(message, maxMessage)}},
	})
}

// pod reads one pod. defaultKind is the kind of one that doesn't name its own,
// as the items of a PodList needn't.
func (d *decoder) pod(t *tree, defaultKind string) {
	if problem, path := wrongKind(t.node, defaultKind); problem != "" {
		d.refuse(t, path, problem)
		return
	}
	c := checker{tree: t, aliasCost: &d.aliasCost}
	c.check(podSchema())
	doc := Document{Line: t.line(t.node), Name: nameOf(t.node), Errors: c.errors, root: t}
	if !c.fatal {
		doc.Pod = decodePod(c.out.Bytes(), &doc)
	}
	d.add(doc)
}

func decodePod(data []byte, doc *Document) *v1.Pod {
	pod := &v1.Pod{}
	strict, err := kjson.UnmarshalStrict(data, pod)
	if err != nil {
		doc.Errors = append(doc.Errors, Error{Line: doc.Line, Message: "it can't be read as a Pod: " + err.Error()})
		return nil
	}
	for _, e := range strict {
		doc.Errors = append(doc.Errors, Error{Line: doc.Line, Message: e.Error()})
	}
	pod.APIVersion, pod.Kind = apiVersion, kindPod
	return pod
}

// wrongKind says why a node isn't a v1 Pod, and at which field; "" if it is one.
func wrongKind(n *yaml.Node, defaultKind string) (problem, path string) {
	n = yamltext.Deref(n)
	if n.Kind != yaml.MappingNode {
		return fmt.Sprintf("is %s, but must be an object of kind Pod", describe(n)), ""
	}
	kind, version := text(n, "kind"), text(n, "apiVersion")
	if kind == "" && version == "" && defaultKind != "" {
		return "", ""
	}
	switch {
	case kind == "":
		return `kind is missing: a manifest begins with "apiVersion: v1" and "kind: Pod"`, "kind"
	case kind != kindPod:
		return fmt.Sprintf("kind %s (apiVersion %s) can't be run: this build runs Pods only", kind, orMissing(version)), "kind"
	case version != apiVersion:
		return fmt.Sprintf("apiVersion is %s, but must be v1 for a Pod", orMissing(version)), "apiVersion"
	}
	return "", ""
}

func orMissing(s string) string {
	if s == "" {
		return "missing"
	}
	return s
}

// list reads the items of a List or PodList, and what is wrong with the list
// itself as a document of its own.
func (d *decoder) list(t *tree, kind string) {
	c := checker{tree: t, aliasCost: &d.aliasCost}
	items := c.listItems(yamltext.Deref(t.node))
	if len(c.errors) > 0 {
		d.add(Document{Line: t.line(t.node), Errors: c.errors, root: t})
	}
	itemKind := ""
	if kind == kindPodList {
		itemKind = kindPod
	}
	for _, item := range items {
		d.pod(&tree{node: item, offset: t.offset}, itemKind)
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
			c.note(value, key, "is %s, but must be a list", describe(value))
		}
	}
	return items
}

// listSchema holds the fields of a list beside its items; their content plays no part.
var listSchema = &schema{kind: reflect.Struct, fields: map[string]*schema{
	"apiVersion": nil, "kind": nil, "metadata": nil, "items": nil,
}}
