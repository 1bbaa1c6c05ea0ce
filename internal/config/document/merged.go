package document

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// Merged is a configuration that was merged from several layers in order. It has one owner, which may also write to
// Config between the layers. For example, as in the kubelet, defaults are set after the file and before the drop-ins,
// so that a drop-in with one threshold in evictionHard changes only that threshold of the defaults.
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

// Lay merges d into the configuration: structs field by field and maps key by key; lists and other values are
// replaced. A null removes the value of earlier layers. Slices and maps of d.Config aren't shared, but maps in Config
// are modified. A nil d changes nothing.
func (m *Merged) Lay(kind Kind, name string, d *Document) {
	if d == nil || d.root == nil {
		return
	}
	// Errors are ignored here: Decode has returned them already.
	over := decoder{given: m.given, from: Origin{Kind: kind, Name: name}}
	over.lay(d.root, &m.config)
}

// Mark records o as the origin of the setting at path, after a flag was written to Config. If path has settings below
// it, o is the origin of all of them.
func (m *Merged) Mark(path string, o Origin) {
	m.given.forget(path)
	m.given.setAbove(above(path), o)
	m.given.set(path, o, true)
}

// Config returns the configuration itself, so that its owner can write flags and defaults to it.
func (m *Merged) Config() *v1beta1.KubeletConfiguration { return &m.config }

// Origin returns the origin of the setting at path, such as "authentication.webhook.enabled",
// "evictionHard[memory.available]" or "clusterDNS". The origin of a list's element ("clusterDNS[1]") is the origin of
// the list, with the line of the element. The origin of a struct or map is the last layer that set something in it.
// The origin is Default if no layer set the path.
func (m *Merged) Origin(path string) Origin { return m.given.origin(path) }

// Nearest is like Origin, but if no layer set the path it returns the origin of the nearest parent: the place where a
// missing setting can be added.
func (m *Merged) Nearest(path string) Origin {
	at, _ := m.given.nearest(path)
	return at.Origin
}

// Given reports whether a layer set the setting at path, or a setting below it.
func (m *Merged) Given(path string) bool { return m.given.origin(path) != Origin{} }
