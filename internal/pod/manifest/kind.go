package manifest

import (
	"cmp"
	"fmt"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
	podobject "github.com/deckhand-node/deckhand/internal/pod/object"
)

const (
	apiVersion = "v1"
	kindPod    = "Pod"
	kindList   = "List"
)

// supported lists, for messages, the kinds of objects that a manifest may hold.
const supported = "a manifest may hold Pod, ConfigMap, Secret, Service, ServiceAccount, " +
	"PersistentVolume and PersistentVolumeClaim (v1), RuntimeClass (node.k8s.io/v1), and CSIDriver (storage.k8s.io/v1)"

// objectKind returns the kind with this name if it is a kind of objects, other than pods, that manifests may define;
// else "".
func objectKind(kind string) podobject.Kind {
	if k := podobject.Kind(kind); k.Known() {
		return k
	}
	return ""
}

// versionOf returns the apiVersion of a kind; "" for a kind that manifests may not hold.
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
func (d *decoder) root(n *yaml.Node) {
	d.aliasBudget = yaml.MaxAliasCost
	if n.Kind != goyaml.MappingNode {
		d.refuse(n, "", "", fmt.Sprintf("the document is %s, but must be an object, such as a Pod", yaml.TypeOf(n)))
		return
	}
	kind, version := yaml.Text(n, "kind"), yaml.Text(n, "apiVersion")
	items, isList := strings.CutSuffix(kind, kindList)
	switch {
	case kind == kindList && version == apiVersion:
		d.list(n, "")
	case isList && version != "" && version == versionOf(items):
		d.list(n, items)
	default:
		d.item(n, "")
	}
}

func (d *decoder) refuse(n *yaml.Node, kind podobject.Kind, path, message string) {
	d.add(Document{
		Line: n.Line, Kind: kind, Name: nameOf(kind, n), root: n,
		Errors: []Error{{Line: lineOf(n, path), Path: path, Message: yaml.Shorten(message, maxMessage)}},
	})
}

// item reads one object. defaultKind is the object's kind if the object has no field kind, which the items of a PodList
// may omit.
func (d *decoder) item(item *yaml.Node, defaultKind string) {
	n := yaml.Deref(item)
	kind := yaml.Text(n, "kind")
	if kind == "" && yaml.Text(n, "apiVersion") == "" {
		kind = defaultKind
	}
	if problem, path := wrongKind(n, kind); problem != "" {
		d.refuse(n, objectKind(kind), path, problem)
		return
	}
	object := objectKind(kind)
	var into podobject.Object
	if object == "" {
		into = &v1.Pod{}
	} else {
		into = object.New()
	}
	r := rules{secret: object == podobject.Secret}
	readable := d.read(item, &r, into) // an alias has its cost
	doc := Document{Line: n.Line, Kind: object, Name: nameOf(object, n), Errors: r.errors, root: n}
	if p, isPod := into.(*v1.Pod); isPod && readable {
		p.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: kindPod}
		doc.Pod = p
	} else if readable {
		into.GetObjectKind().SetGroupVersionKind(object.GroupVersionKind())
		doc.Object = into
	}
	d.add(doc)
}

// read reads a document into the argument into, and reports whether that succeeded. Unknown and repeated fields are
// left out; they are added to the errors of r, but don't make read fail.
func (d *decoder) read(n *yaml.Node, r *rules, into any) bool {
	y := yaml.Decoder{Rules: r, Merge: true, AliasBudget: d.aliasBudget}
	y.Decode(n, into)
	d.aliasBudget = y.AliasBudget
	return !y.Failed
}

// wrongKind returns the reason why a manifest may not hold this object, and the path of the field that is wrong. The
// reason is "" if the kind and the apiVersion are right.
func wrongKind(n *yaml.Node, kind string) (problem, path string) {
	if n.Kind != goyaml.MappingNode {
		return fmt.Sprintf("is %s, but must be an object, such as a Pod", yaml.TypeOf(n)), ""
	}
	version, want := yaml.Text(n, "apiVersion"), versionOf(kind)
	named := cmp.Or(version, "missing")
	switch {
	case kind == "":
		return `kind is missing: the manifest of a pod begins with "apiVersion: v1" and "kind: Pod"`, "kind"
	case want == "":
		return fmt.Sprintf("kind %s (apiVersion %s) can't be used: %s", kind, named, supported), "kind"
	case version != want && (version != "" || yaml.Text(n, "kind") != ""):
		return fmt.Sprintf("apiVersion is %s, but must be %s for a %s", named, want, kind), "apiVersion"
	}
	return "", ""
}

// listFields are the fields of a list. Only the items are used.
type listFields struct {
	APIVersion yaml.Node `json:"apiVersion"`
	Kind       yaml.Node `json:"kind"`
	Metadata   yaml.Node `json:"metadata"`
	Items      yaml.Node `json:"items"`
}

// list reads the items of a list, and adds errors of the list itself as a separate document. itemKind is the kind of
// items without a field kind; "" if each item needs the field.
func (d *decoder) list(n *yaml.Node, itemKind string) {
	var l listFields
	var r rules
	d.read(n, &r, &l)
	items := l.Items
	if items.Kind != 0 && items.Kind != goyaml.SequenceNode {
		r.Fail(&items, "items", fmt.Sprintf("is %s, but must be a list", yaml.TypeOf(&items)))
	}
	if len(r.errors) > 0 {
		d.add(Document{Line: n.Line, Errors: r.errors, root: n})
	}
	for _, item := range items.Content {
		d.item(item, itemKind)
	}
}
