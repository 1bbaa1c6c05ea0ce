package reader

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// Name returns the name of a static pod on a node: "web" on "Node1" is "web-node1". A pod without a name stays
// without one.
func Name(name, node string) string {
	if name == "" {
		return ""
	}
	return name + "-" + strings.ToLower(node)
}

// Clean removes the fields that only an API server may set from a pod of a manifest (manifests from `kubectl get -o
// yaml` have them), and sets the default namespace if none is given. It changes p.
func Clean(p *v1.Pod) {
	p.TypeMeta = metav1.TypeMeta{}
	p.Status = v1.PodStatus{}
	cleanMeta(p)
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
}

// cleanMeta removes the metadata that only an API server may set, except for the UID.
func cleanMeta(o metav1.Object) {
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetSelfLink("") // deprecated, but old manifests set it; it must not affect the hash
	o.SetManagedFields(nil)
	o.SetOwnerReferences(nil)
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
}

// Canonical returns a canonical form of a cleaned pod or object: JSON with sorted keys, without empty fields. Pods with
// the same meaning have the same canonical form. Parsing it returns the pod.
//
// Empty fields that one version of the API types writes and another leaves out (null, "resources": {}) are dropped, so
// that an upgrade of these types doesn't change any hash.
func Canonical(o metav1.Object) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("%s/%s can't be written as JSON: %w", o.GetNamespace(), o.GetName(), err)
	}
	delete(fields, "status")
	prune(fields)
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil, fmt.Errorf("%s/%s can't be written as JSON: %w", o.GetNamespace(), o.GetName(), err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// prune drops nulls and empty resources, at any depth.
func prune(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			object, isObject := inner.(map[string]any)
			if inner == nil || key == "resources" && isObject && len(object) == 0 {
				delete(v, key)
				continue
			}
			prune(inner)
		}
	case []any:
		for _, inner := range v {
			prune(inner)
		}
	}
}

// Hash returns the content hash of a canonical pod or object on a node: 32 hexadecimal digits, like UIDs.
func Hash(canonical []byte, node string) string {
	h := sha256.New()
	fmt.Fprintf(h, "node:%s\n", strings.ToLower(node))
	h.Write(canonical)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Identity is the identity that the node adds to a pod from a manifest.
type Identity struct {
	// Node is the node's name.
	Node   string
	Source pod.Source
	// Hash is the content hash.
	Hash string
	Version
}

// Apply makes p, a cleaned pod of a manifest, a static pod of the node. p may have its defaults. Apply changes p and
// has to be called once. The UID is Base unless the manifest sets one.
func (id Identity) Apply(p *v1.Pod) {
	if p.UID == "" {
		p.UID = types.UID(id.Base)
	}
	p.Generation = id.Generation
	p.Name = Name(p.Name, id.Node)
	p.Spec.NodeName = id.Node
	p.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: p.Status.QOSClass}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.AnnotationConfigSource] = string(id.Source)
	p.Annotations[pod.AnnotationConfigHash] = id.configHash(id.Hash)
	p.Annotations[pod.AnnotationConfigSeen] = id.Seen.Format(time.RFC3339Nano)
	tolerateNoExecute(&p.Spec)
}

// tolerateNoExecute makes a static pod tolerate every NoExecute taint: only its manifest decides whether it runs.
func tolerateNoExecute(spec *v1.PodSpec) {
	want := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	for i := range spec.Tolerations {
		if spec.Tolerations[i].MatchToleration(&want) {
			spec.Tolerations[i].TolerationSeconds = nil
			return
		}
	}
	spec.Tolerations = append(spec.Tolerations, want)
}

// validateDir checks that the file name of the pod's log directory, which contains the pod's name, isn't too long.
// hash stands for a UID that isn't set yet.
func validateDir(p *v1.Pod, hash string) field.ErrorList {
	n := len(layout.PodDirectory(p.Namespace, p.Name, cmp.Or(p.UID, types.UID(hash))))
	if n <= unix.NAME_MAX {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), p.Name, fmt.Sprintf(
		"must be shorter by %d: with the node's name, the namespace and the UID it names the directory of the pod's "+
			"logs, and a file's name has %d at most", n-unix.NAME_MAX, unix.NAME_MAX))}
}

// uid is the syntax of UIDs. They become parts of paths and of cgroup names.
var uid = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9_]{0,126}[a-zA-Z0-9])?$`)

// ValidateUID checks a UID that the manifest sets. The API server generates UIDs itself, so its validation has no
// rule for them.
func ValidateUID(p *v1.Pod) field.ErrorList {
	if p.UID == "" || uid.MatchString(string(p.UID)) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), p.UID,
		"must be at most 128 letters, digits, '-' and '_', with a letter or digit first and last; leave it out to "+
			"have one made")}
}
