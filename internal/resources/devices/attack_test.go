package devices

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
)

const nic = "example.com/nic"

// hardware is a plugin that comes and goes.
type hardware struct {
	*devicestest.Plugin
	up bool
}

// TestAnyOrder has pods, plugins, the agent and the machine come and go in any order: no device is with two pods, a pod keeps what it has until a reboot, nothing
// but a plugin that is away or too few devices keeps it from having it, and what is on disk is what is in memory.
func TestAnyOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 5 {
		r := newRig(t)
		all := []*hardware{{devicestest.New(t, r.conf.Dir, gpu, "a", "b", "c", "d"), true}, {devicestest.New(t, r.conf.Dir, nic, "x", "y", "z"), true}}
		for _, h := range all {
			r.plugs(h.Plugin)
		}
		pods, has := map[types.UID]*v1.Pod{}, map[types.UID]assignment{}
		for step := range 60 {
			h, uid := all[random.IntN(len(all))], types.UID(fmt.Sprint("p", random.IntN(6)))
			switch action := random.IntN(12); {
			case action < 5:
				p := pods[uid]
				if p == nil {
					count := func() int64 { return random.Int64N(3) }
					p = wants(uid, []v1.ResourceName{gpu, nic}[random.IntN(2)], ask{name: "init", count: count(), init: true}, ask{name: "sidecar", count: count(), stays: true},
						ask{name: "main", count: count()}, ask{name: "other", count: count()})
					pods[uid] = p
				}
				err := r.Assign(t.Context(), p)
				if waits := wait(err); err != nil && waits != "Room" && waits != "Plugin" || err != nil && has[uid] != nil {
					t.Fatalf("step %d: %s, which has %v: %v", step, uid, has[uid], err)
				}
				if err == nil {
					has[uid] = r.assignments()[uid]
				}
			case action < 7:
				r.Release(uid)
				delete(has, uid)
				delete(pods, uid)
			case action < 8:
				if h.up = !h.up; h.up {
					h.Serve()
					r.plugs(h.Plugin)
				} else {
					h.Die()
				}
			case action < 10:
				if action == 9 {
					r.conf.BootID += "+"
					clear(has) // until plugins are told again
				}
				crash(r)
				for _, h := range all {
					if h.up {
						h.Die()
						h.Serve()
						r.plugs(h.Plugin)
					}
				}
			case h.up:
				h.Set(func() {
					h.Devices = slices.Clone(h.Devices)
					i := random.IntN(len(h.Devices))
					h.Devices[i] = devicestest.Device(h.Devices[i].ID, []string{api.Healthy, api.Unhealthy}[random.IntN(2)])
				})
			}
			now, with := r.assignments(), map[string]types.UID{}
			for uid, a := range now {
				for name, h := range a.all {
					for _, id := range h.ids {
						if other := with[name+" "+id]; other != "" && other != uid {
							t.Fatalf("step %d: %s is with %s and %s", step, id, uid, other)
						}
						with[name+" "+id] = uid
					}
				}
			}
			for uid, a := range has {
				if diff := cmp.Diff(ids(a), ids(now[uid])); diff != "" {
					t.Fatalf("step %d: what %s has is another: %s", step, uid, diff)
				}
			}
			written, err := read(r.conf.Dir)
			memory, _ := r.record()
			if err != nil || fmt.Sprint(written.Data.PodDeviceEntries) != fmt.Sprint(memory.Data.PodDeviceEntries) {
				t.Fatalf("step %d: recorded is %+v, %v, want %+v", step, written.Data, err, memory.Data)
			}
		}
		r.stop()
	}
}

// assignments are what pods have.
func (r *rig) assignments() map[types.UID]assignment {
	r.Manager.mu.RLock()
	defer r.Manager.mu.RUnlock()
	all := map[types.UID]assignment{}
	for uid, p := range r.pods {
		all[uid] = maps.Clone(p.containers)
	}
	return all
}

// ids are the devices of an assignment by container.
func ids(a assignment) map[string]string {
	all := map[string]string{}
	for container, byResource := range a {
		for name, h := range byResource {
			all[container] += fmt.Sprint(name, h.ids)
		}
	}
	return all
}

// TestManyDevices: a plugin with ten thousand devices, or that prefers as many as an answer has room for, holds nobody up.
func TestManyDevices(t *testing.T) {
	r := newRig(t)
	f := devicestest.New(t, r.conf.Dir, gpu)
	f.Options = &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
	for i := range 10_000 {
		f.Devices = append(f.Devices, devicestest.Device(fmt.Sprintf("device-%05d", i), api.Healthy, 0, 1, 1))
	}
	for i := range 300_000 {
		f.Preferred = append(f.Preferred, fmt.Sprintf("nodev-%06d", i))
	}
	r.plugs(f)
	began := time.Now()
	for _, p := range []*v1.Pod{one("a"), wants("b", gpu, ask{name: "main", count: 9_999})} {
		if err := r.Assign(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.Has("b")["main"]); n != 9_999 {
		t.Errorf("it is told to have %d", n)
	}
	took := time.Since(began)
	t.Logf("it took %s", took)
	if at := r.pods["a"].containers["main"][gpu].byNode; took > 10*time.Second || len(at) != 2 || len(at[1]) != 1 {
		t.Errorf("it took %s; devices are at %v", took, at)
	}
}

// TestAPluginThatListsInALoop: its lists are received at a pace that leaves the CPU to others, in order, and the last one soon.
func TestAPluginThatListsInALoop(t *testing.T) {
	const size = 500
	r := newRig(t)
	f := devicestest.New(t, r.conf.Dir, gpu, "n0")
	r.plugs(f)
	same := make([]*api.Device, size)
	for i := range same {
		same[i] = devicestest.Device(fmt.Sprint("same", i), api.Healthy)
	}
	list := func(n int) string {
		id := fmt.Sprint("n", n)
		f.Set(func() { f.Devices = append(slices.Clone(same), devicestest.Device(id, api.Healthy)) })
		return id
	}
	pause := perList + size*perDevice
	began, last, lists, known := time.Now(), "", 0, ""
	for n := 0; known != last || time.Since(began) < time.Second; time.Sleep(pause / 10) {
		if n++; time.Since(began) < time.Second {
			last = list(n)
		}
		r.Manager.mu.RLock()
		for id := range r.resources[gpu].devices {
			if strings.HasPrefix(id, "n") && id != known {
				known, lists = id, lists+1
			}
		}
		r.Manager.mu.RUnlock()
		if time.Since(began) > time.Minute {
			t.Fatalf("a minute later %q is known, not %q", known, last)
		}
	}
	if most := int(time.Since(began)/pause) + 10; lists > most {
		t.Errorf("%d lists were taken in %s", lists, time.Since(began))
	}
}
