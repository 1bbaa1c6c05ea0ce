package object_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func of(list ...object.Object) []*object.Desired {
	var out []*object.Desired
	for _, o := range list {
		out = append(out, object.NewDesired(o, pod.SourceFile, "/etc/pods/x.yaml"))
	}
	return out
}

func TestLookUps(t *testing.T) {
	ctx := t.Context()
	everything := of(
		&v1.Service{ObjectMeta: meta("a", "z")}, &v1.Service{ObjectMeta: meta("a", "b")}, &v1.Service{ObjectMeta: meta("b", "c")},
		&v1.ConfigMap{ObjectMeta: meta("a", "x"), Data: map[string]string{"of": "a"}}, &v1.ConfigMap{ObjectMeta: meta("b", "x")},
		&v1.Secret{ObjectMeta: meta("a", "x")}, &v1.ServiceAccount{ObjectMeta: meta("a", "x")}, &nodev1.RuntimeClass{ObjectMeta: meta("", "x")},
		&v1.PersistentVolumeClaim{ObjectMeta: meta("a", "x")}, &v1.PersistentVolume{ObjectMeta: meta("", "y")}, &v1.PersistentVolume{ObjectMeta: meta("", "x")},
		&storagev1.CSIDriver{ObjectMeta: meta("", "x")},
	)
	s := objecttest.View(object.NewSet(everything, true))
	if c, err := s.ConfigMap(ctx, "a", "x"); err != nil || c.Data["of"] != "a" {
		t.Errorf("ConfigMap %v, error %v", c, err)
	}
	if o, err := s.Secret(ctx, "a", "x"); err != nil || o != everything[5].Object() {
		t.Errorf("Secret error %v", err)
	}
	if o, err := s.ServiceAccount(ctx, "a", "x"); err != nil || o != everything[6].Object() {
		t.Errorf("ServiceAccount %v, error %v", o, err)
	}
	if o, err := s.RuntimeClass(ctx, "x"); err != nil || o != everything[7].Object() {
		t.Errorf("RuntimeClass %v, error %v", o, err)
	}
	services, err := s.Services(ctx, "a")
	if err != nil || len(services) != 2 || services[0].Name != "b" || services[1].Name != "z" {
		t.Errorf("services %v, error %v", services, err)
	}
	if o, err := s.PersistentVolumeClaim(ctx, "a", "x"); err != nil || o != everything[8].Object() {
		t.Errorf("PersistentVolumeClaim %v, error %v", o, err)
	}
	if o, err := s.PersistentVolume(ctx, "y"); err != nil || o != everything[9].Object() {
		t.Errorf("PersistentVolume %v, error %v", o, err)
	}
	if o, err := s.CSIDriver(ctx, "x"); err != nil || o != everything[11].Object() {
		t.Errorf("CSIDriver %v, error %v", o, err)
	}
	volumes, err := s.PersistentVolumes(ctx)
	if err != nil || len(volumes) != 2 || volumes[0] != everything[10].Object() || volumes[1] != everything[9].Object() {
		t.Errorf("PersistentVolumes %v, error %v", volumes, err)
	}
	if services, err := s.Services(ctx, "none"); err != nil || len(services) != 0 {
		t.Errorf("services %v, error %v; want none", services, err)
	}
}

func TestMissing(t *testing.T) {
	ctx := t.Context()
	for _, synced := range []bool{true, false} {
		s := objecttest.View(object.NewSet(of(&v1.ConfigMap{ObjectMeta: meta("a", "x")}), synced))
		_, configMap := s.ConfigMap(ctx, "b", "x")
		_, secret := s.Secret(ctx, "a", "x")
		_, account := s.ServiceAccount(ctx, "a", "default")
		_, class := s.RuntimeClass(ctx, "kata")
		_, claim := s.PersistentVolumeClaim(ctx, "a", "data")
		_, volume := s.PersistentVolume(ctx, "disk")
		_, driver := s.CSIDriver(ctx, "csi.example.com")
		for want, err := range map[string]error{
			`configmap "x" not found in namespace "b" (no manifest defines it)`:                configMap,
			`secret "x" not found in namespace "a" (no manifest defines it)`:                   secret,
			`serviceaccount "default" not found in namespace "a" (no manifest defines it)`:     account,
			`runtimeclass "kata" not found (no manifest defines it)`:                           class,
			`persistentvolumeclaim "data" not found in namespace "a" (no manifest defines it)`: claim,
			`persistentvolume "disk" not found (no manifest defines it)`:                       volume,
			`csidriver "csi.example.com" not found (no manifest defines it)`:                   driver,
		} {
			if synced {
				if !apierrors.IsNotFound(fmt.Errorf("wrapped: %w", err)) || object.IsUnknown(err) || err.Error() != want {
					t.Errorf("error %v, want %s", err, want)
				}
				continue
			}
			if apierrors.IsNotFound(err) || !object.IsUnknown(err) || !strings.HasSuffix(err.Error(), "isn't known yet: manifests are still being read") {
				t.Errorf("error %v, want that it is unknown", err)
			}
		}
	}
}

