package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	csidriver "github.com/deckhand-node/deckhand/test/csidriver/driver"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// calls counts calls by driver, method and code.
type calls struct {
	mu sync.Mutex
	of map[string]int
}

func (c *calls) CSICall(driver, method, code string, migrated bool, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if migrated {
		code += " migrated"
	}
	c.of[driver+" "+method+" "+code]++
}

// rig is the plugin with a driver that runs in a process of its own.
type rig struct {
	*testing.T
	root    string
	driver  *csidriver.Process
	board   *nodefacts.Board
	drivers *Drivers
	plugin  Plugin
	meter   *calls
	woken   chan pod.Object
}

// newRig starts a driver with these capabilities, and registers it.
func newRig(t *testing.T, change func(*Config), capabilities ...string) *rig {
	return startRig(t, csidriver.Options{Capabilities: capabilities}, change)
}

func startRig(t *testing.T, o csidriver.Options, change func(*Config)) *rig {
	t.Helper()
	root, err := os.MkdirTemp("", "deckhand-test-csi-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	r := &rig{T: t, root: root, meter: &calls{of: map[string]int{}}, woken: make(chan pod.Object, 100)}
	o.Below = []string{root}
	r.driver = csidriver.Start(t, o)
	r.restart(change)
	r.register()
	return r
}

// restart replaces the plugin by one that has done nothing yet, as a restart of the agent does.
func (r *rig) restart(change func(*Config)) {
	r.board = nodefacts.NewBoard(nodefacts.Facts{})
	facts, err := r.board.Writer("test", nodefacts.CSIDrivers)
	if err != nil {
		r.Fatal(err)
	}
	c := Config{Facts: facts, Meter: r.meter, Log: logr.Discard(), Changed: func(all ...pod.Object) {
		for _, o := range all {
			select {
			case r.woken <- o:
			default: // nobody looks
			}
		}
	}}
	if change != nil {
		change(&c)
	}
	r.drivers = NewDrivers(c)
	r.plugin = NewPlugin(r.drivers, r.root)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.drivers.Run(ctx) }()
	r.Cleanup(func() { cancel(); <-done })
}

func (r *rig) registration() pluginwatch.Registration {
	return pluginwatch.Registration{Type: "CSIPlugin", Name: driverName, Endpoint: r.driver.Endpoint,
		Socket: r.driver.Endpoint + "-reg", Versions: []string{"1.0.0"}}
}

func (r *rig) register() {
	r.Helper()
	if err := r.drivers.Register(r.Context(), r.registration()); err != nil {
		r.Fatal(err)
	}
}

// called lists the calls since the last time, but for those of registrations.
func (r *rig) called() (list []string) {
	r.Helper()
	s, err := r.driver.State(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, c := range s.Calls {
		if name, ok := strings.CutPrefix(c.Method, "Node"); ok && !strings.HasPrefix(name, "Get") {
			list = append(list, strings.TrimSuffix(name, "Volume")+" "+c.Code)
		}
	}
	if err := r.driver.Clear(r.Context()); err != nil {
		r.Fatal(err)
	}
	return list
}

func (r *rig) wantCalls(want ...string) {
	r.Helper()
	if got := r.called(); !slices.Equal(got, want) {
		r.Errorf("the driver was called %q, want %q", got, want)
	}
}

func (r *rig) add(rule csidriver.Rule) {
	r.Helper()
	if _, err := r.driver.Add(r.Context(), rule); err != nil {
		r.Fatal(err)
	}
}

// unmount unmounts the volume and checks that nothing is left of it.
func (r *rig) unmount(at volume.Place) {
	r.Helper()
	if err := r.plugin.Unmount(r.Context(), at, nil); err != nil {
		r.Fatal(err)
	}
	r.empty(at.Dir)
}

// empty fails unless nothing is left in the directory.
func (r *rig) empty(dir string) {
	r.Helper()
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Errorf("left in %s: %v, %v", dir, left, err)
	}
}

func (r *rig) mount(q volume.Request) volume.Mounted {
	r.Helper()
	m, err := r.plugin.Mount(r.Context(), q)
	if err != nil {
		r.Fatal(err)
	}
	return m
}

