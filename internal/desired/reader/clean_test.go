package reader_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// What `kubectl get -o yaml` says beyond what a person wrote counts for nothing.
func TestCleanObject(t *testing.T) {
	plain := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"k": {}}}
	got := &v1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "default", UID: "u", ResourceVersion: "5", Generation: 2, CreationTimestamp: metav1.Now(),
			OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Data: map[string][]byte{"k": nil},
	}
	got.SetSelfLink("/x")
	service := &v1.Service{Status: v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "1.2.3.4"}}}}}
	claim := &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: "disk"}, Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound}}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "kata"}}
	var texts []string
	for _, o := range []object.Object{plain, got, service, class, claim, volume} {
		reader.CleanObject(o)
		text, err := reader.Canonical(o)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	want := `{"data":{"k":""},"metadata":{"name":"a","namespace":"default"}}`
	if texts[0] != want || texts[1] != want {
		t.Errorf("cleaned they are\n%s\n%s\nwant\n%s", texts[0], texts[1], want)
	}
	if strings.Contains(texts[2], "1.2.3.4") || len(service.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("a service keeps its status: %s", texts[2])
	}
	if class.Namespace != "" || volume.Namespace != "" {
		t.Errorf("a RuntimeClass is in namespace %q, a PersistentVolume in %q", class.Namespace, volume.Namespace)
	}
	if want := `{"metadata":{"namespace":"default"},"spec":{"volumeName":"disk"}}`; texts[4] != want || claim.Status.Phase != "" {
		t.Errorf("a claim is %s, want %s; phase %q", texts[4], want, claim.Status.Phase)
	}
	if want := `{"metadata":{"name":"disk"},"spec":{}}`; texts[5] != want || volume.Status.Phase != "" {
		t.Errorf("a volume is %s, want %s; phase %q", texts[5], want, volume.Status.Phase)
	}
}

func TestObjectIdentity(t *testing.T) {
	seen := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	apply := func(kind object.Kind, namespace, name string, id reader.ObjectIdentity) object.Object {
		o := kind.New()
		o.SetNamespace(namespace)
		o.SetName(name)
		id.Apply(o)
		return o
	}
	id := reader.ObjectIdentity{Node: "n1", Hash: "abc", Seen: seen}
	first := apply(object.ConfigMap, "a", "b", id)
	if !first.GetCreationTimestamp().Time.Equal(seen.Truncate(time.Second)) || first.GetName() != "b" || first.GetObjectKind().GroupVersionKind().Kind != "ConfigMap" {
		t.Errorf("got %+v", first)
	}
	edited := apply(object.ConfigMap, "a", "b", reader.ObjectIdentity{Node: "N1", Hash: "abd", Seen: seen})
	if edited.GetUID() != first.GetUID() || edited.GetResourceVersion() == first.GetResourceVersion() {
		t.Errorf("edited: UID %s after %s, version %s after %s", edited.GetUID(), first.GetUID(), edited.GetResourceVersion(), first.GetResourceVersion())
	}
	uids := map[types.UID]string{first.GetUID(): "the first"}
	for what, o := range map[string]object.Object{
		"another kind":      apply(object.Secret, "a", "b", id),
		"another namespace": apply(object.ConfigMap, "b", "b", id),
		"another name":      apply(object.ConfigMap, "a", "c", id),
		"another node":      apply(object.ConfigMap, "a", "b", reader.ObjectIdentity{Node: "n2", Hash: "abc", Seen: seen}),
		"another time":      apply(object.ConfigMap, "a", "b", reader.ObjectIdentity{Node: "n1", Hash: "abc", Seen: seen.Add(1)}),
	} {
		if same, taken := uids[o.GetUID()]; taken {
			t.Errorf("%s has the UID of %s", what, same)
		}
		uids[o.GetUID()] = what
	}
}
