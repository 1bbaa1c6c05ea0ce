package secret_test

import (
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/deckhand-node/deckhand/internal/volume/secret"
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

func pass(data map[string]string) *v1.Secret {
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pass", Namespace: "default"}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

func spec(source v1.SecretVolumeSource) volume.Spec {
	source.SecretName = "pass"
	return volume.Spec{Volume: &v1.Volume{Name: "keys", VolumeSource: v1.VolumeSource{Secret: &source}}}
}

func TestContract(t *testing.T) {
	m := &manifests{}
	change := func(n int) map[string]string {
		text := strings.Repeat(fmt.Sprintln("version", n), 1+n)
		m.define(pass(map[string]string{"tls.key": text, "tls.crt": text}))
		return map[string]string{"tls.key": text, "tls.crt": text}
	}
	volumetest.Run(t, volumetest.Case{
		Plugin: secret.New(m.live()), Spec: func(string) volume.Spec { return spec(v1.SecretVolumeSource{}) }, Want: change(0), Change: change, InMemory: true,
	})
}

func request(t *testing.T, s volume.Spec) volume.Request {
	r := volume.Request{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, Spec: s,
		Place: volume.Place{Dir: filepath.Join(t.TempDir(), "volumes", "kubernetes.io~secret", "keys")},
	}
	t.Cleanup(func() { _ = unix.Unmount(r.Dir, unix.MNT_DETACH) })
	return r
}

func TestInMemoryAndModes(t *testing.T) {
	m := &manifests{}
	m.define(pass(map[string]string{"key": "s3cret", "other": "x"}))
	p := secret.New(m.live())
	if p.Name() != "kubernetes.io/secret" {
		t.Error(p.Name())
	}
	r := request(t, spec(v1.SecretVolumeSource{DefaultMode: ptr.To[int32](0o400), Items: []v1.KeyToPath{{Key: "key", Path: "ssh/id"}}}))
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
	mounted, err := p.Mount(t.Context(), r)
	if err != nil || !mounted.ReadOnly || mounted.Path != r.Dir {
		t.Fatalf("%+v, %v", mounted, err)
	}
	var fsys unix.Statfs_t
	if err := unix.Statfs(r.Dir, &fsys); err != nil || fsys.Type != unix.TMPFS_MAGIC {
		t.Errorf("type %x, %v", fsys.Type, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(r.Dir, "ssh", "id"), &st); err != nil || st.Mode != unix.S_IFREG|0o440 || st.Gid != 2000 {
		t.Errorf("mode %o, group %d, %v", st.Mode, st.Gid, err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "other")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key that wasn't asked for: %v", err)
	}
	if err := unix.Unmount(r.Dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(r.Dir); err != nil || len(names) > 0 {
		t.Errorf("on the disk: %v, %v", names, err)
	}
}

func TestErrorsHaveNoValues(t *testing.T) {
	m := &manifests{}
	p := secret.New(m.live())
	for name, c := range map[string]struct {
		define []objects.Object
		source v1.SecretVolumeSource
	}{
		"missing":     {nil, v1.SecretVolumeSource{}},
		"no such key": {[]objects.Object{pass(map[string]string{"word": "hunter2"})}, v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "x", Path: "x"}}}},
		"too large":   {[]objects.Object{pass(map[string]string{"word": strings.Repeat("hunter2", 1<<18)})}, v1.SecretVolumeSource{}},
		"a bad key":   {[]objects.Object{pass(map[string]string{"..word": "hunter2"})}, v1.SecretVolumeSource{}},
	} {
		m.define(c.define...)
		r := request(t, spec(c.source))
		_, err := p.Mount(t.Context(), r)
		var awaits *volume.AwaitsError
		if !errors.As(err, &awaits) || awaits.Object != "Secret default/pass" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rotated Secret leaves nothing of the old one.
func TestTheOldValueGoes(t *testing.T) {
	m := &manifests{}
	m.define(pass(map[string]string{"word": "old"}))
	p := secret.New(m.live())
	r := request(t, spec(v1.SecretVolumeSource{}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	rotated := pass(map[string]string{"word": "new"})
	rotated.Immutable = ptr.To(true)
	m.define(rotated)
	if changed, err := p.Refresh(t.Context(), r); !changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
	err := filepath.WalkDir(r.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if string(data) != "new" {
			t.Errorf("%s: %q", path, data)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