// TestRefused: who misses an object whose manifest has a mistake isn't told to make one.
func TestRefused(t *testing.T) {
	key := object.Key{Kind: object.ConfigMap, Namespace: "a", Name: "x"}
	s := objecttest.View(object.NewSet(nil, true).WithRefused(map[object.Key]string{key: "/etc/m/x.yaml"}))
	_, err := s.ConfigMap(t.Context(), "a", "x")
	want := "configmap \"x\" not found in namespace \"a\" (/etc/m/x.yaml defines it, but there is a mistake in that; `deckhand why` tells which)"
	if !apierrors.IsNotFound(err) || !errors.Is(err, object.ErrRefused) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, err := s.Secret(t.Context(), "a", "x"); err == nil || errors.Is(err, object.ErrRefused) || strings.Contains(err.Error(), "x.yaml") {
		t.Errorf("error of another kind's: %v", err)
	}
}

// TestVolumesAreAllOrNone: who takes the best of some that are known may miss a better one.
func TestVolumesAreAllOrNone(t *testing.T) {
	known := of(&v1.PersistentVolume{ObjectMeta: meta("", "x")})
	s := objecttest.View(object.NewSet(known, false))
	if volumes, err := s.PersistentVolumes(t.Context()); !object.IsUnknown(err) || volumes != nil {
		t.Errorf("volumes %v, error %v", volumes, err)
	}
	if o, err := s.PersistentVolume(t.Context(), "x"); err != nil || o != known[0].Object() {
		t.Errorf("one of them by its name: %v, error %v", o, err)
	}
	if volumes, err := objecttest.View(object.NewSet(nil, true)).PersistentVolumes(t.Context()); err != nil || len(volumes) != 0 {
		t.Errorf("volumes %v, error %v; want none", volumes, err)
	}
}

func TestEqual(t *testing.T) {
	a, b := of(&v1.ConfigMap{ObjectMeta: meta("a", "x")}, &v1.Secret{ObjectMeta: meta("a", "x")}), of(&v1.ConfigMap{ObjectMeta: meta("a", "x")})
	first := object.NewSet(a, true)
	for name, test := range map[string]struct {
		other *object.Set
		want  bool
	}{
		"itself":            {first, true},
		"another order":     {object.NewSet([]*object.Desired{a[1], a[0]}, true), true},
		"one less":          {object.NewSet(a[:1], true), false},
		"another pointer":   {object.NewSet([]*object.Desired{a[1], b[0]}, true), false},
		"not all read":      {object.NewSet(a, false), false},
		"one stale":         {object.NewSet([]*object.Desired{a[0].WithStale("bad"), a[1]}, true), false},
		"nothing in it yet": {object.NewSet(nil, true), false},
		"one is refused":    {first.WithRefused(map[object.Key]string{{Kind: object.RuntimeClass, Name: "x"}: "f"}), false},
		"none is refused":   {first.WithRefused(map[object.Key]string{}), true},
	} {
		if got := first.Equal(test.other); got != test.want {
			t.Errorf("%s: equal %v, want %v", name, got, test.want)
		}
	}
}

