package volume

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Spec is the source of a volume: the volume in the pod's spec and, if that is a claim, the claim and its
// PersistentVolume. The objects that it points to are read-only.
type Spec struct {
	// Volume is the volume in the pod's spec.
	Volume *v1.Volume
	// Claim and Persistent are set together, for persistentVolumeClaim and ephemeral volumes.
	Claim      *v1.PersistentVolumeClaim
	Persistent *v1.PersistentVolume
	// Migrated says that Persistent was made by Migrate: it isn't an object of the API. Without a Claim it replaces
	// Volume.
	Migrated bool
}

// Name is the name of the volume's directory: the PersistentVolume's name, or else the name of the pod's volume. In
// names that Migrate has made, "/" is "~", as it is for the kubelet.
func (s Spec) Name() string {
	switch {
	case s.Persistent == nil:
		return s.Volume.Name
	case s.Migrated:
		return strings.ReplaceAll(s.Persistent.Name, "/", "~")
	}
	return s.Persistent.Name
}

// Kind is the type of the volume, as the name of its field in manifests, such as "emptyDir". For a bound claim it is
// the type of the PersistentVolume, such as "local". It is empty if the spec has no source.
func (s Spec) Kind() string {
	if s.Persistent != nil {
		return kindOf(reflect.ValueOf(s.Persistent.Spec.PersistentVolumeSource))
	}
	return kindOf(reflect.ValueOf(s.Volume.VolumeSource))
}

func kindOf(source reflect.Value) string {
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// ReadOnly reports whether the volume is read-only for all containers: the pod mounts its claim read-only, or the
// PersistentVolume only has the access mode ReadOnlyMany (API: PersistentVolumeClaimVolumeSource.readOnly,
// accessModes).
func (s Spec) ReadOnly() bool {
	if c := s.Volume.PersistentVolumeClaim; c != nil && c.ReadOnly {
		return true
	}
	return s.Persistent != nil && len(s.Persistent.Spec.AccessModes) > 0 &&
		!slices.ContainsFunc(s.Persistent.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool {
			return m != v1.ReadOnlyMany
		})
}

// Block reports whether the volume is a device and not a file system.
func (s Spec) Block() bool {
	return s.Persistent != nil && s.Persistent.Spec.VolumeMode != nil &&
		*s.Persistent.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// TokenRequest returns the request for a token of the pod's service account for this audience, or for the API server if
// audience is empty. seconds is the requested lifetime; nil means the issuer's default.
func TokenRequest(p *v1.Pod, audience string, seconds *int64) object.TokenRequest {
	r := object.TokenRequest{Namespace: p.Namespace, ServiceAccount: p.Spec.ServiceAccountName, Pod: p.Name, UID: p.UID,
		Audience: audience}
	if seconds != nil {
		r.Life = pod.Seconds(*seconds)
	}
	return r
}

// FSGroup is the pod's fsGroup, if it is set (API: PodSecurityContext.fsGroup).
func FSGroup(p *v1.Pod) (gid int, ok bool) {
	if sc := p.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup), true
	}
	return 0, false
}
