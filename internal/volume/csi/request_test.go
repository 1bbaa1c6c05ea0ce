package csi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protojson"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

const driverName = "csi.deckhand.test"

// view is what a pod sees: objects of manifests, and tokens whose text is their audience.
type view struct {
	object.View
	noTokens bool
}

var issuedAt = time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)

func (v view) Token(_ context.Context, r object.TokenRequest) (object.Token, error) {
	if v.noTokens {
		return object.Token{}, object.ErrNoTokens
	}
	return object.NewToken("token for "+r.Audience, issuedAt, issuedAt.Add(max(r.Life, time.Hour))), nil
}

// seeing returns a view of these objects.
func seeing(objects ...object.Object) view {
	var list []*object.Desired
	for _, o := range objects {
		list = append(list, object.NewDesired(o, pod.SourceFile, "test.yaml"))
	}
	set := object.NewSet(list, true)
	return view{View: object.NewLocal(func() *object.Set { return set })}
}

// described returns a CSIDriver object for inline volumes, as changed.
func described(change ...func(*storagev1.CSIDriverSpec)) *storagev1.CSIDriver {
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName, ResourceVersion: "1"},
		Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{
			storagev1.VolumeLifecycleEphemeral}}}
	for _, c := range change {
		c(&d.Spec)
	}
	return d
}

// inline returns a pod with the inline volume "data", as changed.
func inline(change ...func(*v1.Pod, *v1.CSIVolumeSource)) *v1.Pod {
	source := &v1.CSIVolumeSource{Driver: driverName, VolumeAttributes: map[string]string{"size": "1Mi"}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1"},
		Spec: v1.PodSpec{NodeName: "node1", ServiceAccountName: "clerk",
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{CSI: source}}}}}
	for _, c := range change {
		c(p, source)
	}
	return p
}

// asking returns the request to mount the pod's volume below this directory.
func asking(p *v1.Pod, root string, from object.View) volume.Request {
	return volume.Request{Pod: p, Objects: from, Spec: volume.Spec{Volume: &p.Spec.Volumes[0]},
		Place: volume.Place{UID: p.UID,
			Dir: filepath.Join(root, "pods", string(p.UID), "volumes/kubernetes.io~csi", p.Spec.Volumes[0].Name)}}
}

func podInfoOn(s *storagev1.CSIDriverSpec) { s.PodInfoOnMount = ptr.To(true) }

func tokens(audiences ...string) func(*storagev1.CSIDriverSpec) {
	return func(s *storagev1.CSIDriverSpec) {
		for _, a := range audiences {
			s.TokenRequests = append(s.TokenRequests, storagev1.TokenRequest{Audience: a,
				ExpirationSeconds: ptr.To[int64](7200)})
		}
	}
}