// What prints or encodes a Desired shows nothing of a Secret.
func TestSecretsStayHidden(t *testing.T) {
	d := of(&v1.Secret{ObjectMeta: meta("a", "x"), Data: map[string][]byte{"password": []byte("hunter2")}, StringData: map[string]string{"p": "hunter2"}})[0]
	type holder struct{ Object *object.Desired }
	encoded, err := json.Marshal(holder{d})
	if err != nil {
		t.Fatal(err)
	}
	text := string(encoded)
	for _, v := range []any{d, *d, holder{d}, []*object.Desired{d}, object.NewSet([]*object.Desired{d}, true)} {
		text += fmt.Sprintf("%v %+v %#v\n", v, v, v)
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVyMg") || strings.Contains(text, "104, 117") || strings.Contains(text, "0x68, 0x75") {
		t.Errorf("printed: %s", text)
	}
	if d.String() != "Secret a/x" || d.WithStale("why").String() != "Secret a/x" || d.Stale != "" {
		t.Errorf("it is %q, stale %q", d, d.Stale)
	}
}

func TestKinds(t *testing.T) {
	for _, kind := range object.Kinds() {
		o := kind.New()
		if !kind.Known() || object.KindOf(o) != kind || kind.GroupVersionKind().GroupVersion().String() != kind.APIVersion() {
			t.Errorf("%s: %T of kind %s, version %s", kind, o, object.KindOf(o), kind.APIVersion())
		}
	}
	if kind := object.VolumeAttachment; kind.Known() || kind.Namespaced() || object.KindOf(kind.New()) != kind ||
		kind.APIVersion() != "storage.k8s.io/v1" {
		t.Error("a VolumeAttachment is the cluster's, and no manifest holds one")
	}
	for _, synced := range []bool{true, false} {
		v := objecttest.View(object.NewSet(nil, synced))
		if got, err := v.VolumeAttachment(t.Context(), "x"); got != nil || !apierrors.IsNotFound(err) {
			t.Errorf("manifests have a VolumeAttachment: %v, %v", got, err)
		}
	}
	if object.Kind("Pod").Known() || object.KindOf(&v1.Pod{}) != "" {
		t.Error("a pod is no object of these")
	}
	if got := (object.Key{Kind: object.RuntimeClass, Name: "kata"}).String(); got != "RuntimeClass kata" {
		t.Error(got)
	}
	if object.CSIDriver.Namespaced() || object.CSIDriver.APIVersion() != "storage.k8s.io/v1" {
		t.Error("a CSIDriver is the cluster's, in group storage.k8s.io")
	}
	if object.PersistentVolume.Namespaced() || !object.PersistentVolumeClaim.Namespaced() {
		t.Error("a PersistentVolume is the node's, its claim in a namespace")
	}
}

// TestRealms: what a pod sees follows from its source, whatever it says of itself; an API server's pod
// finds nothing of what manifests define, under the same name or another.
func TestRealms(t *testing.T) {
	ctx := t.Context()
	local := objecttest.View(object.NewSet(of(
		&v1.ConfigMap{ObjectMeta: meta("a", "x")}, &v1.Secret{ObjectMeta: meta("a", "x")}, &v1.ServiceAccount{ObjectMeta: meta("a", "x")}, &nodev1.RuntimeClass{ObjectMeta: meta("", "x")},
		&v1.Service{ObjectMeta: meta("a", "x")}, &v1.PersistentVolumeClaim{ObjectMeta: meta("a", "x")}, &v1.PersistentVolume{ObjectMeta: meta("", "x")},
		&storagev1.CSIDriver{ObjectMeta: meta("", "x")},
	), true))
	for source, sees := range map[pod.Source]bool{pod.SourceFile: true, pod.SourceHTTP: true, pod.SourceRun: true, pod.SourceAPI: false, "": false} {
		hostile := pod.SourceFile
		if sees {
			hostile = pod.SourceAPI
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", Annotations: map[string]string{pod.AnnotationConfigSource: string(hostile)}}}
		s := local.For(&pod.Desired{Pod: p, Source: source})
		_, configMap := s.ConfigMap(ctx, "a", "x")
		_, secret := s.Secret(ctx, "a", "x")
		_, account := s.ServiceAccount(ctx, "a", "x")
		_, class := s.RuntimeClass(ctx, "x")
		_, claim := s.PersistentVolumeClaim(ctx, "a", "x")
		_, volume := s.PersistentVolume(ctx, "x")
		_, driver := s.CSIDriver(ctx, "x")
		for _, err := range []error{configMap, secret, account, class, claim, volume, driver} {
			if (err == nil) != sees || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("a pod of source %q: error %v", source, err)
			}
		}
		services, err := s.Services(ctx, "a")
		volumes, errVolumes := s.PersistentVolumes(ctx)
		if err != nil || errVolumes != nil || (len(services) > 0) != sees || (len(volumes) > 0) != sees {
			t.Errorf("a pod of source %q: services %v, volumes %v, errors %v, %v", source, services, volumes, err, errVolumes)
		}
	}
}

