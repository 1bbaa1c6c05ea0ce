package csi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// managed is a manager of volumes with the rig's plugin.
type managed struct {
	*manager.Manager
	seen object.View
	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
}

// manage runs a manager until the test ends.
func (r *rig) manage(early time.Duration, seen object.View) *managed {
	r.Helper()
	m := &managed{seen: seen, pods: map[types.UID]*v1.Pod{}}
	m.Manager = manager.New(manager.Config{RootDir: r.root, Plugins: []volume.Plugin{r.plugin}, Claims: ignored{},
		SubPaths: subpath.New(filepath.Join(r.root, "pods")), ApplyFSGroup: filetree.Apply,
		Changed: wake.NewKeyed[pod.Object](), Pod: m.pod, Running: func(types.UID) bool { return false },
		ContainerRuns: func(types.UID, string) bool { return false }, Freed: func() {}, DiskFailed: func(error) {},
		Recorder: ignored{}, Meter: ignored{}, Early: early}, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Run(ctx) }()
	r.Cleanup(func() { cancel(); <-ended })
	return m
}

func (m *managed) pod(uid types.UID) *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid]
}

// start mounts the volumes of a pod: so many inline volumes of this driver.
func (m *managed) start(ctx context.Context, uid types.UID, driver string, volumes int) error {
	p := inline(func(p *v1.Pod, _ *v1.CSIVolumeSource) { p.UID, p.Name, p.Spec.Volumes = uid, string(uid), nil })
	c := v1.Container{Name: "main"}
	for i := range volumes {
		name := fmt.Sprint("data-", i)
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name,
			VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driver}}})
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	p.Spec.Containers = []v1.Container{c}
	m.mu.Lock()
	m.pods[uid] = p
	m.mu.Unlock()
	return m.Prepare(ctx, p, m.seen)
}

func (m *managed) stop(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	delete(m.pods, uid)
	m.mu.Unlock()
	return m.Clean(ctx, uid)
}

// ignored ignores what a manager reports, and has no claims.
type ignored struct{}

func (ignored) Event(*v1.Pod, pod.Event)                            {}
func (ignored) Operation(string, string, bool, time.Duration, bool) {}
func (ignored) Completed(string, string, time.Duration)             {}
func (ignored) Reconstructed(bool)                                  {}
func (ignored) Forget(context.Context, types.UID) error             { return nil }
func (ignored) Pods() []types.UID                                   { return nil }
func (ignored) Bind(context.Context, *v1.Pod, object.View, *v1.Volume) (*v1.PersistentVolumeClaim,
	*v1.PersistentVolume, error) {
	return nil, nil, volume.ErrUnsupported
}

// roundsEnv is the number of rounds of TestManyPods.
const roundsEnv = "DECKHAND_TEST_CSI_ROUNDS"