func TestInlineVolume(t *testing.T) {
	r := newRig(t, nil)
	if got := r.board.Now().CSIDrivers; len(got) != 1 || got[0].Name != driverName || got[0].NodeID != "node1" {
		t.Errorf("on the board: %+v", got)
	}
	q := asking(inline(), r.root, seeing(described(podInfoOn)))
	m := r.mount(q)
	if want := filepath.Join(q.Dir, "mount"); m.Path != want || m.ReadOnly || m.Ownership || !isMount(q.Dir, "mount") {
		t.Errorf("mounted %+v, want %s", m, want)
	}
	text, err := os.ReadFile(filepath.Join(m.Path, "volume_context"))
	got := map[string]string{}
	if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil || got["csi.storage.k8s.io/pod.name"] != "web" {
		t.Errorf("the volume has %s: %v", text, err)
	}
	r.wantCalls("Publish OK")

	// Containers use it, the agent restarts, and the driver is away: nothing is asked for.
	r.restart(nil)
	q.InUse = true
	if again := r.mount(q); again.Path != m.Path {
		t.Errorf("after a restart: %+v", again)
	}
	if err := r.plugin.Unmount(t.Context(), q.Place, nil); !awaitsDriver(err) {
		t.Errorf("unmounted without a driver: %v", err)
	}
	r.wantCalls()
	r.register()
	select {
	case o := <-r.woken:
		if o != awaited(driverName) {
			t.Errorf("woken for %s", o)
		}
	default:
		t.Error("pods that wait for the driver weren't woken")
	}
	r.unmount(q.Place)
	r.unmount(q.Place) // again
	r.wantCalls("Unpublish OK")
	r.driver.CheckLaw(t)
	const publish = driverName + " /csi.v1.Node/NodePublishVolume OK"
	if r.meter.of[publish] != 1 {
		t.Errorf("metrics: %v", r.meter.of)
	}
}

func awaitsDriver(err error) bool {
	awaits, ok := errors.AsType[*volume.AwaitsError](err)
	return ok && awaits.Object == awaited(driverName)
}

// What a failed call leaves behind follows from its code, and from what may have been there before.
func TestFailedPublish(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Patience = 3 * time.Second })
	for name, c := range map[string]struct {
		// earlier is the rule for a call before, if any.
		earlier, rule csidriver.Rule
		// holds says that the driver may hold the volume afterwards.
		holds bool
		text  string
	}{
		"refused": {rule: csidriver.Rule{Do: csidriver.Fail, Code: codes.InvalidArgument, Message: "no\nsuch"},
			text: "code = InvalidArgument desc = no such"},
		"internal": {rule: csidriver.Rule{Do: csidriver.Fail, Code: codes.Internal}, text: "code = Internal"},
		"busy":     {rule: csidriver.Rule{Do: csidriver.Fail, Code: codes.Aborted}, holds: true, text: "code = Aborted"},
		"cut":      {rule: csidriver.Rule{Do: csidriver.Cut, After: true}, holds: true, text: "code = Unavailable"},
		"hangs":    {rule: csidriver.Rule{Hold: true}, holds: true, text: "code = DeadlineExceeded"},
		"refused after a call whose result isn't certain": {
			earlier: csidriver.Rule{Do: csidriver.Fail, Code: codes.Unavailable, After: true},
			rule:    csidriver.Rule{Do: csidriver.Fail, Code: codes.InvalidArgument}, holds: true,
			text: "code = InvalidArgument"},
	} {
		t.Run(name, func(t *testing.T) {
			r.T = t
			p := inline(func(p *v1.Pod, _ *v1.CSIVolumeSource) { p.UID = types.UID(strings.ReplaceAll(name, " ", "-")) })
			q := asking(p, r.root, seeing(described()))
			if c.earlier.Do != "" {
				c.earlier.Method = "NodePublishVolume"
				r.add(c.earlier)
				if _, err := r.plugin.Mount(t.Context(), q); err == nil {
					t.Fatal("the earlier call succeeded")
				}
			}
			c.rule.Method = "NodePublishVolume"
			r.add(c.rule)
			_, err := r.plugin.Mount(t.Context(), q)
			if err == nil || !strings.Contains(err.Error(),
				"CSI driver csi.deckhand.test: NodePublishVolume: rpc error: "+c.text) {
				t.Errorf("error %v", err)
			}
			if _, err := readRecord(q.Dir); errors.Is(err, os.ErrNotExist) == c.holds {
				t.Errorf("the record: %v", err)
			}
			if err := r.driver.Release(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			r.settle()
			r.called()
			r.unmount(q.Place)
			if c.holds {
				r.wantCalls("Unpublish OK")
			} else {
				r.wantCalls()
			}
			r.driver.CheckLaw(t)
		})
	}
}

