package configmap_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/configmap"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// manifests are the objects that are there at a time.
type manifests struct{ set atomic.Pointer[objects.Set] }

func (m *manifests) define(list ...objects.Object) {
	var all []*objects.Desired
	for _, o := range list {
		all = append(all, objects.NewDesired(o, pod.SourceFile, "/manifests/all.yaml"))
	}
	m.set.Store(objects.NewSet(all, true))
}

func (m *manifests) live() *objects.Live { return objects.NewLive(m.set.Load) }

func web(data map[string]string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Data: data}
}

func spec(source v1.ConfigMapVolumeSource) volume.Spec {
	source.Name = "web"
	return volume.Spec{Volume: &v1.Volume{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &source}}}
}

func TestContract(t *testing.T) {
	m := &manifests{}
	change := func(n int) map[string]string {
		text := strings.Repeat(fmt.Sprintln("version", n), 1+n)
		m.define(web(map[string]string{"app.conf": text, "other": text, fmt.Sprint("only-", n): ""}))
		return map[string]string{"app.conf": text, "other": text, fmt.Sprint("only-", n): ""}
	}
	volumetest.Run(t, volumetest.Case{
		Plugin: configmap.New(m.live()), Spec: func(string) volume.Spec { return spec(v1.ConfigMapVolumeSource{}) }, Want: change(0), Change: change,
	})
}

func request(t *testing.T, s volume.Spec) volume.Request {
	return volume.Request{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, Spec: s,
		Place: volume.Place{Dir: filepath.Join(t.TempDir(), "volumes", "kubernetes.io~configmap", "conf")},
	}
}

func TestItemsModesAndDisk(t *testing.T) {
	m := &manifests{}
	o := web(map[string]string{"app.conf": "text"})
	o.BinaryData = map[string][]byte{"logo": {0xff, 0, 0xfe}}
	m.define(o)
	p := configmap.New(m.live())
	if p.Name() != "kubernetes.io/configmap" {
		t.Error(p.Name())
	}
	r := request(t, spec(v1.ConfigMapVolumeSource{DefaultMode: ptr.To[int32](0o440), Items: []v1.KeyToPath{{Key: "logo", Path: "img/logo"}, {Key: "app.conf", Path: "run.sh", Mode: ptr.To[int32](0o755)}}}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		data string
		mode os.FileMode
	}{"img/logo": {"\xff\x00\xfe", 0o440}, "run.sh": {"text", 0o755}} {
		data, err := os.ReadFile(filepath.Join(r.Dir, name))
		if err != nil || string(data) != want.data {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if st, err := os.Stat(filepath.Join(r.Dir, name)); err != nil || st.Mode() != want.mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	var here, above unix.Stat_t
	if err := errors.Join(unix.Stat(r.Dir, &here), unix.Stat(filepath.Dir(r.Dir), &above)); err != nil || here.Dev != above.Dev {
		t.Errorf("something is mounted: %v", err)
	}
}

func TestAMissingOneIsAwaited(t *testing.T) {
	m := &manifests{}
	m.define()
	p := configmap.New(m.live())
	r := request(t, spec(v1.ConfigMapVolumeSource{}))
	var awaits *volume.AwaitsError
	if _, err := p.Mount(t.Context(), r); !errors.As(err, &awaits) || awaits.Object != "ConfigMap default/web" {
		t.Fatalf("%v", err)
	}
	m.define(web(map[string]string{"k": "v"}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(r.Dir, "k")); err != nil || string(data) != "v" {
		t.Errorf("%q, %v", data, err)
	}
}

// An optional one is an empty folder, which is filled when it appears, and emptied when it goes.
func TestAnOptionalOne(t *testing.T) {
	m := &manifests{}
	m.define()
	p := configmap.New(m.live())
	r := request(t, spec(v1.ConfigMapVolumeSource{Optional: ptr.To(true)}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		define []objects.Object
		want   bool
	}{{[]objects.Object{web(map[string]string{"k": "v"})}, true}, {nil, false}} {
		m.define(c.define...)
		if changed, err := p.Refresh(t.Context(), r); !changed || err != nil {
			t.Errorf("%t, %v", changed, err)
		}
		if _, err := os.Stat(filepath.Join(r.Dir, "k")); (err == nil) != c.want {
			t.Errorf("%v", err)
		}
	}
}

// What is immutable doesn't change: that is seen to where objects are taken in. To the
// volume it is like any other.
func TestAnImmutableOne(t *testing.T) {
	m := &manifests{}
	o := web(map[string]string{"k": "v"})
	o.Immutable = ptr.To(true)
	m.define(o)
	p := configmap.New(m.live())
	r := request(t, spec(v1.ConfigMapVolumeSource{}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if changed, err := p.Refresh(t.Context(), r); changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
	if data, err := os.ReadFile(filepath.Join(r.Dir, "k")); err != nil || string(data) != "v" {
		t.Errorf("%q, %v", data, err)
	}
}

// Other pods' namespaces are theirs.
func TestOnlyOfItsNamespace(t *testing.T) {
	m := &manifests{}
	m.define(web(map[string]string{"k": "v"}))
	r := request(t, spec(v1.ConfigMapVolumeSource{}))
	r.Pod.Namespace = "other"
	var awaits *volume.AwaitsError
	if _, err := configmap.New(m.live()).Mount(t.Context(), r); !errors.As(err, &awaits) || awaits.Object != "ConfigMap other/web" {
		t.Errorf("%v", err)
	}
}