// TestChanged: it says the names of what changed, and of what hangs on that, and nothing of what is in it.
func TestChanged(t *testing.T) {
	secret := func(text string) object.Object {
		return &v1.Secret{ObjectMeta: meta("a", "s"), Data: map[string][]byte{"k": []byte(text)}}
	}
	conf, account, pv := &v1.ConfigMap{ObjectMeta: meta("a", "x")}, &v1.ServiceAccount{ObjectMeta: meta("a", "x")}, &v1.PersistentVolume{ObjectMeta: meta("", "x")}
	first := of(conf, secret("hunter1"))
	before := object.NewSet(first, true)
	driver := &storagev1.CSIDriver{ObjectMeta: meta("", "csi.example.com")}
	key := object.Key{Kind: object.RuntimeClass, Name: "kata"}
	for name, c := range map[string]struct {
		now  *object.Set
		want string
	}{
		"nothing":           {before, ""},
		"the same objects":  {object.NewSet(first, true), ""},
		"kept for a reason": {object.NewSet([]*object.Desired{first[0].WithStale("bad"), first[1]}, true), ""},
		"one edited":        {object.NewSet([]*object.Desired{first[0], of(secret("hunter2"))[0]}, true), "Secret a/s"},
		"one gone":          {object.NewSet(first[:1], true), "Secret a/s"},
		"all gone":          {object.NewSet(nil, true), "ConfigMap a/x, Secret a/s"},
		"a volume":          {object.NewSet(append(of(pv), first...), true), "PersistentVolume x, PersistentVolumeClaim "},
		"a driver":          {object.NewSet(append(of(driver), first...), true), "CSIDriver csi.example.com"},
		"an account":        {object.NewSet(append(of(account), first...), true), "ServiceAccount a/x, any Secret in namespace a"},
		"one refused":       {object.NewSet(first, true).WithRefused(map[object.Key]string{key: "f"}), "RuntimeClass kata"},
		"not all read":      {object.NewSet(first, false), "anything"},
	} {
		said := func(list []pod.Object) string {
			var out []string
			for _, o := range list {
				text := o.String()
				switch o {
				case pod.Object{}:
					text = "anything"
				case pod.Object{Kind: "PersistentVolumeClaim"}:
					text = "PersistentVolumeClaim "
				}
				out = append(out, text)
			}
			slices.Sort(out)
			return strings.Join(out, ", ")
		}
		if got := said(c.now.Changed(before)); got != c.want {
			t.Errorf("%s: changed is %q, want %q", name, got, c.want)
		}
		if got := said(before.Changed(c.now)); (got == "") != (c.want == "") {
			t.Errorf("%s, the other way: changed is %q", name, got)
		}
	}
	if got := before.Changed(nil); len(got) != 1 || got[0] != (pod.Object{}) {
		t.Errorf("at first: %v", got)
	}
}

// TestTokensAreRenewed after 80 % of their life, or a day.
func TestTokensAreRenewed(t *testing.T) {
	issued := time.Unix(1000, 0)
	for life, want := range map[time.Duration]time.Duration{10 * time.Minute: 8 * time.Minute, time.Hour: 48 * time.Minute, 30 * time.Hour: 24 * time.Hour, 365 * 24 * time.Hour: 24 * time.Hour} {
		if got := object.NewToken("x", issued, issued.Add(life)).Renew(); !got.Equal(issued.Add(want)) {
			t.Errorf("one for %v is renewed after %v, want %v", life, got.Sub(issued), want)
		}
	}
}