// settle waits until the driver works on no call.
func (r *rig) settle() {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	if _, err := r.driver.Await(ctx, func(s csidriver.State) bool {
		return !slices.ContainsFunc(s.Calls, func(c csidriver.Call) bool { return c.Code == "" })
	}); err != nil {
		r.Fatal(err)
	}
}

// A volume whose unpublishing has begun isn't used without another call, even by an agent that knows nothing of it.
func TestFailedUnpublish(t *testing.T) {
	r := newRig(t, nil)
	q := asking(inline(), r.root, seeing(described()))
	r.mount(q)
	for _, code := range []codes.Code{codes.Internal, codes.Unavailable} {
		r.add(csidriver.Rule{Method: "NodeUnpublishVolume", Do: csidriver.Fail, Code: code})
		if err := r.plugin.Unmount(t.Context(), q.Place, nil); err == nil ||
			!strings.Contains(err.Error(), "NodeUnpublishVolume: rpc error: code = "+code.String()) {
			t.Errorf("error %v", err)
		}
		if !isMount(q.Dir, targetName) {
			t.Error("it was unmounted behind the driver's back")
		}
	}
	r.called()
	r.restart(nil)
	r.register()
	q.InUse = true
	r.mount(q)
	r.wantCalls("Publish OK")
	r.mount(q)
	r.wantCalls()
	// A driver that leaves the volume mounted.
	r.add(csidriver.Rule{Method: "NodeUnpublishVolume", Do: csidriver.Skip})
	r.unmount(q.Place)
}

// A driver that says that it has published a volume, but made no directory.
func TestNothingPublished(t *testing.T) {
	r := newRig(t, nil)
	q := asking(inline(), r.root, seeing(described()))
	r.add(csidriver.Rule{Method: "NodePublishVolume", Do: csidriver.Skip})
	if _, err := r.plugin.Mount(t.Context(), q); err == nil || !strings.Contains(err.Error(), "isn't a directory") {
		t.Errorf("error %v", err)
	}
	r.unmount(q.Place)
	r.wantCalls("Publish OK", "Unpublish OK")
}

