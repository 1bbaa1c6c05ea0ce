package projected_test

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
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/projected"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

func nothing() v1.ResourceList { return nil }

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

func (m *manifests) text(text string) {
	m.define(
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Data: map[string]string{"app.conf": text}},
		&v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pass", Namespace: "default"}, Data: map[string][]byte{"word": []byte(text)}},
	)
}

func spec(more ...v1.VolumeProjection) volume.Spec {
	sources := append([]v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "web"}}},
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "pass"}, Items: []v1.KeyToPath{{Key: "word", Path: "secret/word", Mode: ptr.To[int32](0o400)}}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "secret/pod", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
	}, more...)
	return volume.Spec{Volume: &v1.Volume{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: ptr.To[int32](0o640)}}}}
}

func TestContract(t *testing.T) {
	m := &manifests{}
	change := func(n int) map[string]string {
		text := strings.Repeat(fmt.Sprintln("version", n), 1+n)
		m.text(text)
		return map[string]string{"app.conf": text, "secret/word": text, "secret/pod": "web"}
	}
	volumetest.Run(t, volumetest.Case{
		Plugin: projected.New(m.live(), nothing), Spec: func(string) volume.Spec { return spec() }, Want: change(0), Change: change, InMemory: true,
	})
}

func request(t *testing.T, s volume.Spec) volume.Request {
	r := volume.Request{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}, Spec: s,
		Place: volume.Place{Dir: filepath.Join(t.TempDir(), "volumes", "kubernetes.io~projected", "all")},
	}
	t.Cleanup(func() { _ = unix.Unmount(r.Dir, unix.MNT_DETACH) })
	return r
}

func TestAllSourcesInOneFolder(t *testing.T) {
	m := &manifests{}
	m.text("text")
	p := projected.New(m.live(), nothing)
	if p.Name() != "kubernetes.io/projected" {
		t.Error(p.Name())
	}
	r := request(t, spec())
	if mounted, err := p.Mount(t.Context(), r); err != nil || !mounted.ReadOnly {
		t.Fatalf("%+v, %v", mounted, err)
	}
	for name, mode := range map[string]os.FileMode{"app.conf": 0o640, "secret/word": 0o400, "secret/pod": 0o640} {
		if st, err := os.Stat(filepath.Join(r.Dir, name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(r.Dir, &fsys); err != nil || fsys.Type != unix.TMPFS_MAGIC {
		t.Errorf("type %x, %v", fsys.Type, err)
	}
	m.define() // both are gone
	r.InUse = true
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Error(err)
	}
	var awaits *volume.AwaitsError
	if changed, err := p.Refresh(t.Context(), r); changed || !errors.As(err, &awaits) || awaits.Object != "ConfigMap default/web" {
		t.Errorf("%t, %v", changed, err)
	}
	if data, err := os.ReadFile(filepath.Join(r.Dir, "secret", "word")); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestATokenNeedsAnAPIServer(t *testing.T) {
	m := &manifests{}
	m.text("text")
	r := request(t, spec(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}))
	if _, err := projected.New(m.live(), nothing).Mount(t.Context(), r); !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "serviceAccountToken") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(r.Dir); err == nil {
		t.Error("a folder was made")
	}
}
