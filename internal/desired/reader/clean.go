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

// CleanObject removes from an object as its author wrote it what only an API server
// may say, its UID too, and sets the namespace if its kind has one and none is given. It
// changes o.
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

// giveEmpty makes values that say nothing (null) empty ones, as which they count: in the
// canonical form there are no nulls.
func giveEmpty(data map[string][]byte) {
	for key, value := range data {
		if value == nil {
			data[key] = []byte{}
		}
	}
}

// ObjectIdentity is what an object from a manifest has beside what its author wrote.
type ObjectIdentity struct {
	// Node is the node's name.
	Node string
	// Hash is the content hash.
	Hash string
	// Seen is when the object was first seen; what was removed and came back is another
	// object.
	Seen time.Time
}

// Apply makes o, a cleaned object of one of object.Kinds, an object of the node. It changes o.
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

// resourceVersion is a number, as an API server's is, that is another for other content.
// It doesn't count up: only that it differs says something.
func resourceVersion(hash string) string {
	sum := sha256.Sum256([]byte(hash))
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:8])&math.MaxInt64, 10)
}
