package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/objectfiles"
	"github.com/deckhand-node/deckhand/internal/volume/plugins"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
)

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return mounttest.Run(m) }))
}

// world is what a manager sees of the rest of the agent. It outlives the manager.
type world struct {
	object.View // as much as it has methods for
	t           testing.TB
	root        string
	changed     *wake.Keyed[pod.Object]

	mu         sync.Mutex
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	pods       map[types.UID]*v1.Pod
	running    map[types.UID]bool
	added      []string           // the ephemeral containers that run
	bound      map[string]binding // by claim
	binds      []string
	unread     bool // it isn't known which ConfigMaps there are
	forgotten  []types.UID
	freed      int
	refused    []error // by a disk
	events     []string
	metered    []string
	version    int
}

type binding struct {
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume
}

func newWorld(t testing.TB) *world {
	if t, ok := t.(*testing.T); ok {
		t.Cleanup(func() { goleak.VerifyNone(t) })
	}
	w := bareWorld(t, t.TempDir())
	t.Cleanup(w.unmount)
	return w
}

func bareWorld(t testing.TB, root string) *world {
	return &world{
		t: t, root: root, changed: wake.NewKeyed[pod.Object](), configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{},
		pods: map[types.UID]*v1.Pod{}, running: map[types.UID]bool{}, bound: map[string]binding{},
	}
}

// unmount takes off what a test that failed has left.
func (w *world) unmount() {
	left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.root))
	if err != nil {
		w.t.Error(err)
	}
	for _, i := range slices.Backward(left) {
		detach(i.Mountpoint)
	}
}

// config has all real plugins.
func (w *world) config() manager.Config {
	none := func() v1.ResourceList { return nil }
	return manager.Config{
		RootDir: w.root,
		Plugins: []volume.Plugin{
			plugins.NewEmptyDir(plugins.Config{MemoryLimit: func(*v1.Pod) (int64, bool) { return 0, false }}), objectfiles.NewConfigMap(), objectfiles.NewSecret(),
			objectfiles.NewDownwardAPI(none), objectfiles.NewProjected(none), plugins.HostPath{}, plugins.LocalVolume{}, plugins.Unsupported{},
		},
		Claims: w, SubPaths: subpath.New(filepath.Join(w.root, "pods")), ApplyFSGroup: filetree.Apply,
		Changed: w.changed, Pod: w.pod, Running: w.isRunning, ContainerRuns: w.containerRuns, Freed: w.free, Recorder: w, Meter: w, ClusterDomain: "cluster.local",
		DiskFailed: func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, err)
		},
	}
}

// start runs a manager until the test ends, or stop is called.
func (w *world) start(c manager.Config) (m *manager.Manager, stop func()) {
	m = manager.New(c, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	w.t.Cleanup(stop)
	return m, stop
}

func (w *world) wake() { w.changed.Wake(pod.Object{}) }

func (w *world) nextVersion() string {
	w.version++
	return fmt.Sprint(w.version)
}

// setConfigMap makes a version of a ConfigMap; without data there is none.
func (w *world) setConfigMap(name string, data map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.configMaps, name)
	if data != nil {
		w.configMaps[name] = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "cm-1", ResourceVersion: w.nextVersion()}, Data: data}
	}
	w.changed.Wake(pod.Object{Kind: "ConfigMap", Namespace: "default", Name: name})
}

func (w *world) ConfigMap(_ context.Context, _, name string) (*v1.ConfigMap, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unread {
		return nil, errors.New("manifests are being read")
	}
	if o := w.configMaps[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (w *world) setUnread(unread bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread = unread
	w.wake()
}

func (w *world) Secret(_ context.Context, _, name string) (*v1.Secret, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.secrets[name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (w *world) setSecret(name string, data map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: w.nextVersion()}, Data: map[string][]byte{}}
	for k, v := range data {
		o.Data[k] = []byte(v)
	}
	w.secrets[name] = o
	w.changed.Wake(pod.Object{Kind: "Secret", Namespace: "default", Name: name})
}

func (w *world) pod(uid types.UID) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[uid]
}

// want makes this the newest version of the pod.
func (w *world) want(p *v1.Pod) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[p.UID] = p
	w.changed.Wake(pod.Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name})
	return p
}

func (w *world) isRunning(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[uid]
}

// containerRuns reports whether the container is one of those that run although they were added to a running pod.
func (w *world) containerRuns(_ types.UID, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.added, name)
}

