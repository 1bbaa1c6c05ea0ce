package objectfiles_test

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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/objectfiles"
	"github.com/deckhand-node/deckhand/internal/volume/volumetest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// manifests are the objects that are there at a time.
type manifests struct{ set atomic.Pointer[object.Set] }

func (m *manifests) define(list ...object.Object) {
	var all []*object.Desired
	for _, o := range list {
		all = append(all, object.NewDesired(o, pod.SourceFile, "/manifests/all.yaml"))
	}
	m.set.Store(object.NewSet(all, true))
}

func (m *manifests) view() object.View { return object.NewLocal(m.set.Load) }

func web(data map[string]string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Data: data}
}

func pass(data map[string]string) *v1.Secret {
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pass", Namespace: "default"}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// volumeOf is a volume of the ConfigMap web, of the Secret pass, or of what else the source is.
func volumeOf(source v1.VolumeSource) volume.Spec {
	if source.ConfigMap != nil {
		source.ConfigMap.Name = "web"
	}
	if source.Secret != nil {
		source.Secret.SecretName = "pass"
	}
	return volume.Spec{Volume: &v1.Volume{Name: "files", VolumeSource: source}}
}

func configMap(s v1.ConfigMapVolumeSource) volume.Spec {
	return volumeOf(v1.VolumeSource{ConfigMap: &s})
}

func secret(s v1.SecretVolumeSource) volume.Spec { return volumeOf(v1.VolumeSource{Secret: &s}) }

func downwardAPI() volume.Spec {
	return volumeOf(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
		{Path: "meta/labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "version", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['version']"}},
		{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
	}}})
}

func projected(more ...v1.VolumeProjection) volume.Spec {
	sources := append([]v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "web"}}},
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "pass"}, Items: []v1.KeyToPath{{Key: "word", Path: "secret/word", Mode: ptr.To[int32](0o400)}}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "secret/pod", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
	}, more...)
	return volumeOf(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: ptr.To[int32](0o640)}})
}

func nothing() v1.ResourceList { return nil }

func TestContract(t *testing.T) {
	m := &manifests{}
	// The node's size is the only thing that the suite can change for the downward API: the pod is its own.
	milli := int64(0)
	allocatable := func() v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	}
	version := func(n int) string { return strings.Repeat(fmt.Sprintln("version", n), 1+n) }
	for name, c := range map[string]volumetest.Case{
		"configMap": {Plugin: objectfiles.NewConfigMap(), Objects: m.view(), Spec: func(string) volume.Spec { return configMap(v1.ConfigMapVolumeSource{}) },
			Change: func(n int) map[string]string {
				files := map[string]string{"app.conf": version(n), "other": version(n), fmt.Sprint("only-", n): ""}
				m.define(web(files))
				return files
			}},
		"secret": {Plugin: objectfiles.NewSecret(), Objects: m.view(), Spec: func(string) volume.Spec { return secret(v1.SecretVolumeSource{}) }, InMemory: true,
			Change: func(n int) map[string]string {
				files := map[string]string{"tls.key": version(n), "tls.crt": version(n)}
				m.define(pass(files))
				return files
			}},
		"downwardAPI": {Plugin: objectfiles.NewDownwardAPI(allocatable), Spec: func(string) volume.Spec { return downwardAPI() }, InMemory: true,
			Change: func(n int) map[string]string {
				milli = int64(n + 1)
				return map[string]string{"meta/labels": `app="web"`, "version": "1", "cpu": fmt.Sprint(n + 1)}
			},
			Pod: func(p *v1.Pod) {
				p.Labels = map[string]string{"app": "web"}
				p.Annotations = map[string]string{"version": "1"}
			}},
		"projected": {Plugin: objectfiles.NewProjected(nothing), Objects: m.view(), Spec: func(string) volume.Spec { return projected() }, InMemory: true,
			Change: func(n int) map[string]string {
				m.define(web(map[string]string{"app.conf": version(n)}), pass(map[string]string{"word": version(n)}))
				return map[string]string{"app.conf": version(n), "secret/word": version(n), "secret/pod": "web"}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Want = c.Change(0)
			volumetest.Run(t, c)
		})
	}
}

// Node tools know volumes by their plugins' names.
func TestNames(t *testing.T) {
	for want, p := range map[string]volume.Plugin{
		"kubernetes.io/configmap": objectfiles.NewConfigMap(), "kubernetes.io/secret": objectfiles.NewSecret(),
		"kubernetes.io/downward-api": objectfiles.NewDownwardAPI(nil), "kubernetes.io/projected": objectfiles.NewProjected(nil),
	} {
		if p.Name() != want {
			t.Errorf("%s instead of %s", p.Name(), want)
		}
	}
}