// Of a name's registrations the newest is used, whatever its version; if that goes first, the older one is used again.
func TestNewestRegistration(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Absent = 2 * time.Second })
	second := csidriver.Start(t, csidriver.Options{Below: []string{r.root}, NodeID: "node2"})
	newer := r.registration()
	newer.Endpoint, newer.Socket = second.Endpoint, "second"
	if err := r.drivers.Register(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	nodeID := func() string {
		if list := r.board.Now().CSIDrivers; len(list) > 0 {
			return list[0].NodeID
		}
		return ""
	}
	q := asking(inline(), r.root, seeing(described()))
	first := r.driver
	publishes := func(want *csidriver.Process) {
		t.Helper()
		r.driver = want
		r.mount(q)
		r.wantCalls("Publish OK")
	}
	publishes(second)
	if nodeID() != "node2" {
		t.Errorf("on the board: %s", nodeID())
	}
	r.drivers.Gone(newer)
	publishes(first)
	changed, stop := r.board.Watch(nodefacts.CSIDrivers)
	defer stop()
	await(t, changed, "the older one on the board", func() bool { return nodeID() == "node1" })
	if err := r.drivers.Register(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	r.drivers.Gone(pluginwatch.Registration{Name: driverName, Socket: first.Endpoint + "-reg"})
	publishes(second)
	// The last one goes: its entry stays while a driver's next pod starts, because a volume is there.
	r.drivers.Gone(newer)
	if nodeID() != "node2" {
		t.Error("gone at once, with a volume")
	}
	await(t, changed, "the driver to go", func() bool { return nodeID() == "" })
	if _, err := r.plugin.Mount(t.Context(), q); !awaitsDriver(err) {
		t.Errorf("mounted without a driver: %v", err)
	}
}

func await(t *testing.T, changed <-chan struct{}, what string, so func() bool) {
	t.Helper()
	late := time.After(30 * time.Second)
	for !so() {
		select {
		case <-changed:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A registration that can't be used changes nothing.
func TestRefusedRegistrations(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Patience = 3 * time.Second })
	other := csidriver.Start(t, csidriver.Options{Name: "other.deckhand.test"})
	before := r.board.Now().CSIDrivers
	for name, c := range map[string]struct {
		rule csidriver.Rule
		of   *csidriver.Process
		want string
	}{
		"another name":      {of: other, want: `is the driver "other.deckhand.test"`},
		"NodeGetInfo hangs": {csidriver.Rule{Method: "NodeGetInfo", Hold: true}, r.driver, "DeadlineExceeded"},
		"NodeGetInfo fails": {csidriver.Rule{Method: "NodeGetInfo", Do: csidriver.Fail, Code: codes.Internal}, r.driver,
			"Internal"},
		"it dies": {csidriver.Rule{Method: "NodeGetCapabilities", Do: csidriver.Cut}, r.driver, "Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rule.Method != "" {
				if _, err := c.of.Add(t.Context(), c.rule); err != nil {
					t.Fatal(err)
				}
			}
			q := r.registration()
			q.Endpoint, q.Socket = c.of.Endpoint, "another"
			err := r.drivers.Register(t.Context(), q)
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.HasPrefix(err.Error(), "CSI driver "+driverName) {
				t.Errorf("error %v", err)
			}
			if got := r.board.Now().CSIDrivers; len(got) != 1 || got[0].Generation != before[0].Generation {
				t.Errorf("on the board: %+v", got)
			}
			if err := c.of.Release(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// With an API server, a driver has registered once the CSINode object has its entry.
func TestEntryOfDriver(t *testing.T) {
	r := newRig(t, nil)
	withBoard := func(c *Config) { c.Board, c.Written = r.board, 3*time.Second }
	r.restart(withBoard)
	written, err := r.board.Writer("entries", nodefacts.CSINode)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(refused string) error {
		done := make(chan error, 1)
		go func() { done <- r.drivers.Register(t.Context(), r.registration()) }()
		changed, stop := r.board.Watch(nodefacts.CSIDrivers)
		defer stop()
		await(t, changed, "the driver on the board", func() bool { return len(r.board.Now().CSIDrivers) == 1 })
		generation := r.board.Now().CSIDrivers[0].Generation
		written.Set(func(f *nodefacts.Facts) {
			f.CSINode = map[string]nodefacts.CSIEntry{driverName: {Generation: generation, Refused: refused}}
		})
		return <-done
	}
	if err := answer("label zone is b"); err == nil || !strings.Contains(err.Error(), "label zone is b") {
		t.Errorf("refused: %v", err)
	}
	changed, stop := r.board.Watch(nodefacts.CSIDrivers)
	defer stop()
	await(t, changed, "the refused driver to go", func() bool { return len(r.board.Now().CSIDrivers) == 0 })
	if err := answer(""); err != nil {
		t.Errorf("written: %v", err)
	}
	// The API server is away: the driver is used all the same.
	if err := r.drivers.Register(t.Context(), r.registration()); err != nil {
		t.Errorf("not written: %v", err)
	}
	r.mount(asking(inline(), r.root, seeing(described())))
}

// requiresRepublish publishes again, and a failure changes nothing about the volume (kubernetes/kubernetes#121271).
func TestRepublish(t *testing.T) {
	r := newRig(t, nil)
	again := described(podInfoOn, func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = ptr.To(true) })
	q := asking(inline(), r.root, seeing(again))
	r.mount(q)
	r.called()
	for _, code := range []codes.Code{codes.Internal, codes.Unavailable, codes.OK} {
		if code != codes.OK {
			r.add(csidriver.Rule{Method: "NodePublishVolume", Do: csidriver.Fail, Code: code})
		}
		if _, err := r.plugin.Refresh(t.Context(), q); (err == nil) != (code == codes.OK) {
			t.Errorf("%s: %v", code, err)
		}
		if !isMount(q.Dir, targetName) {
			t.Fatalf("%s: the volume isn't mounted any more", code)
		}
	}
	r.wantCalls("Publish Internal", "Publish Unavailable", "Publish OK")
	q.Objects = seeing(described())
	if _, err := r.plugin.Refresh(t.Context(), q); err != nil {
		t.Error(err)
	}
	r.wantCalls()
	r.unmount(q.Place)
	r.driver.CheckLaw(t)
}

// A hung driver holds up no other, and says what it hangs in.
func TestHungDriver(t *testing.T) {
	r := newRig(t, nil)
	r.add(csidriver.Rule{Method: "NodePublishVolume", Hold: true, Count: -1})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	said := make(chan string, 1000)
	for i := range parallel + 4 {
		p := inline(func(p *v1.Pod, _ *v1.CSIVolumeSource) { p.UID = types.UID(fmt.Sprint("hung-", i)) })
		q := asking(p, r.root, seeing(described()))
		q.Say = func(text string) { said <- text }
		running.Go(func() { _, _ = r.plugin.Mount(ctx, q) })
	}
	if _, err := r.driver.Await(t.Context(), func(s csidriver.State) bool {
		return len(s.Of("NodePublishVolume")) == parallel
	}); err != nil {
		t.Fatal(err)
	}
	second := csidriver.Start(t, csidriver.Options{Below: []string{r.root}, Name: "other.deckhand.test"})
	q := r.registration()
	q.Name, q.Endpoint, q.Socket = second.Name, second.Endpoint, "second"
	if err := r.drivers.Register(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	other := described()
	other.Name = second.Name
	r.mount(asking(inline(func(p *v1.Pod, s *v1.CSIVolumeSource) { p.UID, s.Driver = "other", second.Name }), r.root,
		seeing(other)))
	cancel()
	running.Wait()
	close(said)
	texts := map[string]int{}
	for text := range said {
		texts[text]++
	}
	if texts["the CSI driver csi.deckhand.test hasn't answered NodePublishVolume yet"] != parallel ||
		texts["NodePublishVolume waits for other calls of the CSI driver csi.deckhand.test"] < 4 {
		t.Errorf("said %v", texts)
	}
}

// claimed returns a request for a pod with a claim that is bound to a PersistentVolume of the driver, as changed.
func claimed(root string, uid types.UID, from object.View, change ...func(*v1.PersistentVolume)) volume.Request {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}, Spec: v1.PersistentVolumeSpec{
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName,
			VolumeHandle: "h/1", FSType: "ext4", VolumeAttributes: map[string]string{"a": "b"}}}}}
	for _, c := range change {
		c(pv)
	}
	p := inline(func(p *v1.Pod, _ *v1.CSIVolumeSource) {
		p.UID = uid
		p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			ClaimName: "claim"}}
	})
	return volume.Request{Pod: p, Objects: from, Spec: volume.Spec{Volume: &p.Spec.Volumes[0],
		Claim: &v1.PersistentVolumeClaim{}, Persistent: pv}, Place: volume.Place{UID: uid,
		Dir: filepath.Join(root, "pods", string(uid), "volumes/kubernetes.io~csi/pv-1")}}
}

