package document

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// Merged is a configuration that comes from several layers, each laid over those
// before. It is for one owner, who may write to Config between the layers too:
// the kubelet fills in defaults after its file and before the drop-ins, so that a
// drop-in with one threshold in evictionHard changes that one of the defaults.
type Merged struct {
	config v1beta1.KubeletConfiguration
	given  origins
}

// NewMerged returns a configuration without any settings.
func NewMerged() *Merged {
	return &Merged{
		config: v1beta1.KubeletConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: kindName},
		},
		given: origins{},
	}
}

// Lay puts what d gives over what is there. Structs are laid over field by field
// and maps key by key; lists and all else are replaced. A null takes back what
// the layers before gave. Slices and maps of d.Config are not shared, but maps in Config
// are written to. A nil d gives nothing.
func (m *Merged) Lay(kind Kind, name string, d *Document) {
	if d == nil || d.root == nil {
		return
	}
	// Its errors are those that Decode returned.
	over := decoder{given: m.given, from: Origin{Kind: kind, Name: name}}
	over.lay(d.root, &m.config)
}

// Mark records that the setting at path comes from o: a flag was written to
// Config. Of a path with others below it, all of them count as coming from o.
func (m *Merged) Mark(path string, o Origin) {
	m.given.forget(path)
	m.given.setAbove(above(path), o)
	m.given.set(path, o, true)
}

// Config returns the configuration itself, for its owner to write flags and
// defaults into.
func (m *Merged) Config() *v1beta1.KubeletConfiguration { return &m.config }

// Origin returns where the setting at path comes from, such as
// "authentication.webhook.enabled", "evictionHard[memory.available]" or
// "clusterDNS"; for an element of a list ("clusterDNS[1]") that is where the
// list does, with the line of the element. For a struct or map it is the last
// layer that gave something in it. What no layer gave is a Default.
func (m *Merged) Origin(path string) Origin { return m.given.origin(path) }

// Nearest is like Origin, but for what no layer gave it returns the origin of what is
// next above it: where to look when something is missing there.
func (m *Merged) Nearest(path string) Origin {
	at, _ := m.given.nearest(path)
	return at.Origin
}

// Given reports whether a layer gave the setting at path, or something below it.
func (m *Merged) Given(path string) bool { return m.given.origin(path) != Origin{} }
