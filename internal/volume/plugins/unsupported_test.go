package plugins

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/csi"
	"github.com/deckhand-node/deckhand/internal/volume/objectfiles"
)

// others are the plugins that this build has. They are only asked what they support.
func others() []volume.Plugin {
	return []volume.Plugin{
		objectfiles.NewConfigMap(), objectfiles.NewDownwardAPI(nil), NewEmptyDir(Config{}), HostPath{}, NewImageVolume(nil),
		LocalVolume{}, objectfiles.NewProjected(nil), objectfiles.NewSecret(), csi.Plugin{},
	}
}

// everyKind is one volume of each kind that the API has, of pods and of PersistentVolumes.
func everyKind() []volume.Spec {
	var specs []volume.Spec
	for i := range reflect.TypeFor[v1.VolumeSource]().NumField() {
		v := &v1.Volume{Name: "data"}
		set(&v.VolumeSource, i)
		specs = append(specs, migrated(volume.Spec{Volume: v}))
	}
	for i := range reflect.TypeFor[v1.PersistentVolumeSource]().NumField() {
		pv := &v1.PersistentVolume{}
		pv.Name = "pv-1"
		set(&pv.Spec.PersistentVolumeSource, i)
		pv.Spec.ClaimRef = &v1.ObjectReference{Namespace: "shop", Name: "claim"}
		specs = append(specs, migrated(volume.Spec{Volume: &v1.Volume{Name: "data"}, Persistent: pv}))
	}
	return specs
}

// migrated is the volume as the manager gives it to plugins.
func migrated(s volume.Spec) volume.Spec {
	if next, err := s.Migrate("shop"); err == nil {
		return next
	}
	return s
}

func set(source any, field int) {
	f := reflect.ValueOf(source).Elem().Field(field)
	f.Set(reflect.New(f.Type().Elem()))
}

func refusal(t *testing.T, s volume.Spec) string {
	t.Helper()
	if !(Unsupported{}).Supports(s) {
		t.Fatalf("it doesn't stand for %s", s.Kind())
	}
	_, err := (Unsupported{}).Mount(t.Context(), volume.Request{Spec: s})
	if !errors.Is(err, volume.ErrUnsupported) {
		t.Fatalf("%s: %v", s.Kind(), err)
	}
	return err.Error()
}

// TestEveryKindIsMadeOrExplained fails when the API has a kind that is new: it needs a
// plugin, or a text.
func TestEveryKindIsMadeOrExplained(t *testing.T) {
	unsupportedKinds := map[string]bool{}
	for _, s := range everyKind() {
		kind := s.Kind()
		if slices.ContainsFunc(others(), func(p volume.Plugin) bool { return p.Supports(s) }) {
			continue
		}
		unsupportedKinds[kind] = true
		text := refusal(t, s)
		if instead[kind] == "" || !strings.Contains(text, "volumes of the kind "+kind+" are") || !strings.HasSuffix(text, instead[kind]) {
			t.Errorf("%s (PersistentVolume: %v): %q; is it new? Then it needs a plugin or a text", kind, s.Persistent != nil, text)
		}
		if s.Persistent != nil && !strings.HasPrefix(text, "PersistentVolume pv-1: ") {
			t.Errorf("it isn't said which volume is of the kind: %q", text)
		}
	}
	for kind := range instead {
		if !unsupportedKinds[kind] {
			t.Errorf("there is a text for %s, which the API doesn't have, or a plugin makes", kind)
		}
	}
}

func TestAVolumeWithoutAKind(t *testing.T) {
	if text := refusal(t, volume.Spec{Volume: &v1.Volume{Name: "data"}}); !strings.Contains(text, "without a kind") {
		t.Error(text)
	}
}

// TestWhatTakesItsPlaceIsSaid: a person can go on from the text.
func TestWhatTakesItsPlaceIsSaid(t *testing.T) {
	for want, source := range map[string]v1.VolumeSource{
		"an init container clone the repository into an emptyDir": {GitRepo: &v1.GitRepoVolumeSource{}},
		"mount it on the host, and use hostPath":                  {NFS: &v1.NFSVolumeSource{}},
	} {
		if text := refusal(t, volume.Spec{Volume: &v1.Volume{Name: "data", VolumeSource: source}}); !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
}

// TestInAClusterNothingNeedsAnAPIServer: a pod that has one isn't told that it lacks one.
func TestInAClusterNothingNeedsAnAPIServer(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{pod.AnnotationConfigSource: string(pod.SourceAPI)}}}
	for _, s := range everyKind() {
		if slices.ContainsFunc(others(), func(p volume.Plugin) bool { return p.Supports(s) }) {
			continue
		}
		if err := (Unsupported{}).Check(p, s); !errors.Is(err, volume.ErrUnsupported) || strings.Contains(err.Error(), "API server") {
			t.Errorf("%s: %v", s.Kind(), err)
		}
	}
}