// Many pods at once leave no mount, record, directory, file descriptor or goroutine.
func TestManyPods(t *testing.T) {
	const pods, volumes = 100, 3
	rounds := 1
	if text := os.Getenv(roundsEnv); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, nil)
	m := r.manage(time.Minute, seeing(described()))
	each := func(do func(context.Context, types.UID) error) {
		t.Helper()
		var running sync.WaitGroup
		for i := range pods {
			running.Go(func() {
				if err := do(t.Context(), types.UID(fmt.Sprint("pod-", i))); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	start := func(ctx context.Context, uid types.UID) error { return m.start(ctx, uid, driverName, volumes) }
	// The connection to the driver and its goroutines stay.
	if err := start(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if err := m.stop(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	r.wantCalls(slices.Concat(slices.Repeat([]string{"Publish OK"}, volumes),
		slices.Repeat([]string{"Unpublish OK"}, volumes))...)
	files, others := openFiles(t), goleak.IgnoreCurrent()
	for range rounds {
		began := time.Now()
		each(start)
		if got := len(csidriver.Mounts(t, r.root)); got != pods*volumes {
			t.Errorf("%d mounts, want %d", got, pods*volumes)
		}
		started := time.Now()
		each(m.stop)
		t.Logf("%d volumes: started within %s, stopped within %s", pods*volumes, started.Sub(began), time.Since(started))
		r.nothingLeft()
		r.driver.CheckLaw(t)
		if got := len(r.called()); got != 2*pods*volumes {
			t.Errorf("%d calls, want %d", got, 2*pods*volumes)
		}
		if left, _ := filepath.Glob(filepath.Join(r.root, "pods/*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if err := goleak.Find(others); err != nil {
		t.Error(err)
	}
	if now := openFiles(t); len(now) > len(files) {
		t.Errorf("open files: %q, before %q", now, files)
	}
}

// openFiles lists the open files of this process.
func openFiles(t *testing.T) (list []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err == nil { // the directory's own is closed
			list = append(list, to)
		}
	}
	return list
}

// Many pods whose driver hangs hold up no pod of another driver, and the report of their stop names the call.
func TestPodsOfHungDriver(t *testing.T) {
	const hung, samples = 50, 21
	r := newRig(t, nil)
	second := csidriver.Start(t, csidriver.Options{Below: []string{r.root}, Name: "other.deckhand.test"})
	q := r.registration()
	q.Name, q.Endpoint, q.Socket = second.Name, second.Endpoint, "second"
	if err := r.drivers.Register(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	other := described()
	other.Name = second.Name
	seen := seeing(described(), other)
	const early = 2 * time.Second
	free, busy := r.manage(early, seen), r.manage(early, seen)
	r.add(csidriver.Rule{Hold: true, Count: -1})
	defer func() { _ = r.driver.Release(context.Background(), 0) }()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	for i := range hung {
		running.Go(func() { _ = busy.start(ctx, types.UID(fmt.Sprint("hung-", i)), driverName, 1) })
	}
	if _, err := r.driver.Await(t.Context(), func(s csidriver.State) bool {
		return len(s.Of("NodePublishVolume")) == parallel
	}); err != nil {
		t.Fatal(err)
	}
	took := map[*managed][]time.Duration{}
	for i := range samples {
		for j, m := range []*managed{free, busy} {
			began := time.Now()
			if err := m.start(t.Context(), types.UID(fmt.Sprintf("other-%d-%d", i, j)), second.Name, 1); err != nil {
				t.Error(err)
			}
			took[m] = append(took[m], time.Since(began))
		}
	}
	for _, list := range took {
		slices.Sort(list)
	}
	without, with := took[free][samples/2], took[busy][samples/2]
	t.Logf("a pod starts within %s, and within %s beside %d pods whose driver hangs", without, with, hung)
	if with > without*3/2+10*time.Millisecond {
		t.Error("the driver that hangs delays pods of another driver")
	}
	s, err := r.driver.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uid := strings.Split(strings.TrimPrefix(s.Of("NodePublishVolume")[0].Target, r.root+"/pods/"), "/")[0]
	err = busy.stop(t.Context(), types.UID(uid))
	if err == nil || !strings.Contains(err.Error(), `volume "data-0": still being unmounted after 2s: NodeUnpublishVolume`+
		` waits for other calls of the CSI driver `+driverName) {
		t.Errorf("stopped: %v", err)
	}
}

// The call for a staged volume that a driver doesn't answer is reported to the pod that waits for it.
func TestHungUnstage(t *testing.T) {
	r := newRig(t, nil, "STAGE_UNSTAGE_VOLUME")
	s := sequence{rig: r}
	s.restart(time.Minute)
	q := s.of("u-c")
	if err := s.use(q); err != nil {
		t.Fatal(err)
	}
	if err := s.plugin.Unmount(t.Context(), q.Place, nil); err != nil {
		t.Fatal(err)
	}
	r.add(csidriver.Rule{Method: "NodeUnstageVolume", Hold: true})
	said, left := make(chan string, 10), make(chan error, 1)
	go func() {
		left <- s.stages.Leave(t.Context(), s.plugin.Name(), userOf(q), func(text string) { said <- text })
	}()
	const want = "the CSI driver " + driverName + " hasn't answered NodeUnstageVolume yet"
	for text := range said {
		if text == want {
			break
		}
	}
	if err := r.driver.Release(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	if last := <-said; last != "" {
		t.Errorf("after the answer it says %q", last)
	}
}