// stage stages the volume's device, as the manager does before it mounts the volume.
func (r *rig) stage(q volume.Request) (volume.Staging, error) {
	key, dir := r.plugin.Device(q.Spec)
	g := volume.Staging{Device: key, Dir: dir, Spec: q.Spec, Pod: q.Pod, Objects: q.Objects}
	return g, r.plugin.Stage(r.Context(), g)
}

// unstage unstages a device by its record, and checks that nothing is left of it.
func (r *rig) unstage(dir string) {
	r.Helper()
	n, err := r.plugin.Note(dir)
	if err != nil {
		r.Fatal(err)
	}
	if err := r.plugin.Unstage(r.Context(), volume.Staging{Device: n.Device, Dir: dir}); err != nil {
		r.Fatal(err)
	}
	r.empty(dir)
}

// A claim's volume is staged once, with the paths and records of the kubelet.
func TestPersistentVolume(t *testing.T) {
	r := newRig(t, nil, "STAGE_UNSTAGE_VOLUME", "VOLUME_MOUNT_GROUP")
	from := seeing()
	first, second := claimed(r.root, "u-1", from), claimed(r.root, "u-2", from)
	first.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](99)}
	g, err := r.stage(first)
	if err != nil {
		t.Fatal(err)
	}
	const sum = "7dd9dec74f5c7deb11bf7dca9a40f8b28d418073d56680e53250e0c2747ed608" // sha256("h/1")
	if want := filepath.Join(r.root, "plugins/kubernetes.io/csi", driverName, sum); g.Dir != want ||
		g.Device != driverName+"^h/1" {
		t.Errorf("staged %s at %s", g.Device, g.Dir)
	}
	entries, _ := os.ReadDir(g.Dir)
	if len(entries) != 2 || entries[0].Name() != "globalmount" || entries[1].Name() != "vol_data.json" {
		t.Errorf("in the device's directory: %v", entries)
	}
	m := r.mount(first)
	if m.Ownership {
		t.Error("the driver applies the fsGroup, and the agent as well")
	}
	r.mount(second)
	if err := os.WriteFile(filepath.Join(m.Path, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(second.Dir, targetName, "file")); err != nil {
		t.Errorf("the two pods don't share the volume: %v", err)
	}
	s, err := r.driver.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume"} {
		call := s.Of(method)[0]
		var able struct {
			Mount      struct{ FsType, VolumeMountGroup string }
			AccessMode struct{ Mode string }
		}
		var staged string
		attributes := map[string]string{}
		if err := errors.Join(call.Decode("volumeCapability", &able), call.Decode("stagingTargetPath", &staged),
			call.Decode("volumeContext", &attributes)); err != nil || able.Mount.FsType != "ext4" ||
			able.Mount.VolumeMountGroup != "99" || able.AccessMode.Mode != "SINGLE_NODE_WRITER" || call.Volume != "h/1" ||
			staged != filepath.Join(g.Dir, "globalmount") || len(attributes) != 1 || attributes["a"] != "b" {
			t.Errorf("%s: %s", method, call.Request)
		}
	}
	// The agent restarts, and the driver is away.
	r.restart(nil)
	if _, err := r.stage(first); err != nil {
		t.Errorf("a staged volume without its driver: %v", err)
	}
	r.register()
	if _, err := r.stage(first); err != nil {
		t.Fatal(err)
	}
	r.unmount(first.Place)
	r.unmount(second.Place)
	r.unstage(g.Dir)
	r.wantCalls("Stage OK", "Publish OK", "Publish OK", "Unpublish OK", "Unpublish OK", "Unstage OK")
	r.driver.CheckLaw(t)
}