// What the driver gets is what the kubelet of 1.36 sends.
func TestRequest(t *testing.T) {
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: "shop"},
		Data: map[string][]byte{"user": []byte("me")}}
	withSecret := func(_ *v1.Pod, s *v1.CSIVolumeSource) {
		s.NodePublishSecretRef = &v1.LocalObjectReference{Name: "key"}
	}
	const info = `"csi.storage.k8s.io/ephemeral":"true","csi.storage.k8s.io/pod.name":"web",` +
		`"csi.storage.k8s.io/pod.namespace":"shop","csi.storage.k8s.io/pod.uid":"u-1",` +
		`"csi.storage.k8s.io/serviceAccount.name":"clerk"`
	const one = `{\"\":{\"token\":\"token for \",\"expirationTimestamp\":\"2026-01-02T05:04:05Z\"}}`
	const two = `{\"a\":{\"token\":\"token for a\",\"expirationTimestamp\":\"2026-01-02T05:04:05Z\"},` +
		`\"b\":{\"token\":\"token for b\",\"expirationTimestamp\":\"2026-01-02T05:04:05Z\"}}`
	for name, c := range map[string]struct {
		driver *storagev1.CSIDriver
		pod    *v1.Pod
		by     registration
		want   string // without volume_id and target_path
	}{
		"least": {described(), inline(), registration{},
			`{"volumeCapability":{"mount":{},"accessMode":{"mode":"SINGLE_NODE_WRITER"}},"volumeContext":{"size":"1Mi"}}`},
		"a driver of both modes that distinguishes writers": {
			described(func(s *storagev1.CSIDriverSpec) {
				s.VolumeLifecycleModes = append(s.VolumeLifecycleModes, storagev1.VolumeLifecyclePersistent)
			}), inline(), registration{multiWriter: true},
			`{"volumeCapability":{"mount":{},"accessMode":{"mode":"SINGLE_NODE_MULTI_WRITER"}},"volumeContext":{"size":"1Mi"}}`},
		"pod information": {described(podInfoOn), inline(), registration{},
			`{"volumeCapability":{"mount":{},"accessMode":{"mode":"SINGLE_NODE_WRITER"}},"volumeContext":{` + info +
				`,"size":"1Mi"}}`},
		"a token of the default audience": {described(tokens("")), inline(), registration{},
			`{"volumeCapability":{"mount":{},"accessMode":{"mode":"SINGLE_NODE_WRITER"}},"volumeContext":{` +
				`"csi.storage.k8s.io/serviceAccount.tokens":"` + one + `","size":"1Mi"}}`},
		"tokens of two audiences among the secrets": {
			described(tokens("a", "b"), func(s *storagev1.CSIDriverSpec) { s.ServiceAccountTokenInSecrets = ptr.To(true) }),
			inline(), registration{},
			`{"volumeCapability":{"mount":{},"accessMode":{"mode":"SINGLE_NODE_WRITER"}},"secrets":{` +
				`"csi.storage.k8s.io/serviceAccount.tokens":"` + two + `"},"volumeContext":{"size":"1Mi"}}`},
		"a secret": {described(), inline(withSecret), registration{},
			`{"volumeCapability":{"mount":{},"accessMode":{"mode":"SINGLE_NODE_WRITER"}},"secrets":{"user":"me"},` +
				`"volumeContext":{"size":"1Mi"}}`},
		"read-only with a file system, and a driver that applies the fsGroup": {described(),
			inline(func(p *v1.Pod, s *v1.CSIVolumeSource) {
				s.ReadOnly, s.FSType = ptr.To(true), ptr.To("ext4")
				p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](1234)}
			}), registration{mountsGroup: true},
			`{"readonly":true,"volumeCapability":{"mount":{"fsType":"ext4","volumeMountGroup":"1234"},` +
				`"accessMode":{"mode":"SINGLE_NODE_WRITER"}},"volumeContext":{"size":"1Mi"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := asking(c.pod, "/root", seeing(c.driver, secret))
			g, err := Plugin{}.gather(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if want := "csi-7a075fb358279980b660d575168af6c25ee140b5f3a73a8a16e21f8e4f1e9ad8"; g.handle != want {
				t.Errorf("handle %s", g.handle) // sha256("u-1" + "data")
			}
			q := &spec.NodePublishVolumeRequest{Readonly: g.readOnly, VolumeContext: g.context, Secrets: g.secrets,
				VolumeCapability: g.capability(r.Pod, &c.by)}
			if got := compact(t, q); got != compactText(t, c.want) {
				t.Errorf("request\n%s\nwant\n%s", got, compactText(t, c.want))
			}
		})
	}
}

func compact(t *testing.T, q *spec.NodePublishVolumeRequest) string {
	t.Helper()
	text, err := protojson.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	return compactText(t, string(text))
}

// compactText is JSON with sorted keys and no spaces.
func compactText(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(sorted)
}

// A volume that can't be published yet waits for the object that has to change.
func TestGatherAwaits(t *testing.T) {
	withSecret := func(_ *v1.Pod, s *v1.CSIVolumeSource) {
		s.NodePublishSecretRef = &v1.LocalObjectReference{Name: "key"}
	}
	persistent := described(func(s *storagev1.CSIDriverSpec) {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	})
	tokenless := seeing(described(tokens("")))
	tokenless.noTokens = true
	for name, c := range map[string]struct {
		pod    *v1.Pod
		from   view
		object string
		text   string
	}{
		"no CSIDriver object": {inline(), seeing(), "CSIDriver " + driverName,
			`volume mode "Ephemeral" not supported by driver csi.deckhand.test (no CSIDriver object)`},
		"no inline volumes": {inline(), seeing(persistent), "CSIDriver " + driverName,
			`volume mode "Ephemeral" not supported by driver csi.deckhand.test: its CSIDriver object doesn't list`},
		"no Secret": {inline(withSecret), seeing(described()), "Secret shop/key", "nodePublishSecretRef"},
		"no tokens": {inline(), tokenless, "TokenRequest shop/web", "only an API server issues tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plugin{}.gather(t.Context(), asking(c.pod, "/root", c.from))
			var awaits *volume.AwaitsError
			if !errors.As(err, &awaits) || awaits.Object.String() != c.object || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, awaits %+v", err, awaits)
			}
		})
	}
}

// The table of the API's comment on CSIDriverSpec.fsGroupPolicy.
func TestOwnership(t *testing.T) {
	policies := map[storagev1.FSGroupPolicy][4]bool{ // without and with fsType; then the same, read-only
		"":                          {false, true, false, false},
		storagev1.NoneFSGroupPolicy: {},
		storagev1.FileFSGroupPolicy: {true, true, false, false},
		storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy: {false, true, false, false},
	}
	for _, policy := range slices.Sorted(maps.Keys(policies)) {
		for i, want := range policies[policy] {
			s := source{lifecycle: storagev1.VolumeLifecycleEphemeral, fsType: []string{"", "ext4"}[i%2], readOnly: i > 1}
			if got := s.ownership(policy); got != want {
				t.Errorf("inline, policy %q, fsType %q, readOnly %v: %v", policy, s.fsType, s.readOnly, got)
			}
			s.lifecycle, s.access = storagev1.VolumeLifecyclePersistent, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
			if got := s.ownership(policy); got != want {
				t.Errorf("ReadWriteOnce, policy %q, fsType %q, readOnly %v: %v", policy, s.fsType, s.readOnly, got)
			}
			s.access = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
			if got := s.ownership(policy); got != (policy == storagev1.FileFSGroupPolicy && i < 2) {
				t.Errorf("ReadWriteMany, policy %q, fsType %q, readOnly %v: %v", policy, s.fsType, s.readOnly, got)
			}
		}
	}
}
