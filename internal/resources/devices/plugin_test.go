package devices

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gpu = "example.com/gpu"

// rig is a node's manager of devices, which can be restarted.
type rig struct {
	*Manager
	t    *testing.T
	conf Config
	stop func()
	mu   sync.Mutex
	// woken are the pods that were woken, unknown those that nobody wants.
	woken   []types.UID
	unknown map[types.UID]bool
	took    int
}

func (r *rig) Registered(string) {}

func (r *rig) Allocated(string, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took++
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, unknown: map[types.UID]bool{}, stop: func() {}}
	r.conf = Config{Dir: t.TempDir(), BootID: "this", Meter: r, Log: logr.Discard(),
		Known: func(uid types.UID) bool { return !r.unknown[uid] },
		Wake: func(uid types.UID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.woken = append(r.woken, uid)
		}}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) wokenUp() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.woken)
}

// start starts the manager as a new agent does.
func (r *rig) start(change ...func(*Manager)) {
	r.t.Helper()
	r.stop()
	r.Manager = New(r.conf)
	for _, change := range change {
		change(r.Manager)
	}
	if err := r.Restore(); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	m := r.Manager
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	r.stop = func() { cancel(); running.Wait() }
	await(r.t, "its socket", func() bool {
		c, err := net.Dial("unix", Socket(r.conf.Dir))
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// await waits until something is so.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// plugs registers a plugin and waits until its devices are there.
func (r *rig) plugs(f *devicestest.Plugin) *devicestest.Plugin {
	r.t.Helper()
	if err := f.Register(); err != nil {
		r.t.Fatal(err)
	}
	r.await(v1.ResourceName(f.Resource), len(f.Devices), func() (n int) {
		for _, d := range f.Devices {
			if d.Health == api.Healthy {
				n++
			}
		}
		return n
	}())
	await(r.t, "the record", func() bool {
		d, err := read(r.conf.Dir)
		return err == nil && d != nil && len(d.Data.RegisteredDevices[f.Resource]) == len(f.Devices)
	})
	return f
}

// current is the plugin that has the devices.
func (r *rig) current() *plugin {
	r.Manager.mu.RLock()
	defer r.Manager.mu.RUnlock()
	return r.resources[gpu].plugin
}

// await waits until a resource has this capacity, and so much of it is allocatable.
func (r *rig) await(resource v1.ResourceName, capacity, allocatable int) {
	r.t.Helper()
	await(r.t, "amounts", func() bool {
		a := r.Amounts()
		c, ok := a.Capacity[resource]
		b := a.Allocatable[resource]
		return ok && int(c.Value()) == capacity && int(b.Value()) == allocatable
	})
}

type ask struct {
	name  string
	count int64
	init  bool
	stays bool
}

// wants is a pod whose containers ask for devices.
func wants(uid types.UID, resourceName v1.ResourceName, asks ...ask) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid}}
	for _, a := range asks {
		c := v1.Container{Name: a.name}
		if a.count > 0 {
			l := v1.ResourceList{resourceName: *resource.NewQuantity(a.count, resource.DecimalSI)}
			c.Resources = v1.ResourceRequirements{Limits: l, Requests: l}
		}
		if a.stays {
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		if a.init || a.stays {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func one(uid types.UID) *v1.Pod { return wants(uid, gpu, ask{name: "main", count: 1}) }

// ids are what a pod's containers have of the resource.
func (r *rig) ids(uid types.UID, container string) []string {
	r.Manager.mu.RLock()
	defer r.Manager.mu.RUnlock()
	p := r.pods[uid]
	if p == nil || p.containers[container][gpu] == nil {
		return nil
	}
	return p.containers[container][gpu].ids
}

// TestRefusedPlugins: a plugin that can't be used is told why, at once.
func TestRefusedPlugins(t *testing.T) {
	r := newRig(t)
	f := devicestest.New(t, r.conf.Dir, gpu, "a")
	devicestest.New(t, filepath.Dir(r.conf.Dir), gpu, "a") // where it shouldn't be
	if err := os.Symlink(Socket(r.conf.Dir), filepath.Join(r.conf.Dir, "link.sock")); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*api.RegisterRequest){
		"itself by a link": func(q *api.RegisterRequest) { q.Endpoint = "link.sock" },
		"version":          func(q *api.RegisterRequest) { q.Version = "v1alpha" },
		"resource":         func(q *api.RegisterRequest) { q.ResourceName = "kubernetes.io/gpu" },
		"no slash":         func(q *api.RegisterRequest) { q.ResourceName = "gpu" },
		"elsewhere":        func(q *api.RegisterRequest) { q.Endpoint = "../gpu.sock" },
		"no file":          func(q *api.RegisterRequest) { q.Endpoint = ".." },
		"odd":              func(q *api.RegisterRequest) { q.Endpoint = "a\nb\x00" },
		"itself":           func(q *api.RegisterRequest) { q.Endpoint = "kubelet.sock" },
		"nobody":           func(q *api.RegisterRequest) { q.Endpoint = "other.sock" },
	} {
		if err := f.Register(change); err == nil {
			t.Errorf("%s: registered", name)
		}
	}
	f.Will(func() { f.OptionsErr = errors.New("broken") })
	if err := f.Register(); err == nil {
		t.Error("registered without options")
	}
	if a := r.Amounts(); len(a.Capacity) > 0 {
		t.Errorf("the node has %v", a.Capacity)
	}
	// Of one that can't list its devices the node has none, and waits for another registration.
	f.Will(func() { f.OptionsErr, f.ListErr = nil, errors.New("broken") })
	if err := f.Register(); err != nil {
		t.Fatal(err)
	}
	await(t, "a resource of which there is none", func() bool {
		a := r.Amounts()
		_, known := a.Capacity[gpu]
		return known && a.Awaited[gpu]
	})
	r.await(gpu, 0, 0)
	f.Will(func() { f.ListErr = nil })
	r.plugs(f)
}

// TestAPluginThatLies: devices that are listed twice count once, at their worst; those without a name don't count. Nobody hears of that all the time.
func TestAPluginThatLies(t *testing.T) {
	r := newRig(t)
	var told atomic.Int32
	r.conf.Log = funcr.New(func(_, line string) {
		if strings.Contains(line, "isn't as it should be") {
			told.Add(1)
		}
	}, funcr.Options{})
	r.start()
	f := devicestest.New(t, r.conf.Dir, gpu)
	f.Devices = []*api.Device{devicestest.Device("a", api.Healthy), devicestest.Device("a", api.Healthy), devicestest.Device("b", api.Unhealthy), devicestest.Device("b", api.Healthy), devicestest.Device("c", api.Healthy), devicestest.Device("c", "odd"), devicestest.Device("", api.Healthy)}
	if err := f.Register(); err != nil {
		t.Fatal(err)
	}
	r.await(gpu, 3, 1)
	for range 3 {
		r.listed(t.Context(), r.current(), f.Devices)
	}
	if n := told.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
	f.Set(func() {
		f.Devices, f.Options = devicestest.Healthy("a", "b", "c"), &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
	})
	r.await(gpu, 3, 3)
	if err := f.Register(); err != nil { // with other options
		t.Fatal(err)
	}
	await(t, "options", func() bool {
		r.Manager.mu.RLock()
		defer r.Manager.mu.RUnlock()
		s := r.resources[gpu]
		return s.plugin != nil && s.plugin.options.GetPreferredAllocationAvailable
	})
	if err := r.Assign(t.Context(), one("first")); err != nil {
		t.Fatal(err)
	}
	// What it prefers is unknown, taken already, and named twice.
	f.Will(func() { f.Preferred = []string{"zebra", "a", "c", "c"} })
	if err := r.Assign(t.Context(), wants("second", gpu, ask{name: "main", count: 2})); err != nil {
		t.Fatal(err)
	}
	if got := r.ids("second", "main"); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("the second pod has %v", got)
	}
	if want := []string{"b", "c"}; !slices.Equal(f.Asked[len(f.Asked)-1], want) {
		t.Errorf("the plugin could choose of %v, want %v", f.Asked[len(f.Asked)-1], want)
	}
	f.Will(func() { f.NoPreference = true })
	r.Release("second")
	if err := r.Assign(t.Context(), wants("second", gpu, ask{name: "main", count: 2})); err != nil || len(r.ids("second", "main")) != 2 {
		t.Errorf("without a preference the second pod has %v, %v", r.ids("second", "main"), err)
	}
	f.Will(func() { f.Answers = 2 })
	err := r.Assign(t.Context(), one("third"))
	if err == nil || r.ids("third", "main") != nil {
		t.Errorf("a device that doesn't exist was assigned: %v", err)
	}
	f.Set(func() { f.Devices = devicestest.Healthy("a", "b", "c", "d") })
	r.await(gpu, 4, 4)
	if reason := rejection(r.Assign(t.Context(), one("third"))); reason != "UnexpectedAdmissionError" || r.ids("third", "main") != nil {
		t.Errorf("an answer for two containers: %q, %v", reason, r.ids("third", "main"))
	}
}

// TestHealth: what isn't healthy is given to nobody new, stays where it is, and the pod that has it is woken.
func TestHealth(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	if err := r.Assign(t.Context(), one("p")); err != nil {
		t.Fatal(err)
	}
	is := func(want v1.ResourceHealthStatus) {
		t.Helper()
		await(t, string(want), func() bool {
			h := r.Health("p")["main"]
			return len(h) == 1 && h[0].Name == gpu && len(h[0].Resources) == 1 && h[0].Resources[0].ResourceID == "a" && h[0].Resources[0].Health == want
		})
	}
	is(v1.ResourceHealthStatusHealthy)
	f.Set(func() {
		f.Devices = []*api.Device{devicestest.Device("a", api.Unhealthy), devicestest.Device("b", api.Unhealthy)}
	})
	r.await(gpu, 2, 0)
	is(v1.ResourceHealthStatusUnhealthy)
	await(t, "the pod to be woken", func() bool { return slices.Contains(r.wokenUp(), "p") })
	if got := r.ids("p", "main"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the pod has %v", got)
	}
	if d, err := provided(t, r.Manager, one("p"), &one("p").Spec.Containers[0]); err != nil || len(d.Devices) != 1 {
		t.Errorf("it is made again with %v, %v", d, err)
	}
	if err := r.Assign(t.Context(), one("q")); wait(err) != "Room" {
		t.Errorf("another pod: %v", err)
	}
	if got := r.Unallocatable(); len(got) != 1 || got[gpu] != 1 {
		t.Errorf("unallocatable, and with pods: %v", got)
	}
	f.Set(func() { f.Devices = devicestest.Healthy("b") })
	r.await(gpu, 1, 1)
	if got := r.Unallocatable(); got[gpu] != 1 {
		t.Errorf("the pod's device isn't there any more: unallocatable %v", got)
	}
	f.Die()
	is(v1.ResourceHealthStatusUnknown)
	await(t, "nothing that is unallocatable while the plugin is away", func() bool { return len(r.Unallocatable()) == 0 })
}

// TestTheSameAgain: only those are woken whom a list concerns, and by a plugin that lists others all the time nobody is all the time, nor is that recorded.
func TestTheSameAgain(t *testing.T) {
	r := newRig(t)
	r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	if err := r.Assign(t.Context(), one("p")); err != nil {
		t.Fatal(err)
	}
	broken := func(id string) *api.Device { return devicestest.Device(id, api.Unhealthy) }
	began := time.Now()
	for range 500 {
		r.listed(t.Context(), r.current(), []*api.Device{broken("a"), broken("b")})
		r.listed(t.Context(), r.current(), devicestest.Healthy("a", "b"))
	}
	await(t, "the pod to be woken", func() bool { return len(r.wokenUp()) > 0 })
	if woken, most := len(r.wokenUp()), 2+int(time.Since(began)/gap); woken > most {
		t.Errorf("the pod was woken %d times, at most %d may be", woken, most)
	}
	for _, list := range [][]*api.Device{devicestest.Healthy("a", "b", "c"), devicestest.Healthy("a", "b", "d")} {
		r.listed(t.Context(), r.current(), list)
	}
	r.stop() // nobody is woken, looks, or records from now on
	if d, err := read(r.conf.Dir); err != nil || !slices.Contains(d.Data.RegisteredDevices[gpu], "d") {
		t.Errorf("when the agent has ended, recorded are %v, %v", d, err)
	}
	next := &plugin{resource: gpu, number: 2, options: &api.DevicePluginOptions{}}
	recorded := func(what string, others int, list []*api.Device) {
		t.Helper()
		var ids []string
		for _, device := range list {
			ids = append(ids, device.ID)
		}
		slices.Sort(ids)
		if n := len(r.relisted); n != others {
			t.Fatalf("%s: to be recorded %d times, want %d", what, n, others)
		}
		for due := others; due >= 0; due-- { // nothing is written by who lists
			d, err := read(r.conf.Dir)
			if err != nil {
				t.Fatal(err)
			}
			if is := slices.Equal(d.Data.RegisteredDevices[gpu], ids) && slices.Contains(d.PreStart, gpu) == next.options.PreStartRequired; is != (due == 0) {
				t.Errorf("%s, %d to be recorded: recorded are %v and %v", what, due, d.Data.RegisteredDevices, d.PreStart)
			}
			if due > 0 {
				<-r.relisted
				r.recordLists()
			}
		}
	}
	for _, step := range []struct {
		what  string
		list  []*api.Device
		woken int
		looks int
		other int
	}{
		{"the plugin is back", devicestest.Healthy("a", "b"), 1, 1, 1},
		{"the same again", devicestest.Healthy("b", "a"), 0, 0, 0},
		{"another's device", []*api.Device{devicestest.Device("a", api.Healthy), broken("b")}, 0, 1, 0},
		{"the pod's", []*api.Device{broken("a"), broken("b")}, 1, 1, 0},
		{"the same again", []*api.Device{broken("a"), broken("b")}, 0, 0, 0},
		{"one isn't there any more", []*api.Device{broken("b")}, 1, 1, 1},
		{"another one", []*api.Device{broken("b"), broken("c")}, 0, 1, 1},
	} {
		_ = r.affected.Drain()
		select {
		case <-r.changed.Slot:
		default:
		}
		r.listed(t.Context(), next, step.list)
		if woken, looks := len(r.affected.Drain()), len(r.changed.Slot); woken != step.woken || looks != step.looks {
			t.Errorf("%s: %d pods are woken, want %d; looked at %d times, want %d", step.what, woken, step.woken, looks, step.looks)
		}
		recorded(step.what, step.other, step.list)
	}
	next.options.PreStartRequired = true
	last := []*api.Device{broken("b"), broken("c")}
	r.listed(t.Context(), next, last)
	recorded("with another option", 1, last)
	err := r.Manager.Register(t.Context(), pluginwatch.Registration{Name: gpu, Endpoint: filepath.Join(r.conf.Dir, "gpu.sock"), Versions: []string{api.Version}})
	if err == nil || !strings.Contains(err.Error(), "the agent is ending") {
		t.Errorf("after the end: %v", err)
	}
}

// TestALostPlugin: its devices are allocatable no more at once, and count for the capacity for 5 minutes.
func TestALostPlugin(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	f.Die()
	r.await(gpu, 2, 0)
	if !r.Amounts().Awaited[gpu] || wait(r.Assign(t.Context(), one("p"))) != "Plugin" {
		t.Error("the plugin isn't waited for")
	}
	within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r.AwaitChange(within, time.Time{}) // of which the loss is the last
	r.Manager.mu.Lock()
	r.resources[gpu].until = r.resources[gpu].until.Add(-r.limits.absent)
	r.Manager.mu.Unlock()
	r.look.Wake()
	if !r.AwaitChange(within, time.Time{}) {
		t.Error("nobody hears of it")
	}
	r.await(gpu, 0, 0)
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.await(gpu, 0, 0)
	f.Serve()
	r.plugs(f)
	if err := r.Assign(t.Context(), one("p")); err != nil || r.Amounts().Awaited[gpu] {
		t.Errorf("with the plugin back: %v", err)
	}
	// Another one takes its place: the end of the first is none.
	next := devicestest.New(t, r.conf.Dir, "example.com/gpu", "a", "b", "c")
	r.plugs(next)
	f.Die()
	if err := r.Assign(t.Context(), one("q")); err != nil {
		t.Error(err)
	}
}

// TestRollingUpdate: of two plugins of a resource the one that registered last has it, whatever the one before still lists.
func TestRollingUpdate(t *testing.T) {
	r := newRig(t)
	old := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a"))
	before := r.current()
	if err := old.Register(); err != nil {
		t.Fatal(err)
	}
	await(t, "the next one", func() bool { return r.current() != before })
	next := r.current()
	r.listed(t.Context(), before, devicestest.Healthy("a", "b")) // which was under way
	stopped, stop := context.WithCancel(t.Context())
	stop()
	r.listed(stopped, &plugin{resource: gpu, number: next.number + 1, options: &api.DevicePluginOptions{}, stop: func() {}}, devicestest.Healthy("a", "b", "c"))
	if r.current() != next {
		t.Error("the one before has it again")
	}
	r.await(gpu, 1, 1)
	await(t, "the one before to be left", func() bool {
		r.Manager.mu.RLock()
		defer r.Manager.mu.RUnlock()
		return len(r.followed) == 1
	})
}

// TestPending: a plugin that has registered and lists nothing yet ends with its socket, and with its next registration.
func TestPending(t *testing.T) {
	r := newRig(t)
	f := devicestest.New(t, r.conf.Dir, gpu, "a")
	f.Will(func() { f.Mute = true })
	follows := func(want int) {
		t.Helper()
		await(t, "plugins that are followed", func() bool {
			r.Manager.mu.RLock()
			defer r.Manager.mu.RUnlock()
			return len(r.followed) == want
		})
	}
	q := pluginwatch.Registration{Name: gpu, Endpoint: filepath.Join(r.conf.Dir, "gpu.sock"), Socket: "announced", Versions: []string{api.Version}}
	if err := r.Manager.Register(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	follows(1)
	r.Gone(q)
	follows(0)
	for range 3 {
		if err := f.Register(); err != nil {
			t.Fatal(err)
		}
	}
	follows(1)
	f.Set(func() { f.Mute = false })
	r.await(gpu, 1, 1)
	r.Gone(q) // whose socket isn't that of the one that is followed
	f.Set(func() { f.Devices = devicestest.Healthy("a", "b") })
	r.await(gpu, 2, 2)
}

// TestSockets: nobody but root can reach the socket, and plugins learn of a new agent by theirs being removed.
func TestSockets(t *testing.T) {
	r := newRig(t)
	devicestest.New(t, r.conf.Dir, gpu, "a")
	if err := os.WriteFile(filepath.Join(r.conf.Dir, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	entries, err := os.ReadDir(r.conf.Dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	if info, err := os.Lstat(Socket(r.conf.Dir)); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

var errRefused = status.Error(codes.Internal, "out of order")

// provided is what a container is created with for its devices.
func provided(t *testing.T, m *Manager, p *v1.Pod, c *v1.Container) (d translate.Devices, err error) {
	t.Helper()
	err = m.Provide(t.Context(), p, c, &d)
	return d, err
}