// A disk of a kind that the driver has replaced is staged and published like a PersistentVolume. Its name, which has
// slashes, is in the record as the kubelet has it.
func TestMigratedVolume(t *testing.T) {
	r := newRig(t, nil, "STAGE_UNSTAGE_VOLUME")
	q := claimed(r.root, "u-1", seeing())
	q.Spec.Claim, q.Spec.Migrated = nil, true
	q.Spec.Persistent.Name = "[store] dir/disk"
	q.Dir = filepath.Join(r.root, "pods/u-1/volumes/kubernetes.io~csi", q.Spec.Name())
	g, err := r.stage(q)
	if err != nil {
		t.Fatal(err)
	}
	r.mount(q)
	if had, err := readRecord(q.Dir); err != nil || had[keyVolume] != "[store] dir/disk" || had[keyLifecycle] != "Persistent" {
		t.Errorf("the record is %v, %v", had, err)
	}
	r.unmount(q.Place)
	r.unstage(g.Dir)
	r.wantCalls("Stage OK", "Publish OK", "Unpublish OK", "Unstage OK")
	// As the kubelet counts them: records don't say that a volume was migrated.
	for method, want := range map[string]string{"NodeStageVolume": "OK migrated", "NodePublishVolume": "OK migrated",
		"NodeUnpublishVolume": "OK", "NodeUnstageVolume": "OK"} {
		if key := driverName + " /csi.v1.Node/" + method + " " + want; r.meter.of[key] != 1 {
			t.Errorf("%s isn't among the calls in the metrics: %v", key, r.meter.of)
		}
	}
	r.driver.CheckLaw(t)
}

// A driver that doesn't stage volumes gets no staging path, and leaves nothing in plugins.
func TestUnstagedDriver(t *testing.T) {
	r := newRig(t, nil)
	q := claimed(r.root, "u-1", seeing())
	g, err := r.stage(q)
	if err != nil {
		t.Fatal(err)
	}
	r.empty(g.Dir)
	r.mount(q)
	s, err := r.driver.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var staged string
	if err := s.Of("NodePublishVolume")[0].Decode("stagingTargetPath", &staged); err != nil || staged != "" {
		t.Errorf("staged at %q: %v", staged, err)
	}
	r.unmount(q.Place)
	if err := r.plugin.Unstage(t.Context(), g); err != nil {
		t.Error(err)
	}
	r.wantCalls("Publish OK", "Unpublish OK")
}

