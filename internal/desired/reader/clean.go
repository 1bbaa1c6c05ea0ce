package reader

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// CleanObject removes the fields that only an API server may set, including the UID, from an object of a manifest. It
// sets the default namespace if the kind is namespaced and none is given. It changes o.
func CleanObject(o object.Object) {
	cleanMeta(o)
	o.SetUID("")
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if object.KindOf(o).Namespaced() && o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	switch o := o.(type) {
	case *v1.Service:
		o.Status = v1.ServiceStatus{}
	case *v1.PersistentVolume:
		o.Status = v1.PersistentVolumeStatus{}
	case *v1.PersistentVolumeClaim:
		o.Status = v1.PersistentVolumeClaimStatus{}
	case *v1.ConfigMap:
		giveEmpty(o.BinaryData)
	case *v1.Secret:
		giveEmpty(o.Data)
	}
}

// giveEmpty replaces null values by empty ones, which have the same meaning: the canonical form has no nulls.
func giveEmpty(data map[string][]byte) {
	for key, value := range data {
		if value == nil {
			data[key] = []byte{}
		}
	}
}

// ObjectIdentity is the identity that the node adds to an object from a manifest.
type ObjectIdentity struct {
	// Node is the node's name.
	Node string
	// Hash is the content hash.
	Hash string
	// Seen is when the object was first seen. If an object is removed and defined again, it counts as another object.
	Seen time.Time
}

// Apply sets the node's identity on o, a cleaned object of one of object.Kinds. It changes o.
func (id ObjectIdentity) Apply(o object.Object) {
	kind := object.KindOf(o)
	o.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind())
	o.SetUID(id.uid(kind, o))
	o.SetCreationTimestamp(metav1.NewTime(id.Seen.Truncate(time.Second)))
	o.SetResourceVersion(resourceVersion(id.Hash))
}

func (id ObjectIdentity) uid(kind object.Kind, o object.Object) types.UID {
	sum := sha256.Sum256(fmt.Appendf(nil, "node:%s\nobject:%s/%s/%s\nseen:%d\n",
		strings.ToLower(id.Node), kind, o.GetNamespace(), o.GetName(), id.Seen.UnixNano()))
	return types.UID(hex.EncodeToString(sum[:16]))
}

// resourceVersion is a number, as with an API server, that depends on the content. It isn't increasing: only
// differences are meaningful.
func resourceVersion(hash string) string {
	sum := sha256.Sum256([]byte(hash))
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])&math.MaxInt64, 10)
}
