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

// Version identifies the pod, and its version, that the content of a manifest defines.
type Version struct {
	// Base is the Reader.UID of the content from which the pod was created, with the exception in Replace. For pods
	// from before deckhand used the kubelet's UIDs, Base is the content hash. Base is the pod's UID unless the manifest
	// sets one.
	Base string
	// Generation is the pod's metadata.generation: 1, and one more with each edit that is applied in place.
	Generation int64
	// Seen is when the pod was first seen.
	Seen time.Time
}

// First is the version of a new pod; uid is its Reader.UID.
func First(uid string, seen time.Time) Version {
	return Version{Base: uid, Generation: 1, Seen: seen}
}

// Edit is the version that follows v when an edit is applied in place.
func (v Version) Edit() Version {
	v.Generation++
	return v
}

// configHash is the value of the annotation kubernetes.io/config.hash: the UID, as with the kubelet, or the content
// hash of a pod that was edited in place, so that it differs for every changed text.
func (v Version) configHash(content string) string {
	if v.Generation > 1 {
		return content
	}
	return v.Base
}

// Renew returns p in version v. p is a pod to which Identity.Apply gave the version from; both versions have the same
// text. hash is the content hash of that text. The result shares memory with p, which isn't changed.
func (v Version) Renew(p *v1.Pod, from Version, hash string) *v1.Pod {
	next := *p
	if next.UID == types.UID(from.Base) { // otherwise the manifest sets the UID
		next.UID = types.UID(v.Base)
	}
	next.Generation = v.Generation
	next.Annotations = maps.Clone(p.Annotations)
	next.Annotations[pod.AnnotationConfigSeen] = v.Seen.Format(time.RFC3339Nano)
	next.Annotations[pod.AnnotationConfigHash] = v.configHash(hash)
	return &next
}

// Replace is the first version of another pod that replaces v's pod and has the same name.
//
// Its base differs from v's base even if the new pod has the content from which v's pod was created. That happens when
// an edit that can be applied in place (adding a limit) is reverted by an edit that can't (removing the limit).
func (v Version) Replace(uid string, seen time.Time) Version {
	if uid == v.Base {
		again := sha256.Sum256([]byte("again:" + uid))
		uid = hex.EncodeToString(again[:16])
	}
	return First(uid, seen)
}