// The rows of the law of calls for staging.
func TestFailedStage(t *testing.T) {
	r := newRig(t, nil, "STAGE_UNSTAGE_VOLUME")
	fail := func(method string, code codes.Code) {
		t.Helper()
		r.add(csidriver.Rule{Method: method, Do: csidriver.Fail, Code: code})
	}
	q := claimed(r.root, "u-1", seeing())
	other := claimed(r.root, "u-1", seeing(), func(pv *v1.PersistentVolume) { pv.Spec.MountOptions = []string{"noatime"} })
	failing := func(q volume.Request, text string) volume.Staging {
		t.Helper()
		g, err := r.stage(q)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("staged: %v", err)
		}
		return g
	}
	// Refused: nothing is left, and it isn't unstaged.
	fail("NodeStageVolume", codes.InvalidArgument)
	g := failing(q, "NodeStageVolume: rpc error: code = InvalidArgument")
	r.empty(g.Dir)
	if err := r.plugin.Unstage(t.Context(), g); err != nil {
		t.Error(err)
	}
	r.wantCalls("Stage InvalidArgument")
	// Uncertain: the same arguments again, whatever the driver answers.
	fail("NodeStageVolume", codes.DeadlineExceeded)
	failing(q, "DeadlineExceeded")
	fail("NodeStageVolume", codes.InvalidArgument)
	failing(q, "InvalidArgument")
	if _, err := r.stage(q); err != nil {
		t.Fatal(err)
	}
	r.wantCalls("Stage DeadlineExceeded", "Stage InvalidArgument", "Stage OK")
	// Staged with other arguments: what pods may use stays. Unless the release has begun.
	if _, err := r.stage(other); err != nil {
		t.Fatal(err)
	}
	r.wantCalls()
	fail("NodeUnstageVolume", codes.Internal)
	if err := r.plugin.Unstage(t.Context(), g); err == nil {
		t.Error("unstaged")
	}
	if _, err := r.stage(other); err != nil {
		t.Fatal(err)
	}
	r.wantCalls("Unstage Internal", "Unstage OK", "Stage OK")
	// A failed release, and the volume is wanted again: it is staged before it is published.
	fail("NodeUnstageVolume", codes.Unavailable)
	if err := r.plugin.Unstage(t.Context(), g); err == nil {
		t.Error("unstaged")
	}
	r.restart(nil)
	r.register()
	if _, err := r.stage(other); err != nil {
		t.Fatal(err)
	}
	r.mount(other)
	r.wantCalls("Unstage Unavailable", "Stage OK", "Publish OK")
	r.unmount(other.Place)
	r.unstage(g.Dir)
	r.driver.CheckLaw(t)
}

// The decision table.
func TestNext(t *testing.T) {
	const boot = "this"
	want := record{keyDriver: "d", keyHandle: "h", keyArguments: "1"}
	with := func(pairs ...string) record {
		r := record{keyDriver: "d", keyHandle: "h"}
		for i := 0; i < len(pairs); i += 2 {
			r[pairs[i]] = pairs[i+1]
		}
		return r
	}
	other := record{keyDriver: "d", keyHandle: "i", keyArguments: "1"}
	for name, c := range map[string]struct {
		found
		step step
	}{
		"no record":                           {found{err: os.ErrNotExist}, begin},
		"no record, but a mount":              {found{err: os.ErrNotExist, mounted: true}, repeat},
		"a record that can't be read":         {found{err: errors.New("torn"), mounted: true}, repeat},
		"done":                                {found{had: with(keyArguments, "1"), mounted: true}, keep},
		"done by a kubelet":                   {found{had: with(), mounted: true}, keep},
		"done with other arguments":           {found{had: with(keyArguments, "2"), mounted: true}, undo},
		"the same, for several pods":          {found{had: with(keyArguments, "2"), mounted: true, shared: true}, keep},
		"the same, in use":                    {found{had: with(keyArguments, "2"), mounted: true, used: true}, keep},
		"done without a mount, in this boot":  {found{had: with(keyArguments, "1", keyBoot, boot)}, keep},
		"in an earlier boot":                  {found{had: with(keyArguments, "1", keyBoot, "that")}, repeat},
		"not mounted, by a kubelet":           {found{had: with()}, repeat},
		"in an earlier boot, other arguments": {found{had: with(keyArguments, "2", keyBoot, "that")}, undo},
		"the same, but pods use it":           {found{had: with(keyArguments, "2"), used: true}, repeat},
		"uncertain": {found{had: with(keyArguments, "1", keyUncertain, "true"), mounted: true},
			repeat},
		"uncertain, other arguments": {found{had: with(keyArguments, "2", keyUncertain, "true"), mounted: true},
			undo},
		"the same, and pods use it": {found{had: with(keyArguments, "2", keyUncertain, "true"), mounted: true,
			used: true}, repeat},
		"another handle":                  {found{had: other, mounted: true}, undo},
		"another handle, and pods use it": {found{had: other, mounted: true, used: true}, keep},
		"another driver":                  {found{had: record{keyDriver: "e", keyHandle: "h"}, mounted: true}, undo},
	} {
		if got := c.next(want, boot); got != c.step {
			t.Errorf("%s: step %d, want %d", name, got, c.step)
		}
	}
	if got := (found{had: with()}).next(want, ""); got != repeat {
		t.Errorf("without the ID of the boot: step %d", got)
	}
}