func request(t *testing.T, m *manifests, s volume.Spec) volume.Request {
	r := volume.Request{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}, Objects: m.view(), Spec: s,
		Place: volume.Place{Dir: filepath.Join(t.TempDir(), "volumes", "plugin", s.Volume.Name)},
	}
	t.Cleanup(func() { _ = unix.Unmount(r.Dir, unix.MNT_DETACH) }) // Those on disk aren't mounted.
	return r
}

// holds checks the content of files of a volume.
func holds(t *testing.T, r volume.Request, files map[string]string) {
	t.Helper()
	for name, want := range files {
		if data, err := os.ReadFile(filepath.Join(r.Dir, name)); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// inMemory checks that a tmpfs is mounted.
func inMemory(t *testing.T, r volume.Request) {
	t.Helper()
	var fsys unix.Statfs_t
	if err := unix.Statfs(r.Dir, &fsys); err != nil || fsys.Type != unix.TMPFS_MAGIC {
		t.Errorf("type %x, %v", fsys.Type, err)
	}
}

func TestItemsModesAndDisk(t *testing.T) {
	m := &manifests{}
	o := web(map[string]string{"app.conf": "text"})
	o.BinaryData = map[string][]byte{"logo": {0xff, 0, 0xfe}}
	m.define(o)
	p := objectfiles.NewConfigMap()
	r := request(t, m, configMap(v1.ConfigMapVolumeSource{DefaultMode: ptr.To[int32](0o440), Items: []v1.KeyToPath{{Key: "logo", Path: "img/logo"}, {Key: "app.conf", Path: "run.sh", Mode: ptr.To[int32](0o755)}}}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	holds(t, r, map[string]string{"img/logo": "\xff\x00\xfe", "run.sh": "text"})
	for name, mode := range map[string]os.FileMode{"img/logo": 0o440, "run.sh": 0o755} {
		if st, err := os.Stat(filepath.Join(r.Dir, name)); err != nil || st.Mode() != mode {
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
	p := objectfiles.NewConfigMap()
	r := request(t, m, configMap(v1.ConfigMapVolumeSource{}))
	var awaits *volume.AwaitsError
	if _, err := p.Mount(t.Context(), r); !errors.As(err, &awaits) || awaits.Object.String() != "ConfigMap default/web" {
		t.Fatalf("%v", err)
	}
	m.define(web(map[string]string{"k": "v"}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	holds(t, r, map[string]string{"k": "v"})
}

// An optional one is an empty directory, which is filled when it appears, and emptied when it goes.
func TestAnOptionalOne(t *testing.T) {
	m := &manifests{}
	m.define()
	p := objectfiles.NewConfigMap()
	r := request(t, m, configMap(v1.ConfigMapVolumeSource{Optional: ptr.To(true)}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		define []object.Object
		want   bool
	}{{[]object.Object{web(map[string]string{"k": "v"})}, true}, {nil, false}} {
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
	p := objectfiles.NewConfigMap()
	r := request(t, m, configMap(v1.ConfigMapVolumeSource{}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if changed, err := p.Refresh(t.Context(), r); changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
	holds(t, r, map[string]string{"k": "v"})
}

// Other pods' namespaces are theirs.
func TestOnlyOfItsNamespace(t *testing.T) {
	m := &manifests{}
	m.define(web(map[string]string{"k": "v"}))
	r := request(t, m, configMap(v1.ConfigMapVolumeSource{}))
	r.Pod.Namespace = "other"
	var awaits *volume.AwaitsError
	if _, err := objectfiles.NewConfigMap().Mount(t.Context(), r); !errors.As(err, &awaits) || awaits.Object.String() != "ConfigMap other/web" {
		t.Errorf("%v", err)
	}
}

func TestSecretInMemoryAndModes(t *testing.T) {
	m := &manifests{}
	m.define(pass(map[string]string{"key": "s3cret", "other": "x"}))
	p := objectfiles.NewSecret()
	r := request(t, m, secret(v1.SecretVolumeSource{DefaultMode: ptr.To[int32](0o400), Items: []v1.KeyToPath{{Key: "key", Path: "ssh/id"}}}))
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](2000)}
	mounted, err := p.Mount(t.Context(), r)
	if err != nil || !mounted.ReadOnly || mounted.Path != r.Dir {
		t.Fatalf("%+v, %v", mounted, err)
	}
	inMemory(t, r)
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
	p := objectfiles.NewSecret()
	for name, c := range map[string]struct {
		define []object.Object
		source v1.SecretVolumeSource
	}{
		"missing":     {nil, v1.SecretVolumeSource{}},
		"no such key": {[]object.Object{pass(map[string]string{"word": "hunter2"})}, v1.SecretVolumeSource{Items: []v1.KeyToPath{{Key: "x", Path: "x"}}}},
		"too large":   {[]object.Object{pass(map[string]string{"word": strings.Repeat("hunter2", 1<<18)})}, v1.SecretVolumeSource{}},
		"a bad key":   {[]object.Object{pass(map[string]string{"..word": "hunter2"})}, v1.SecretVolumeSource{}},
	} {
		m.define(c.define...)
		_, err := p.Mount(t.Context(), request(t, m, secret(c.source)))
		var awaits *volume.AwaitsError
		if !errors.As(err, &awaits) || awaits.Object.String() != "Secret default/pass" || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rotated Secret leaves nothing of the old one, once its readers had their time.
func TestTheOldValueGoes(t *testing.T) {
	m := &manifests{}
	m.define(pass(map[string]string{"word": "old"}))
	p := objectfiles.NewSecret()
	r := request(t, m, secret(v1.SecretVolumeSource{}))
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	rotated := pass(map[string]string{"word": "new"})
	rotated.Immutable = ptr.To(true)
	m.define(rotated)
	for _, want := range []bool{true, false} {
		if changed, err := p.Refresh(t.Context(), r); changed != want || err != nil {
			t.Errorf("%t, %v", changed, err)
		}
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

// Labels, annotations and resources of a pod that runs may change: the next request has the pod as it is now.
func TestDownwardAPIFollowsThePod(t *testing.T) {
	p := objectfiles.NewDownwardAPI(func() v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")} })
	r := request(t, &manifests{}, downwardAPI())
	r.Pod.Labels, r.Pod.Annotations = map[string]string{"app": "web"}, map[string]string{"version": "1"}
	r.Pod.Spec.Containers = []v1.Container{{Name: "main"}}
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	holds(t, r, map[string]string{"meta/labels": `app="web"`, "version": "1", "cpu": "4000"})
	r.Pod = r.Pod.DeepCopy()
	r.Pod.Labels["tier"] = "two\nlines"
	r.Pod.Annotations["version"] = "2"
	r.Pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	if changed, err := p.Refresh(t.Context(), r); !changed || err != nil {
		t.Errorf("%t, %v", changed, err)
	}
	newest := map[string]string{"meta/labels": "app=\"web\"\ntier=\"two\\nlines\"", "version": "2", "cpu": "250"}
	holds(t, r, newest)
	r.Pod = r.Pod.DeepCopy()
	r.Pod.Spec.Containers[0].Name = "renamed"
	if changed, err := p.Refresh(t.Context(), r); changed || err == nil || !strings.Contains(err.Error(), `container "main"`) {
		t.Errorf("%t, %v", changed, err)
	}
	holds(t, r, newest)
}

func TestAllSourcesInOneDir(t *testing.T) {
	m := &manifests{}
	m.define(web(map[string]string{"app.conf": "text"}), pass(map[string]string{"word": "text"}))
	p := objectfiles.NewProjected(nothing)
	r := request(t, m, projected())
	if mounted, err := p.Mount(t.Context(), r); err != nil || !mounted.ReadOnly {
		t.Fatalf("%+v, %v", mounted, err)
	}
	for name, mode := range map[string]os.FileMode{"app.conf": 0o640, "secret/word": 0o400, "secret/pod": 0o640} {
		if st, err := os.Stat(filepath.Join(r.Dir, name)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	inMemory(t, r)
	m.define() // both are gone
	r.InUse = true
	if _, err := p.Mount(t.Context(), r); err != nil {
		t.Error(err)
	}
	var awaits *volume.AwaitsError
	if changed, err := p.Refresh(t.Context(), r); changed || !errors.As(err, &awaits) || awaits.Object.String() != "ConfigMap default/web" {
		t.Errorf("%t, %v", changed, err)
	}
	holds(t, r, map[string]string{"secret/word": "text"})
}

func TestATokenNeedsAnAPIServer(t *testing.T) {
	m := &manifests{}
	m.define(web(map[string]string{"app.conf": "text"}), pass(map[string]string{"word": "text"}))
	r := request(t, m, projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}))
	if _, err := objectfiles.NewProjected(nothing).Mount(t.Context(), r); !errors.Is(err, volume.ErrUnsupported) || !strings.Contains(err.Error(), "serviceAccountToken") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(r.Dir); err == nil {
		t.Error("a directory was made")
	}
}
