package reader

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Version says which version of which pod the content of a manifest is.
type Version struct {
	// Base is Reader.UID of the version that the pod was created from (see Replace for the one
	// exception; of pods from before deckhand made the kubelet's UIDs it is the content hash). Where the manifest
	// gives no UID, it is the UID.
	Base string
	// Generation is the pod's metadata.generation: 1, and one more with each edit that is
	// applied in place.
	Generation int64
	// Seen is when the pod was first seen.
	Seen time.Time
}

// First is the version of a pod that is new, with what Reader.UID gave for it.
func First(uid string, seen time.Time) Version {
	return Version{Base: uid, Generation: 1, Seen: seen}
}

// Edit is the version after v that is applied in place.
func (v Version) Edit() Version {
	v.Generation++
	return v
}

// configHash is what the annotation of that name says: what the kubelet says there, the UID, and of a pod
// that was edited in place since the content hash, so that it differs for every changed text.
func (v Version) configHash(content string) string {
	if v.Generation > 1 {
		return content
	}
	return v.Base
}

// Renew returns p, a pod that Identity.Apply was given with version from, as that of version v of the same
// text, which has this content hash. It shares memory with p, which isn't changed.
func (v Version) Renew(p *v1.Pod, from Version, hash string) *v1.Pod {
	next := *p
	if next.UID == types.UID(from.Base) { // else the manifest gives it
		next.UID = types.UID(v.Base)
	}
	next.Generation = v.Generation
	next.Annotations = maps.Clone(p.Annotations)
	next.Annotations[pod.AnnotationConfigSeen] = v.Seen.Format(time.RFC3339Nano)
	next.Annotations[pod.AnnotationConfigHash] = v.configHash(hash)
	return &next
}

// Replace is the first version of another pod of the same name as v's, which
// takes its place.
//
// Its base differs from that of v even if it has the content that v's pod was
// created from, as when an edit that can be applied in place (giving a limit) is taken back by one
// that can't (taking it away).
func (v Version) Replace(uid string, seen time.Time) Version {
	if uid == v.Base {
		again := sha256.Sum256([]byte("again:" + uid))
		uid = hex.EncodeToString(again[:16])
	}
	return First(uid, seen)
}
