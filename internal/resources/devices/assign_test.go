package devices

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
)

// wait is what a failure says that the pod waits for.
func wait(err error) pod.WaitFor {
	var f *pod.Failure
	if !errors.As(err, &f) {
		return pod.WaitFor(fmt.Sprint("no wait: ", err))
	}
	return f.Wait
}

// rejection is the reason for which the pod is rejected.
func rejection(err error) pod.Reason {
	var f *pod.Failure
	if !errors.As(err, &f) || !f.Rejected {
		return pod.Reason(fmt.Sprint("not rejected: ", err))
	}
	return f.Reason
}

// TestWhatContainersGet: what the plugin answers reaches the container, for every instance the same, and for agents to come; what
// doesn't ask for devices gets none.
func TestWhatContainersGet(t *testing.T) {
	r := newRig(t)
	f := devicestest.New(t, r.conf.Dir, gpu, "a", "b")
	f.Options = &api.DevicePluginOptions{PreStartRequired: true}
	f.Devices = []*api.Device{devicestest.Device("a", api.Healthy, 0, 1), devicestest.Device("b", api.Healthy)}
	r.plugs(f)
	p := wants("p", gpu, ask{name: "main", count: 2}, ask{name: "plain"})
	if err := r.Assign(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	main := &p.Spec.Containers[0]
	before, err := provided(t, r.Manager, p, main)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(before)
	for _, want := range []string{`"/dev/a"`, `"/dev/gpu"`, `"rw"`, `"example.com/gpu=a"`, `"DEVICES"`, `"/opt/gpu"`, `"/lib/gpu"`, `"readonly":true`, `"example.com/device":"a"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s isn't in %s", want, text)
		}
	}
	if d, err := provided(t, r.Manager, p, &p.Spec.Containers[1]); err != nil || len(d.Devices)+len(d.Env) > 0 {
		t.Errorf("a container that asks for nothing has %v, %v", d, err)
	}
	if err := r.PreStart(t.Context(), p, main); err != nil || !slices.Equal(f.Prestarted[0], []string{"a", "b"}) {
		t.Errorf("before the start: %v, %v", f.Prestarted, err)
	}
	f.Will(func() { f.PrestartErr = errRefused })
	if err := r.PreStart(t.Context(), p, main); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("a plugin that can't make it ready: %v", err)
	}
	f.Die()
	r.start()
	after, err := provided(t, r.Manager, p, main)
	if again, _ := json.Marshal(after); err != nil || string(again) != string(text) {
		t.Errorf("another agent without the plugin gives it %s, %v", again, err)
	}
	if err := r.PreStart(t.Context(), p, main); err == nil || !strings.Contains(err.Error(), "hasn't registered") {
		t.Errorf("a plugin that is away and has to make it ready: %v", err)
	}
	if got := r.pods["p"].containers["main"][gpu].byNode; cmp.Diff(got, map[int64][]string{0: {"a"}, 1: {"a"}, -1: {"b"}}) != "" {
		t.Errorf("by NUMA node: %v", got)
	}
	if got := r.ids("p", "main"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("another agent knows of %v", got)
	}
	if len(f.Told()) != 1 || r.took != 1 {
		t.Errorf("the plugin was told %v", f.Told())
	}
}

// TestInitContainers: what an init container had that has ended goes to the next ones; sidecars keep theirs (k/k#124345).
func TestInitContainers(t *testing.T) {
	for name, tc := range map[string]struct {
		devices int
		asks    []ask
		want    map[string][]string
	}{
		"the same": {1, []ask{{"i", 1, true, false}, {"main", 1, false, false}}, map[string][]string{"i": {"1"}, "main": {"1"}}},
		"more":     {3, []ask{{"i", 1, true, false}, {"main", 2, false, false}}, map[string][]string{"i": {"1"}, "main": {"1", "2"}}},
		"less":     {2, []ask{{"i", 2, true, false}, {"main", 1, false, false}, {"too", 1, false, false}}, map[string][]string{"i": {"1", "2"}, "main": {"1"}, "too": {"2"}}},
		"two inits": {2, []ask{{"i", 2, true, false}, {"j", 2, true, false}, {"main", 2, false, false}},
			map[string][]string{"i": {"1", "2"}, "j": {"1", "2"}, "main": {"1", "2"}}},
		"a sidecar": {2, []ask{{"i", 1, true, false}, {"s", 1, false, true}, {"main", 1, false, false}}, map[string][]string{"i": {"1"}, "s": {"1"}, "main": {"2"}}},
		"a sidecar first": {3, []ask{{"s", 1, false, true}, {"i", 2, true, false}, {"main", 2, false, false}},
			map[string][]string{"s": {"1"}, "i": {"2", "3"}, "main": {"2", "3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.plugs(devicestest.New(t, r.conf.Dir, gpu, []string{"1", "2", "3"}[:tc.devices]...))
			if err := r.Assign(t.Context(), wants("p", gpu, tc.asks...)); err != nil {
				t.Fatal(err)
			}
			for container, want := range tc.want {
				if got := r.ids("p", container); !slices.Equal(got, want) {
					t.Errorf("%s has %v, want %v", container, got, want)
				}
			}
		})
	}
}

// TestOneDeviceShort: of a pod for which there isn't enough, nothing is assigned and no plugin hears.
func TestOneDeviceShort(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a"))
	p := wants("p", gpu, ask{name: "x", count: 1}, ask{name: "y", count: 1})
	if err := r.Assign(t.Context(), p); wait(err) != "Room" {
		t.Errorf("answer: %v", err)
	}
	if len(f.Told()) > 0 || len(r.pods) > 0 {
		t.Errorf("the plugin was told %v, %d pods have devices", f.Told(), len(r.pods))
	}
	if err := r.Assign(t.Context(), one("q")); err != nil {
		t.Error(err)
	}
	r.Release("q")
	f.Set(func() { f.Devices = devicestest.Healthy("a", "b") })
	r.await(gpu, 2, 2)
	if err := r.Assign(t.Context(), p); err != nil {
		t.Error(err)
	}
}

// TestAllocateFails: what a plugin refuses is refused; one that hangs or ends is waited for. Nothing is assigned then.
func TestAllocateFails(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a"))
	f.Will(func() { f.AllocateErr = errRefused })
	err := r.Assign(t.Context(), one("p"))
	if rejection(err) != "UnexpectedAdmissionError" || !strings.Contains(err.Error(), "out of order") || len(r.pods) > 0 {
		t.Errorf("refused: %v", err)
	}
	f.Will(func() { f.AllocateErr, f.Hangs = nil, make(chan struct{}) })
	done := make(chan error)
	go func() { done <- r.Assign(t.Context(), one("p")) }()
	<-f.Hangs
	go f.Die()
	if err := <-done; wait(err) != "Plugin" || len(r.pods) > 0 {
		t.Errorf("ended meanwhile: %v", err)
	}
}

// TestAHungPlugin holds up its own pod only, and that one not for good.
func TestAHungPlugin(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	other := devicestest.New(t, r.conf.Dir, "example.com/nic", "x")
	r.plugs(other)
	f.Will(func() { f.Hangs = make(chan struct{}, 10) })
	done := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- r.Assign(ctx, one("hung")) }()
	<-f.Hangs
	for _, p := range []*v1.Pod{wants("nic", "example.com/nic", ask{name: "main", count: 1}), wants("plain", gpu, ask{name: "main"})} {
		if err := r.Assign(t.Context(), p); err != nil {
			t.Error(err)
		}
		if _, err := provided(t, r.Manager, p, &p.Spec.Containers[0]); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-done:
		t.Fatalf("the others were waited for: %v", err)
	default:
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the hung one: %v", err)
	}
	allowed := r.limits.allocate
	r.limits.allocate = time.Millisecond
	err := r.Assign(t.Context(), one("hung"))
	if wait(err) != "Plugin" || err.(*pod.Failure).NotBefore.IsZero() || r.ids("hung", "main") != nil {
		t.Errorf("the hung one: %v", err)
	}
	r.limits.allocate = allowed
	f.Will(func() { f.Hangs = nil })
	if err := r.Assign(t.Context(), one("hung")); err != nil {
		t.Errorf("later: %v", err)
	}
}

// TestStuckCalls: none of the other calls waits for good, either.
func TestStuckCalls(t *testing.T) {
	r := newRig(t)
	r.limits.ask, r.limits.prestart = 20*time.Millisecond, 20*time.Millisecond
	f := devicestest.New(t, r.conf.Dir, gpu, "a")
	f.Options = &api.DevicePluginOptions{GetPreferredAllocationAvailable: true, PreStartRequired: true}
	f.Will(func() { f.Stuck = "GetDevicePluginOptions" })
	if err := f.Register(); err == nil {
		t.Error("it has registered without its options")
	}
	f.Will(func() { f.Stuck = "GetPreferredAllocation" })
	r.limits.ask = time.Minute
	r.plugs(f)
	r.limits.ask = 20 * time.Millisecond
	if err := r.Assign(t.Context(), one("p")); err != nil {
		t.Errorf("it doesn't say what it prefers: %v", err)
	}
	f.Will(func() { f.Stuck = "PreStartContainer" })
	if err := r.PreStart(t.Context(), one("p"), &one("p").Spec.Containers[0]); err == nil {
		t.Error("a container starts with devices that aren't ready")
	}
}

// TestKilledBeforeTheAnswer: an agent that is killed while a plugin answers has assigned nothing; one that is killed after that, all.
func TestKilledBeforeTheAnswer(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a"))
	f.Will(func() { f.Hangs = make(chan struct{}) })
	ctx, kill := context.WithCancel(t.Context())
	var killed sync.WaitGroup
	killed.Go(func() { _ = r.Assign(ctx, one("p")) })
	<-f.Hangs
	crash(r)
	kill()
	killed.Wait()
	if len(r.pods) > 0 {
		t.Errorf("%v were assigned", r.pods)
	}
	f.Will(func() { f.Hangs = nil })
	f.Die()
	f.Serve()
	r.plugs(f)
	if err := r.Assign(t.Context(), one("q")); err != nil {
		t.Errorf("another pod: %v", err)
	}
	crash(r)
	if got := r.ids("q", "main"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after the answer it has %v", got)
	}
	f.Die()
	f.Serve()
	r.plugs(f)
	if err := r.Assign(t.Context(), one("p")); wait(err) != "Room" {
		t.Errorf("the device was given twice: %v", err)
	}
}

// crash has another agent begin by what is on disk at the moment.
func crash(r *rig) {
	text, err := os.ReadFile(filepath.Join(r.conf.Dir, file))
	if err != nil {
		r.t.Fatal(err)
	}
	r.start(func(*Manager) {
		if err := os.WriteFile(filepath.Join(r.conf.Dir, file), text, 0o600); err != nil {
			r.t.Fatal(err)
		}
	})
}

// TestRestartWithoutThePlugin: what pods have stays theirs (k/k#133382), also where init containers had it before (k/k#138446, #124345), new ones wait until it is
// back.
func TestRestartWithoutThePlugin(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	old := wants("old", gpu, ask{name: "init", count: 1, init: true}, ask{name: "main", count: 1})
	if err := r.Assign(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	f.Die()
	r.start()
	r.await(gpu, 2, 0)
	if err := r.Assign(t.Context(), old); err != nil || !slices.Equal(r.ids("old", "init"), []string{"a"}) || !slices.Equal(r.ids("old", "main"), []string{"a"}) {
		t.Errorf("the old pod has %v and %v, %v", r.ids("old", "init"), r.ids("old", "main"), err)
	}
	waits := func() {
		t.Helper()
		if err := r.Assign(t.Context(), one("new")); wait(err) != "Plugin" || !r.Amounts().Awaited[gpu] {
			t.Errorf("the new pod: %v", err)
		}
	}
	waits()
	r.Manager.mu.Lock()
	r.resources[gpu].until = r.resources[gpu].until.Add(-r.limits.restarted)
	r.Manager.mu.Unlock()
	r.look.Wake()
	r.await(gpu, 0, 0)
	waits()
	f.Serve()
	r.plugs(f)
	if err := r.Assign(t.Context(), one("new")); err != nil || !slices.Equal(r.ids("new", "main"), []string{"b"}) {
		t.Errorf("the new pod has %v, %v", r.ids("new", "main"), err)
	}
	if len(f.Told()) != 3 {
		t.Errorf("the plugin was told %v", f.Told())
	}
}

// TestReboot: what was assigned before stays the pod's, but its plugin has to be there and is told again (k/k#125579, #109595).
func TestReboot(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	for _, uid := range []types.UID{"p", "q"} {
		if err := r.Assign(t.Context(), one(uid)); err != nil {
			t.Fatal(err)
		}
	}
	f.Die()
	r.conf.BootID = "next"
	r.start()
	c := &one("q").Spec.Containers[0]
	_, err := provided(t, r.Manager, one("q"), c)
	if err == nil || !strings.Contains(err.Error(), "hasn't registered") {
		t.Errorf("without the plugin: %v", err)
	}
	if err := r.Assign(t.Context(), one("new")); wait(err) != "Plugin" {
		t.Errorf("a new pod: %v", err)
	}
	f.Devices = devicestest.Healthy("a", "b", "c")
	f.Serve()
	r.plugs(f) // which records them
	f.Die()
	crash(r)
	f.Serve()
	r.plugs(f)
	for _, uid := range []types.UID{"q", "p"} {
		if d, err := provided(t, r.Manager, one(uid), c); err != nil || len(d.Devices) != 1 {
			t.Errorf("with it: %v, %v", d, err)
		}
	}
	if want := [][]string{{"a"}, {"b"}, {"b"}, {"a"}}; cmp.Diff(f.Told(), want) != "" {
		t.Errorf("the plugin was told %v, want %v", f.Told(), want)
	}
}

// TestRebootHalfway: while a pod is assigned again, and when that fails, what it had stays its own.
func TestRebootHalfway(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b", "c"))
	p := wants("p", gpu, ask{name: "main", count: 2})
	if err := r.Assign(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	f.Die()
	r.conf.BootID = "next"
	r.start()
	f.Serve()
	f.Devices[0].Health = api.Unhealthy // so that it needs another one
	r.plugs(f)
	f.Will(func() { f.Hangs = make(chan struct{}) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Assign(ctx, p) }()
	<-f.Hangs
	f.Will(func() { f.Hangs = nil })
	f.Set(func() { f.Devices = devicestest.Healthy("a", "b", "c") })
	r.await(gpu, 3, 3)
	if err := r.Assign(t.Context(), one("meanwhile")); wait(err) != "Room" {
		t.Errorf("another pod has %v, %v", r.ids("meanwhile", "main"), err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := r.ids("p", "main"); !slices.Equal(got, []string{"a", "b"}) || !r.pods["p"].complete {
		t.Errorf("after the failure it has %v", got)
	}
	if err := r.Assign(t.Context(), one("other")); err != nil || !slices.Equal(r.ids("other", "main"), []string{"c"}) {
		t.Errorf("another pod has %v, %v", r.ids("other", "main"), err)
	}
	if err := r.Assign(t.Context(), p); err != nil || !slices.Equal(r.ids("p", "main"), []string{"a", "b"}) {
		t.Errorf("it has %v, %v", r.ids("p", "main"), err)
	}
}

// TestOneMore: a pod that needs more than it has, as its record was lost in part, keeps what it has, also if the rest isn't free.
func TestOneMore(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	p := wants("p", gpu, ask{name: "first", count: 1}, ask{name: "main", count: 1})
	if err := r.Assign(t.Context(), wants("p", gpu, ask{name: "main", count: 1})); err != nil {
		t.Fatal(err)
	}
	f.Will(func() { f.AllocateErr = errRefused })
	if err := r.Assign(t.Context(), p); rejection(err) != "UnexpectedAdmissionError" || !slices.Equal(r.ids("p", "main"), []string{"a"}) {
		t.Errorf("it has %v, %v", r.ids("p", "main"), err)
	}
	f.Will(func() { f.AllocateErr = nil })
	if err := r.Assign(t.Context(), p); err != nil || !slices.Equal(r.ids("p", "first"), []string{"b"}) || !slices.Equal(r.ids("p", "main"), []string{"a"}) {
		t.Errorf("it has %v and %v, %v", r.ids("p", "first"), r.ids("p", "main"), err)
	}
	if want := [][]string{{"a"}, {"b"}, {"b"}}; cmp.Diff(f.Told(), want) != "" {
		t.Errorf("the plugin was told %v, want %v", f.Told(), want)
	}
}

// tegra is what a kubelet wrote, but for the boot (https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
// doesn't describe it).
const tegra = `{"Data":{"PodDeviceEntries":[{"PodUID":"bf52b2cd-b611-4e79-86b1-280b283185c3","ContainerName":"check","ResourceName":"nvidia.com/gpu","DeviceIDs":{"-1":["tegra"]},"AllocResp":"Ch8KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBXRlZ3Jh"}],"RegisteredDevices":{"nvidia.com/gpu":["tegra"]}},"Checksum":3660592824}`

// TestTakeOver: what a kubelet recorded is taken over, and what is recorded a kubelet takes over: its text comes out as it was.
func TestTakeOver(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(r.conf.Dir, file)
	if err := os.WriteFile(path, []byte(tegra), 0o600); err != nil {
		t.Fatal(err)
	}
	r.conf.BootID = ""
	r.start()
	p := wants("bf52b2cd-b611-4e79-86b1-280b283185c3", "nvidia.com/gpu", ask{name: "check", count: 1})
	d, err := provided(t, r.Manager, p, &p.Spec.Containers[0])
	if err != nil || len(d.Env) != 1 || string(d.Env[0].Value) != "tegra" {
		t.Errorf("it has %v, %v", d, err)
	}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != tegra {
		t.Errorf("written is %s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// A pod that nobody wants any more, of which a kubelet still keeps its record, is in nobody's way.
	r.unknown[p.UID] = true
	r.plugs(devicestest.New(t, r.conf.Dir, "nvidia.com/gpu", "tegra"))
	if err := r.Assign(t.Context(), wants("next", "nvidia.com/gpu", ask{name: "main", count: 1})); err != nil {
		t.Error(err)
	}
}

// TestTakeOverWithoutPods: a kubelet that has had no pod with devices writes null for them.
func TestTakeOverWithoutPods(t *testing.T) {
	const text = `{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},"Checksum":3952659280}`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := New(Config{Dir: dir})
	if err := m.Restore(); err != nil {
		t.Fatal(err)
	}
	if a := m.Amounts(); !a.Awaited["nvidia.com/gpu"] || a.Capacity.Name("nvidia.com/gpu", resource.DecimalSI).Value() != 1 {
		t.Errorf("the node has %v", a)
	}
}

// TestUnreadableAnswer: a container whose plugin's answer can't be read doesn't start without it: its plugin is told again.
func TestUnreadableAnswer(t *testing.T) {
	r := newRig(t)
	f := r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a", "b"))
	if err := r.Assign(t.Context(), one("p")); err != nil {
		t.Fatal(err)
	}
	before, err := provided(t, r.Manager, one("p"), &one("p").Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	written, err := read(r.conf.Dir)
	if err != nil {
		t.Fatal(err)
	}
	written.Data.PodDeviceEntries[0].AllocResp = []byte{0xff}
	if err := write(r.conf.Dir, written); err != nil {
		t.Fatal(err)
	}
	r.Manager = New(r.conf)
	if err := r.Restore(); err == nil || !strings.Contains(err.Error(), "can't be read") {
		t.Error(err)
	}
	if _, err := provided(t, r.Manager, one("p"), &one("p").Spec.Containers[0]); err == nil {
		t.Error("it starts without")
	}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	f.Die()
	r.start()
	f.Serve()
	r.plugs(f)
	if got, err := provided(t, r.Manager, one("p"), &one("p").Spec.Containers[0]); err != nil || cmp.Diff(got.Devices, before.Devices, protocmp.Transform()) != "" || !slices.Equal(r.ids("p", "main"), []string{"a"}) {
		t.Errorf("it has %v, %v", got, err)
	}
}

// TestDamagedRecord: it is set aside and reported, and the agent goes on.
func TestDamagedRecord(t *testing.T) {
	for name, text := range map[string]string{"no JSON": "{", "another checksum": strings.Replace(tegra, "check", "chuck", 1)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m := New(Config{Dir: dir})
		if err := m.Restore(); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
		// What runs isn't started again without its devices, also by an agent that is started soon after, unless nobody says for long that
		// there are any.
		m = New(Config{Dir: dir})
		if err := m.Restore(); err != nil {
			t.Errorf("%s: after another start: %v", name, err)
		}
		if _, err := provided(t, m, one("p"), &one("p").Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "for the device plugin of "+gpu) {
			t.Errorf("%s: it starts without its devices (%v)", name, err)
		}
		m.limits.absent = 0
		if d, err := provided(t, m, one("p"), &one("p").Spec.Containers[0]); err != nil || len(d.Devices) > 0 {
			t.Errorf("%s: %v, %v", name, d, err)
		}
		ahead := New(Config{Dir: t.TempDir()}) // of a clock that was set back
		ahead.limits.absent = 0
		if err := errors.Join(write(ahead.conf.Dir, &record{Forgotten: time.Now().Add(time.Hour)}), ahead.Restore()); err != nil {
			t.Fatal(err)
		}
		if _, err := provided(t, ahead, one("p"), &one("p").Spec.Containers[0]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 2 || entries[0].Name() != file || entries[1].Name() != file+".corrupt" {
			t.Errorf("%s: left is %v", name, entries)
		}
	}
}

// TestARecordThatCantBeWritten: the pod isn't admitted, and has nothing.
func TestARecordThatCantBeWritten(t *testing.T) {
	r := newRig(t)
	r.plugs(devicestest.New(t, r.conf.Dir, gpu, "a"))
	path := filepath.Join(r.conf.Dir, file)
	if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := r.Assign(t.Context(), one("p")); err == nil || rejection(err) == "UnexpectedAdmissionError" || len(r.pods) > 0 {
		t.Errorf("assigned: %v", err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := r.Assign(t.Context(), one("p")); err != nil {
		t.Error(err)
	}
}

// toldAndWritten are the devices that a pod has by the API of pod resources, and by the record.
func toldAndWritten(r *rig, uid types.UID) (told, written []string) {
	for _, d := range r.Has(uid)["main"] {
		told = append(told, d.DeviceIds...)
	}
	record, err := read(r.conf.Dir)
	if err != nil {
		r.t.Error(err)
		return
	}
	for _, e := range record.Data.PodDeviceEntries {
		if e.PodUID == uid {
			written = append(written, e.DeviceIDs[noNode]...)
		}
	}
	return
}

// TestChurn: however many pods come and go at once, no device is with two of them, and the record says what they have.
func TestChurn(t *testing.T) {
	r := newRig(t)
	ids := make([]string, 8)
	for i := range ids {
		ids[i] = fmt.Sprint("dev", i)
	}
	r.plugs(devicestest.New(t, r.conf.Dir, gpu, ids...))
	flood := r.plugs(devicestest.New(t, r.conf.Dir, nic, "x", "y"))
	var mu sync.Mutex
	has := map[string]types.UID{}
	var pods, watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() { // what the record has at any moment, no device is in it twice
		for {
			select {
			case <-done:
				return
			default:
			}
			d, err := read(r.conf.Dir)
			if err != nil {
				t.Error(err)
				return
			}
			recorded := map[string]bool{}
			for _, e := range d.Data.PodDeviceEntries {
				for _, id := range e.DeviceIDs[noNode] {
					if recorded[id] {
						t.Errorf("%s is recorded twice", id)
					}
					recorded[id] = true
				}
			}
		}
	})
	watching.Go(func() { // another plugin that lists others all the time
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				flood.Set(func() {
					flood.Devices = []*api.Device{devicestest.Device("x", []string{api.Healthy, api.Unhealthy}[i%2]), devicestest.Device(fmt.Sprint("y", i), api.Healthy)}
				})
			}
		}
	})
	for i := range 12 {
		pods.Go(func() {
			for round := range 20 {
				p := wants(types.UID(fmt.Sprint("pod", i, "-", round)), gpu, ask{name: "main", count: int64(1 + i%3)})
				if err := r.Assign(t.Context(), p); err != nil {
					if wait(err) != "Room" {
						t.Error(err)
					}
					continue
				}
				got := r.ids(p.UID, "main")
				if told, written := toldAndWritten(r, p.UID); !slices.Equal(told, got) || !slices.Equal(written, got) {
					t.Errorf("%s has %v, is told to have %v, and is recorded with %v", p.UID, got, told, written)
				}
				mu.Lock()
				for _, id := range got {
					if other := has[id]; other != "" {
						t.Errorf("%s is with %s and %s", id, other, p.UID)
					}
					has[id] = p.UID
				}
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				for _, id := range got {
					delete(has, id)
				}
				mu.Unlock()
				r.Release(p.UID)
			}
		})
	}
	pods.Wait()
	close(done)
	watching.Wait()
	flood.Set(func() { flood.Devices = devicestest.Healthy("last") })
	r.await(nic, 1, 1)
	if err := r.Assign(t.Context(), wants("last", gpu, ask{name: "main", count: 8})); err != nil {
		t.Error(err)
	}
	if told := r.Has("last")["main"]; len(told) != 8 || told[0].DeviceIds[0] != "dev0" || len(r.Healthy()) != 9 {
		t.Errorf("it is told to have %v of %v", told, r.Healthy())
	}
	record, err := read(r.conf.Dir)
	if err != nil || len(record.Data.PodDeviceEntries) != 1 || len(record.Data.PodDeviceEntries[0].DeviceIDs[noNode]) != 8 {
		t.Errorf("recorded is %+v, %v", record, err)
	}
}
