package volumestate_test

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// one is a node with one ConfigMap and one Secret at most.
type one struct {
	volumestate.Objects
	configMap *v1.ConfigMap
	secret    *v1.Secret
	err       error
}

func (o one) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	switch {
	case o.err != nil:
		return nil, o.err
	case o.configMap == nil || o.configMap.Name != name:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return o.configMap, nil
}

func (o one) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	if o.secret == nil || o.secret.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return o.secret, nil
}

func configMap(uid, version string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: types.UID(uid), ResourceVersion: version}}
}

func volumeOf(s v1.VolumeSource) volume.Spec {
	return volume.Spec{Volume: &v1.Volume{Name: "v", VolumeSource: s}}
}

var (
	ofConfigMap = volumeOf(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "web"}}})
	ofSecret    = volumeOf(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "keys"}})
	ofPod       = volumeOf(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}})
	ofNone      = volumeOf(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	ofAll       = volumeOf(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "web"}}},
		{DownwardAPI: &v1.DownwardAPIProjection{}},
	}}})
)

func TestObjectsThatChange(t *testing.T) {
	unversioned, p := configMap("", ""), &v1.Pod{}
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys", ResourceVersion: "1"}}
	newer := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keys", ResourceVersion: "2"}}
	for name, c := range map[string]struct {
		volume        volume.Spec
		before, after one
		same          bool
	}{
		"the same":                          {ofConfigMap, one{configMap: configMap("a", "1")}, one{configMap: configMap("a", "1")}, true},
		"another version":                   {ofConfigMap, one{configMap: configMap("a", "1")}, one{configMap: configMap("a", "2")}, false},
		"another object of that name":       {ofConfigMap, one{configMap: configMap("a", "1")}, one{configMap: configMap("b", "1")}, false},
		"it came":                           {ofConfigMap, one{}, one{configMap: configMap("a", "1")}, false},
		"it went":                           {ofConfigMap, one{configMap: configMap("a", "1")}, one{}, false},
		"it isn't there still":              {ofConfigMap, one{}, one{}, true},
		"it turned out not to be there":     {ofConfigMap, one{err: errors.New("being read")}, one{}, false},
		"without versions, the same one":    {ofConfigMap, one{configMap: unversioned}, one{configMap: unversioned}, true},
		"without versions, another":         {ofConfigMap, one{configMap: unversioned}, one{configMap: configMap("", "")}, false},
		"a Secret":                          {ofSecret, one{secret: secret}, one{secret: newer}, false},
		"an object that isn't the volume's": {ofSecret, one{secret: secret}, one{secret: secret, configMap: configMap("a", "1")}, true},
		"a projected ConfigMap":             {ofAll, one{secret: secret, configMap: configMap("a", "1")}, one{secret: secret, configMap: configMap("a", "2")}, false},
		"a projected Secret":                {ofAll, one{secret: secret, configMap: configMap("a", "1")}, one{secret: newer, configMap: configMap("a", "1")}, false},
		"a volume without any":              {ofNone, one{}, one{secret: secret, configMap: configMap("a", "1")}, true},
	} {
		a, b := volumestate.Observe(t.Context(), c.before, p, c.volume), volumestate.Observe(t.Context(), c.after, p, c.volume)
		if a.Same(b) != c.same || b.Same(a) != c.same {
			t.Errorf("%s: the same: %v", name, a.Same(b))
		}
	}
}

func TestPodsThatChange(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.Pod)
		same   bool
	}{
		"nothing":       {func(*v1.Pod) {}, true},
		"labels":        {func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		"annotations":   {func(p *v1.Pod) { p.Annotations = map[string]string{"a": "b"} }, false},
		"image":         {func(p *v1.Pod) { p.Spec.Containers[0].Image = "other" }, true},
		"resources":     {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = limits("2") }, false},
		"pod resources": {func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Limits: limits("2")} }, false},
		"same amount":   {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = limits("1000m") }, true},
		"sidecar":       {func(p *v1.Pod) { p.Spec.InitContainers[0].Resources.Limits = limits("2") }, false},
	} {
		before := &v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: limits("1")}}}, InitContainers: []v1.Container{{Name: "side"}},
		}}
		after := before.DeepCopy()
		c.change(after)
		for _, v := range []volume.Spec{ofPod, ofAll} {
			if got := volumestate.Observe(t.Context(), one{}, before, v).Same(volumestate.Observe(t.Context(), one{}, after, v)); got != c.same {
				t.Errorf("%s: the same: %v", name, got)
			}
		}
		if !volumestate.Observe(t.Context(), one{}, before, ofConfigMap).Same(volumestate.Observe(t.Context(), one{}, after, ofConfigMap)) {
			t.Errorf("%s: a volume that doesn't show its pod has changed", name)
		}
	}
}

func limits(cpu string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
}

func TestKnown(t *testing.T) {
	for name, c := range map[string]struct {
		sight volumestate.Sight
		known bool
	}{
		"not looked":  {volumestate.Sight{}, false},
		"there":       {volumestate.Observe(t.Context(), one{configMap: configMap("a", "1")}, &v1.Pod{}, ofConfigMap), true},
		"missing":     {volumestate.Observe(t.Context(), one{}, &v1.Pod{}, ofConfigMap), true},
		"not known":   {volumestate.Observe(t.Context(), one{err: errors.New("being read")}, &v1.Pod{}, ofConfigMap), false},
		"half":        {volumestate.Observe(t.Context(), one{configMap: configMap("a", "1")}, &v1.Pod{}, ofAll), true},
		"needs none":  {volumestate.Observe(t.Context(), one{}, &v1.Pod{}, ofNone), true},
		"half unread": {volumestate.Observe(t.Context(), one{err: errors.New("being read")}, &v1.Pod{}, ofAll), false},
	} {
		if c.sight.Known() != c.known {
			t.Errorf("%s: known %v", name, c.sight.Known())
		}
	}
	if (volumestate.Sight{}).Same(volumestate.Sight{}) {
		t.Error("what was never looked at is the same")
	}
}