// A failed republish leaves no doubt about the volume, not even for the next agent; and a driver that repeats a secret
// doesn't get it into messages.
func TestFailedRepublish(t *testing.T) {
	r := newRig(t, nil)
	again := described(tokens(""), func(s *storagev1.CSIDriverSpec) { s.RequiresRepublish = ptr.To(true) })
	q := asking(inline(), r.root, seeing(again))
	r.mount(q)
	r.add(csidriver.Rule{Method: "NodePublishVolume", Do: csidriver.Fail, Code: codes.Unavailable,
		Message: "bad: token for !"})
	if _, err := r.plugin.Refresh(t.Context(), q); err == nil || strings.Contains(err.Error(), "token for ") ||
		!strings.Contains(err.Error(), "bad: (secret)!") {
		t.Errorf("republished: %v", err)
	}
	r.called()
	r.restart(nil)
	q.InUse = true
	r.mount(q)
	r.wantCalls()
	r.register()
	// Without the objects that only publishing needs, there is nothing to report.
	q.Objects = seeing()
	if _, err := r.plugin.Refresh(t.Context(), q); err != nil {
		t.Errorf("without a CSIDriver object: %v", err)
	}
	r.unmount(q.Place)
}

// A volume that is staged without a mount stays staged over a restart of the agent, whatever the next pod's arguments
// are: pods use it.
func TestStagedWithoutMount(t *testing.T) {
	boot := func(c *Config) { c.BootID = "this" }
	r := newRig(t, boot, "STAGE_UNSTAGE_VOLUME", "VOLUME_MOUNT_GROUP")
	first, second := claimed(r.root, "u-1", seeing()), claimed(r.root, "u-2", seeing())
	second.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](99)}
	r.add(csidriver.Rule{Method: "NodeStageVolume", Do: csidriver.NoMount})
	g, err := r.stage(first)
	if err != nil {
		t.Fatal(err)
	}
	r.mount(first)
	r.wantCalls("Stage OK", "Publish OK")
	r.restart(boot)
	r.register()
	if _, err := r.stage(second); err != nil {
		t.Fatal(err)
	}
	r.wantCalls()
	r.unmount(first.Place)
	r.unstage(g.Dir)
	r.driver.CheckLaw(t)
}

// A call that waits for one of many calls of a driver that hangs goes to the newer registration.
func TestCallsOfReplacedDriver(t *testing.T) {
	r := newRig(t, nil)
	r.add(csidriver.Rule{Method: "NodePublishVolume", Hold: true, Count: -1})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	waits := make(chan struct{}, parallel+1)
	publish := func(ctx context.Context, i int) error {
		p := inline(func(p *v1.Pod, _ *v1.CSIVolumeSource) { p.UID = types.UID(fmt.Sprint("many-", i)) })
		q := asking(p, r.root, seeing(described()))
		q.Say = func(text string) {
			if strings.HasPrefix(text, "NodePublishVolume waits") {
				waits <- struct{}{}
			}
		}
		_, err := r.plugin.Mount(ctx, q)
		return err
	}
	for i := range parallel {
		running.Go(func() { _ = publish(ctx, i) })
	}
	if _, err := r.driver.Await(t.Context(),
		func(s csidriver.State) bool { return len(s.Of("NodePublishVolume")) == parallel }); err != nil {
		t.Fatal(err)
	}
	for range parallel {
		<-waits
	}
	waited := make(chan error, 1)
	running.Go(func() { waited <- publish(ctx, parallel) })
	<-waits
	second := csidriver.Start(t, csidriver.Options{Below: []string{r.root}})
	q := r.registration()
	q.Endpoint, q.Socket = second.Endpoint, "second"
	if err := r.drivers.Register(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waited:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the call still waits for the older registration")
	}
}