func (w *world) setRunning(uid types.UID, running bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[uid] = running
}

// bind makes a claim whose volume is a directory of the node.
func (w *world) bind(name string, path string, modes ...v1.PersistentVolumeAccessMode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bound[name] = binding{
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: v1.PersistentVolumeClaimSpec{AccessModes: modes}},
		&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}, Spec: v1.PersistentVolumeSpec{
			AccessModes: modes, PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
		}},
	}
}

func (w *world) Bind(_ context.Context, p *v1.Pod, _ object.View, v *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := v.PersistentVolumeClaim.ClaimName
	w.binds = append(w.binds, name)
	if b, ok := w.bound[name]; ok {
		return b.claim, b.pv, nil
	}
	return nil, nil, volume.Awaits(pod.Object{Kind: "PersistentVolumeClaim", Namespace: p.Namespace, Name: name}, "claim %s isn't there", name)
}

// Pods lists none: what is left of pods here are their directories.
func (w *world) Pods() []types.UID { return nil }

func (w *world) Forget(_ context.Context, uid types.UID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgotten = append(w.forgotten, uid)
	return nil
}

func (w *world) free() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed++
}

func (w *world) Event(p *v1.Pod, e pod.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, p.Name+" "+e.Type+" "+string(e.Reason)+": "+e.Message)
}

func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *world) Operation(plugin, operation string, migrated bool, _ time.Duration, failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if migrated {
		operation += " migrated"
	}
	w.metered = append(w.metered, fmt.Sprintf("%s %s %v", plugin, operation, failed))
}

func (w *world) Completed(plugin, operation string, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.metered = append(w.metered, fmt.Sprintf("%s %s completed", plugin, operation))
}

func (w *world) Reconstructed(failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.metered = append(w.metered, fmt.Sprintf("reconstructed %v", failed))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok, which something that goes on by itself brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came to pass that %s", what)
		}
	}
}

func holds(file, want string) bool {
	got, err := os.ReadFile(file)
	return err == nil && string(got) == want
}

func failure(t testing.TB, err error) *pod.Failure {
	t.Helper()
	var f *pod.Failure
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a *pod.Failure", err)
	}
	return f
}

func emptyDir(name string, medium v1.StorageMedium) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
}

func hostPath(name, path string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}}
}

func typedHostPath(name, path string, kind v1.HostPathType) v1.Volume {
	v := hostPath(name, path)
	v.HostPath.Type = &kind
	return v
}

func configMap(name, object string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}}}}
}

func secretVolume(name, object string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: object}}}
}

func labels(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}},
	}}}
}

func claim(name, object string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: object}}}
}

func newPod(volumes ...v1.Volume) *v1.Pod { return namedPod("web", "uid-1", volumes...) }

// namedPod returns a pod with a container "main" for tests to change, and another one that mounts all volumes.
func namedPod(name string, uid types.UID, volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Spec: v1.PodSpec{Volumes: volumes,
			Containers: []v1.Container{{Name: "main", TerminationMessagePath: "/dev/termination-log"}, {Name: "user"}}},
	}
	mountAll(p)
	return p
}

// mountAll makes the pod's second container mount all its volumes.
func mountAll(p *v1.Pod) {
	user := &p.Spec.Containers[1]
	user.VolumeMounts = nil
	for i := range p.Spec.Volumes {
		user.VolumeMounts = append(user.VolumeMounts, v1.VolumeMount{Name: p.Spec.Volumes[i].Name, MountPath: fmt.Sprintf("/volumes/%d", i)})
	}
}

// mountTable lists what is mounted below a directory, by mount IDs.
func mountTable(t testing.TB, dir string) map[int]string {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	must(t, err)
	table := map[int]string{}
	for _, i := range list {
		table[i.ID] = i.Mountpoint
	}
	return table
}

// directories lists every path below a directory.
func directories(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		all = append(all, strings.TrimPrefix(path, dir))
		return err
	}))
	return all
}

// clean checks that nothing is left of any pod.
func (w *world) clean() {
	w.t.Helper()
	if left := mountTable(w.t, w.root); len(left) > 0 {
		w.t.Errorf("still mounted: %v", slices.Collect(maps.Values(left)))
	}
	for _, dir := range []string{"pods", "staged"} {
		entries, err := os.ReadDir(filepath.Join(w.root, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
			w.t.Errorf("left on disk in %s: %v, %v", dir, entries, err)
		}
	}
}
