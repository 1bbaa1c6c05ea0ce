package assign_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/pod"
	. "github.com/deckhand-node/deckhand/internal/resources/assign"
	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// host is a machine of 8 CPUs (cores of 2, CPU 0 reserved) with the pods that should run, and those that run.
type host struct {
	t    *testing.T
	dir  string
	conf Config
	*Manager
	end func()

	mu     sync.Mutex
	pods   map[types.UID]*v1.Pod
	runs   map[string]*container
	hangs  bool // whether the runtime answers
	broken bool // whether cgroups can't be changed
	blind  bool // whether containers have no cgroups here
	freed  int
	// unreadable are IDs of containers whose cgroups can't be read.
	unreadable map[string]bool
	calls      []string
	pinned     []bool
}

type container struct {
	uid  types.UID
	name string
	cpus cpuset.CPUSet
	// state is empty for a container that is created.
	state pod.ContainerState
}

func set(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newHost(t *testing.T) *host {
	h := &host{t: t, dir: t.TempDir(), pods: map[types.UID]*v1.Pod{}, runs: map[string]*container{}}
	machine := topology.Machine{Nodes: []topology.Node{{}}}
	for id := range 8 {
		machine.CPUs = append(machine.CPUs, topology.CPU{ID: id, Core: id &^ 1})
	}
	synced := make(chan struct{})
	close(synced)
	h.conf = Config{Dir: h.dir, Policy: Policy{Static: true, Reserved: func(*topology.Machine) cpuset.CPUSet { return cpuset.New(0) }},
		Machine: func() (topology.Machine, error) { return machine, nil }, Pod: h.pod, Known: h.known, Observed: h.observed, Ready: synced, Freed: func() { h.freed++ },
		Runtime: h, Cgroups: h, Meter: meter{h}, Events: meter{h}, Log: testr.New(t), Shared: func(*v1.Pod, *v1.Container) *runtimeapi.LinuxContainerResources {
			return &runtimeapi.LinuxContainerResources{CpuQuota: 7}
		}}
	return h
}

// start starts an agent.
func (h *host) start() {
	h.t.Helper()
	if h.end != nil {
		h.end()
	}
	h.Manager = New(h.conf)
	if err := h.Restore(); err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	h.end = func() {
		h.end = nil
		if cancel(); <-ended != nil {
			h.t.Error("Run failed")
		}
	}
	synctest.Wait()
}

func (h *host) pod(uid types.UID) *v1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pods[uid]
}

func (h *host) known(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.runs {
		if c.uid == uid {
			return true
		}
	}
	return h.pods[uid] != nil
}

func (h *host) observed() (list []*pod.Observed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, c := range h.runs {
		state := c.state
		if state == "" {
			state = pod.ContainerCreated
		}
		list = append(list, &pod.Observed{UID: c.uid, Name: string(c.uid), Containers: []pod.Container{{ID: id, Name: c.name, State: state}}})
	}
	return list
}

func (h *host) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	h.mu.Lock()
	hangs := h.hangs
	h.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.runs[id]
	if c == nil {
		return errors.New("not found")
	}
	limit := map[int64]string{-1: " without limit", 7: " with its limit"}[r.CpuQuota]
	h.calls = append(h.calls, fmt.Sprintf("%s on %s%s", id, r.CpusetCpus, limit))
	c.cpus = set(h.t, r.CpusetCpus)
	return nil
}

func (h *host) CPUs(_ context.Context, _ types.UID, id string) (cpuset.CPUSet, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unreadable[id] {
		return cpuset.New(), errors.New("input/output error")
	}
	if c := h.runs[id]; c != nil && !h.blind {
		return c.cpus, nil
	}
	return cpuset.New(), fs.ErrNotExist
}

func (h *host) SetCPUs(_ context.Context, _ types.UID, id string, s cpuset.CPUSet) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.runs[id]
	switch {
	case c == nil:
		return fs.ErrNotExist
	case h.broken:
		return errors.New("device or resource busy")
	}
	h.calls = append(h.calls, fmt.Sprintf("cgroup of %s on %s", id, s))
	c.cpus = s
	return nil
}

// meter counts for a host.
type meter struct{ *host }

func (m meter) Pinned(failed bool)  { m.pinned = append(m.pinned, failed) }
func (meter) CPUs(int, map[int]int) {}
func (meter) Replanned(string)      {}
func (meter) Aligned(string, bool)  {}

// NodeEvent checks that an event says something.
func (m meter) NodeEvent(_ string, reason pod.Reason, message string) {
	if reason != pod.ReasonResourceStateReplanned || !strings.HasPrefix(message, "cpu_manager_state: ") {
		m.t.Errorf("event %s: %s", reason, message)
	}
}

// made are the changes of containers since the last call.
func (h *host) made() (calls []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls, h.calls = h.calls, nil
	slices.Sort(calls)
	return calls
}

// want adds a pod with containers, "NAME=CPU", which have limits if they are whole. A name with a + is that of an init container.
func (h *host) want(uid types.UID, containers ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}}
	for _, text := range containers {
		name, cpu, _ := strings.Cut(text, "=")
		name, early := strings.CutSuffix(name, "+")
		c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Gi")}}}
		if !strings.HasPrefix(string(uid), "burst") {
			c.Resources.Limits = c.Resources.Requests
		}
		if early {
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods[uid] = p
	return p
}

// create creates a container with the CPUs that it is given.
func (h *host) create(p *v1.Pod, name string) (id string, err error) {
	var to translate.Devices
	if err := h.Provide(h.t.Context(), p, pod.ContainerNamed(p, name), &to); err != nil {
		return "", err
	}
	id = string(p.UID) + "/" + name
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[id] = &container{uid: p.UID, name: name, cpus: set(h.t, to.Assignment.CPUs)}
	return id, nil
}

// run starts a pod.
func (h *host) run(p *v1.Pod, names ...string) {
	h.t.Helper()
	if err := h.Assign(h.t.Context(), p); err != nil {
		h.t.Fatal(err)
	}
	for _, name := range names {
		id, err := h.create(p, name)
		if err != nil {
			h.t.Fatal(err)
		}
		started, err := h.Starting(h.t.Context(), p, pod.ContainerNamed(p, name), id)
		if err != nil {
			h.t.Fatal(err)
		}
		h.turn(id, pod.ContainerRunning)
		started()
	}
	synctest.Wait()
}

// remove removes containers.
func (h *host) remove(ids ...string) {
	h.mu.Lock()
	for _, id := range ids {
		delete(h.runs, id)
	}
	h.mu.Unlock()
	if h.Manager != nil {
		h.Changed()
	}
}

// forget removes a pod and its container.
func (h *host) forget(uid types.UID) {
	h.mu.Lock()
	delete(h.pods, uid)
	h.mu.Unlock()
	h.remove(string(uid) + "/a")
}

func (h *host) turn(id string, s pod.ContainerState) {
	h.mu.Lock()
	h.runs[id].state = s
	h.mu.Unlock()
	h.Changed()
}

// overtaken waits until the agent has read again what runs where.
func (h *host) overtaken() {
	time.Sleep(6 * time.Second)
	synctest.Wait()
}

// runsOn fails the test unless the containers run on these CPUs: "ID=LIST".
func (h *host) runsOn(what string, want ...string) {
	h.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	var got []string
	for id, c := range h.runs {
		got = append(got, id+"="+c.cpus.String())
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		h.t.Errorf("%s: containers run on %q, want %q", what, got, want)
	}
}

func within(t *testing.T, test func(*testing.T, *host)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t)
		test(t, h)
		if h.end != nil {
			h.end()
		}
	})
}

// recorded is the file's content: policy, shared CPUs, and "POD/CONTAINER=LIST".
func (h *host) recorded() (list []string) {
	text, err := os.ReadFile(filepath.Join(h.dir, "cpu_manager_state"))
	if err != nil {
		return []string{err.Error()}
	}
	c, err := state.DecodeCPUs(text)
	if err != nil {
		h.t.Fatal(err)
	}
	for uid, of := range c.Of {
		for name, s := range of {
			list = append(list, fmt.Sprintf("%s/%s=%s", uid, name, s))
		}
	}
	slices.Sort(list)
	return slices.Insert(list, 0, c.Policy, c.Shared.String())
}

func (h *host) equal(what string, got []string, want ...string) {
	h.t.Helper()
	if !slices.Equal(got, want) {
		h.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestExclusive(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		h.run(h.want("burst", "a=1"), "a")
		h.runsOn("one shares all", "burst/a=0-7")
		p := h.want("own", "init+=3", "a=2", "b=1", "c=1500m")
		h.run(p, "init")
		h.runsOn("an init container", "burst/a=0,4-7", "own/init=1-3")
		h.turn("own/init", pod.ContainerExited)
		h.run(p, "a", "b", "c")
		h.runsOn("later ones use its CPUs again", "burst/a=0,4-7", "own/init=1-3", "own/a=2-3", "own/b=1", "own/c=0,4-7")
		h.equal("the file", h.recorded(), "static", "0,4-7", "own/a=2-3", "own/b=1", "own/init=1-3")
		h.Release("own")
		h.mu.Lock()
		delete(h.pods, "own")
		h.runs = map[string]*container{"burst/a": h.runs["burst/a"]}
		h.mu.Unlock()
		h.runsOn("after its end", "burst/a=0-7")
		h.equal("the file", h.recorded(), "static", "0-7")
	})
}

// An exclusive container starts only after all others have left its CPUs, also those that are just starting, or were created before.
func TestShrinkBeforeStart(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		burst := h.want("burst", "a=1", "b=1", "c=1")
		h.run(burst, "a")
		b, err := h.create(burst, "b")
		if err != nil {
			t.Fatal(err)
		}
		c, err := h.create(burst, "c")
		if err != nil {
			t.Fatal(err)
		}
		started, err := h.Starting(t.Context(), burst, pod.ContainerNamed(burst, "b"), b)
		if err != nil {
			t.Fatal(err)
		}
		own := h.want("own", "a=2")
		if err := h.Assign(t.Context(), own); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { _, err := h.create(own, "a"); done <- err }()
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatal("it didn't wait for the container that is starting:", err)
		default:
		}
		h.turn(b, pod.ContainerRunning)
		started()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		h.runsOn("those that run", "burst/a=0-1,4-7", "burst/b=0-1,4-7", "burst/c=0-7", "own/a=2-3")
		if started, err = h.Starting(t.Context(), burst, pod.ContainerNamed(burst, "c"), c); err != nil {
			t.Fatal(err)
		}
		h.runsOn("one that was created before", "burst/a=0-1,4-7", "burst/b=0-1,4-7", "burst/c=0-1,4-7", "own/a=2-3")
		started()
	})
}

// If the runtime hangs, the agent moves containers itself; if that fails, too, the pod waits and says for which container.
func TestHungMoves(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		h.run(h.want("burst", "a=1"), "a")
		h.mu.Lock()
		h.hangs, h.broken = true, true
		h.mu.Unlock()
		own := h.want("own", "a=2")
		if err := h.Assign(t.Context(), own); err != nil {
			t.Fatal(err)
		}
		_, err := h.create(own, "a")
		f, _ := errors.AsType[*pod.Failure](err)
		if f == nil || f.Wait != pod.WaitForCPUs || f.Message != "container a of pod burst, which has to leave the CPUs 2-3" {
			t.Fatal("the failure is", err)
		}
		if got := h.Problems(); len(got) != 1 || !strings.HasPrefix(got[0].Message, "the runtime can't move container a of pod burst to the CPUs 0-1,4-7") {
			t.Errorf("problems are %+v", got)
		}
		h.mu.Lock()
		h.broken = false
		h.mu.Unlock()
		if _, err := h.create(own, "a"); err != nil {
			t.Fatal(err)
		}
		h.runsOn("the agent has moved it", "burst/a=0-1,4-7", "own/a=2-3")
	})
}

func TestShortage(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		h.run(h.want("own", "a=5"), "a")
		const rest = "container a wants 3 CPUs of its own; free: 6-7; reserved: 0"
		failure := func(p *v1.Pod, reason pod.Reason, wait pod.WaitFor, message string) {
			t.Helper()
			f, _ := errors.AsType[*pod.Failure](h.Assign(t.Context(), p))
			if f == nil || f.Reason != reason || f.Wait != wait || f.Rejected == (wait != "") || f.Message != message {
				t.Errorf("the failure is %+v", f)
			}
		}
		next := h.want("next", "a=3")
		failure(next, pod.ReasonUnexpectedAdmissionError, "", "Allocate failed due to not enough cpus available to satisfy request: "+
			"requested=3, available=2, which is unexpected: "+rest)
		h.pods["own"].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		failure(next, "OutOfcpu", pod.WaitForRoom, rest)
		h.equal("the file is unchanged", h.recorded(), "static", "0,6-7", "own/a=1-5")
		if !slices.Equal(h.pinned, []bool{false, true, true}) {
			t.Error("counted were", h.pinned)
		}
	})
}

// What an earlier agent or kubelet left: containers that run keep the CPUs that are their own, and no file is a condition.
func TestAdopt(t *testing.T) {
	for name, c := range map[string]struct {
		file     state.CPUManagerCheckpoint
		text     string
		none     bool
		pod      bool              // whether the pod has resources of its own
		runs     map[string]string // of pod own and pod burst
		want     []string
		file2    []string
		replaced int
	}{
		"as it was": {file: entries("2-3"), runs: map[string]string{"own": "2-3", "burst": "0-1,4-7"},
			want: []string{"burst/a=0-1,4-7", "own/a=2-3"}, file2: []string{"static", "0-1,4-7", "own/a=2-3"}},
		"no file": {runs: map[string]string{"own": "4-5", "burst": "0-3,6-7"},
			want: []string{"burst/a=0-3,6-7", "own/a=4-5"}, file2: []string{"static", "0-3,6-7", "own/a=4-5"}, replaced: 1},
		"damaged": {text: `{"policyName":`, runs: map[string]string{"own": "4-5", "burst": "0-3,6-7"},
			want: []string{"burst/a=0-3,6-7", "own/a=4-5"}, file2: []string{"static", "0-3,6-7", "own/a=4-5"}, replaced: 2},
		"the policy was none": {runs: map[string]string{"own": "0-7", "burst": "0-7"},
			want: []string{"burst/a=0-1,4-7", "own/a=2-3"}, file2: []string{"static", "0-1,4-7", "own/a=2-3"}, replaced: 1},
		"the file is older": {file: entries("2-3"), runs: map[string]string{"own": "6-7", "burst": "0-5"},
			want: []string{"burst/a=0-5", "own/a=6-7"}, file2: []string{"static", "0-5", "own/a=6-7"}, replaced: 1},
		"others haven't left yet": {file: entries("2-3"), runs: map[string]string{"own": "2-3", "burst": "0-7"},
			want: []string{"burst/a=0-1,4-7", "own/a=2-3"}, file2: []string{"static", "0-1,4-7", "own/a=2-3"}},
		"a CPU is gone": {file: entries("3,9"), runs: map[string]string{"own": "3", "burst": "0-2,4-7"},
			want: []string{"burst/a=0,2,4-7", "own/a=1,3"}, file2: []string{"static", "0,2,4-7", "own/a=1,3"}, replaced: 1},
		"nothing runs, a CPU is reserved by now": {file: entries("0,3"), runs: map[string]string{"burst": "0-7"},
			want: []string{"burst/a=0-7"}, file2: []string{"static", "0-7"}, replaced: 1},
		"the pod wants more by now": {file: entries("3"), runs: map[string]string{"burst": "0-7"},
			want: []string{"burst/a=0-7"}, file2: []string{"static", "0-7"}, replaced: 1},
		"an entry without CPUs": {file: entries(""), runs: map[string]string{"burst": "0-7"},
			want: []string{"burst/a=0-7"}, file2: []string{"static", "0-7"}},
		"more CPUs than fit into memory": {text: `{"policyName":"static","defaultCpuSet":"0-9999999999","checksum":0}`, runs: map[string]string{"burst": "0-7"},
			want: []string{"burst/a=0-7"}, file2: []string{"static", "0-7"}, replaced: 1},
		"a pod has CPUs as a whole": {text: `{"policyName":"static","defaultCpuSet":"0-3","podEntries":{"own":{"cpuSet":"4-7"},"gone":{"cpuSet":"2"}}}`,
			runs: map[string]string{"own": "4-7", "burst": "0-3"}, pod: true,
			want: []string{"burst/a=0-3", "own/a=4-7"}, file2: []string{"static", "0-3"}},
		"the policy is none": {file: entries("2-3"), none: true, runs: map[string]string{"own": "2-3", "burst": "0-1,4-7"},
			want: []string{"burst/a=0-7", "own/a=0-7"}, file2: []string{"none", ""}, replaced: 1},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, h *host) {
				text := []byte(c.text)
				if c.file.PolicyName != "" {
					var err error
					if text, err = c.file.Encode(); err != nil {
						t.Fatal(err)
					}
				}
				if len(text) > 0 {
					if err := os.WriteFile(filepath.Join(h.dir, "cpu_manager_state"), text, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if p := h.want("own", "a=2"); c.pod {
					p.Spec.Resources = &v1.ResourceRequirements{}
				}
				h.want("burst", "a=1")
				for uid, list := range c.runs {
					h.runs[uid+"/a"] = &container{types.UID(uid), "a", set(t, list), pod.ContainerRunning}
				}
				h.conf.Static = !c.none
				h.start()
				h.runsOn("after the start", c.want...)
				h.overtaken()
				h.equal("the file", h.recorded(), c.file2...)
				if got := h.Differences(); len(got) != c.replaced {
					t.Errorf("differences are %q", got)
				}
				h.made()
				h.start()
				h.runsOn("after another start", c.want...)
				h.equal("another start changes", h.made())
			})
		})
	}
}

func entries(list string) state.CPUManagerCheckpoint {
	return state.CPUManagerCheckpoint{PolicyName: "static", DefaultCPUSet: "0-1,4-7", Entries: map[string]map[string]string{"own": {"a": list}}}
}

// A container of a pod that isn't known yet keeps its CPUs.
func TestUnknownPods(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.runs["own/a"] = &container{"own", "a", set(t, "4-5"), pod.ContainerRunning}
		h.start()
		h.runsOn("while its pod is unknown", "own/a=4-5")
		h.want("own", "a=2")
		h.Changed()
		h.runsOn("when it is known", "own/a=4-5")
		h.equal("the file", h.recorded(), "static", "0-3,6-7", "own/a=4-5")
	})
}

// A container of a pod that isn't known leaves CPUs that another one gets to itself, and only these.
func TestUnknownPodMakesRoom(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.runs["burst/a"] = &container{"burst", "a", set(t, "0-5"), pod.ContainerRunning}
		h.start()
		h.run(h.want("own", "a=2"), "a")
		h.runsOn("there are CPUs besides its own", "burst/a=0-5", "own/a=6-7")
		h.run(h.want("more", "a=2"), "a")
		h.runsOn("its CPUs are another's", "burst/a=0-1,4-5", "more/a=2-3", "own/a=6-7")
	})
}

// A container that may run on any CPU, as these can't be read, takes none from those that can be.
func TestOneUnreadable(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.want("own", "a=2")
		h.runs["own/a"] = &container{"own", "a", set(t, "4-5"), pod.ContainerRunning}
		h.runs["burst/a"] = &container{"burst", "a", set(t, "0-7"), pod.ContainerRunning}
		h.unreadable = map[string]bool{"burst/a": true}
		h.start()
		time.Sleep(time.Minute)
		h.equal("it is moved all the same", h.recorded(), "static", "0-3,6-7", "own/a=4-5")
		h.runsOn("the unreadable one of an unknown pod", "burst/a=0-3,6-7", "own/a=4-5")
	})
}

// What can't be read in the first seconds is read later: no record and no running container's CPUs are lost meanwhile.
func TestAdoptLater(t *testing.T) {
	for name, fail := range map[string]func(h *host) (mend func()){
		"the machine": func(h *host) func() {
			read := h.conf.Machine
			h.conf.Machine = func() (topology.Machine, error) {
				h.mu.Lock()
				defer h.mu.Unlock()
				if h.unreadable["machine"] {
					return topology.Machine{}, errors.New("too many open files")
				}
				return read()
			}
			h.unreadable = map[string]bool{"machine": true}
			return func() { h.unreadable = nil }
		},
		"a container": func(h *host) func() {
			h.unreadable = map[string]bool{"own/a": true}
			return func() { h.unreadable = nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, h *host) {
				file := entries("2-3")
				file.Entries["ended"] = map[string]string{"a": "6"}
				text, err := file.Encode()
				if err == nil {
					err = os.WriteFile(filepath.Join(h.dir, "cpu_manager_state"), text, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				h.runs["own/a"] = &container{"own", "a", set(t, "4-5"), pod.ContainerRunning}
				h.want("ended", "a=1")
				mend := fail(h)
				h.start()
				h.want("own", "a=2")
				time.Sleep(time.Second)
				h.mu.Lock()
				mend()
				h.mu.Unlock()
				time.Sleep(time.Minute)
				h.equal("the file", h.recorded(), "static", "0-3,7", "ended/a=6", "own/a=4-5")
				h.runsOn("it keeps its CPUs", "own/a=4-5")
			})
		})
	}
}

// restarted is a pod with an init container that has ended and whose CPUs two others use, in an agent that has just started.
func restarted(h *host) *v1.Pod {
	h.start()
	p := h.want("own", "init+=4", "a=2", "b=2")
	h.run(p, "init")
	h.turn("own/init", pod.ContainerExited)
	h.run(p, "a", "b")
	h.equal("the file", h.recorded(), "static", "0-1,6-7", "own/a=2-3", "own/b=4-5", "own/init=2-5")
	h.start()
	return p
}

func TestRestartAfterInit(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		restarted(h)
		h.equal("the file", h.recorded(), "static", "0-1,6-7", "own/a=2-3", "own/b=4-5", "own/init=2-5")
		if got := h.Differences(); len(got) > 0 {
			t.Errorf("differences are %q", got)
		}
	})
}

// A container that needs other CPUs gets none of its siblings', and ended init containers get none.
func TestReplanOne(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		p := restarted(h)
		file := state.CPUManagerCheckpoint{PolicyName: "static", DefaultCPUSet: "0,4-7", Entries: map[string]map[string]string{"own": {"b": "4-5"}}}
		text, err := file.Encode()
		if err == nil {
			h.end()
			err = os.WriteFile(filepath.Join(h.dir, "cpu_manager_state"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		h.remove("own/a")
		h.start()
		if id, err := h.create(p, "a"); err != nil || id != "own/a" {
			t.Fatal(err)
		}
		h.equal("the file", h.recorded(), "static", "0-1,6-7", "own/a=2-3", "own/b=4-5")
		h.remove("own/b", "own/init", "own/a")
		synctest.Wait()
		if _, err := h.create(p, "init"); err != nil {
			t.Fatal(err)
		}
		h.equal("an init container uses CPUs of later ones", h.recorded(), "static", "0-1,6-7", "own/a=2-3", "own/b=4-5", "own/init=2-5")
	})
}

// CPUs of a pod that is gone without a release are offered to pods that wait.
func TestFreed(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		h.run(h.want("own", "a=5"), "a")
		h.forget("own")
		if err := h.Assign(t.Context(), h.want("next", "a=3")); err != nil || h.freed != 1 {
			t.Errorf("freed %d times, %v", h.freed, err)
		}
	})
}

// A pod that ends before the agent knows what runs changes no record of others.
func TestReleaseBeforeAdoption(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		h.run(h.want("own", "a=2"), "a")
		h.run(h.want("other", "a=2"), "a")
		ready := make(chan struct{})
		h.conf.Ready = ready
		h.start()
		before := h.recorded()
		h.Release("other")
		h.equal("the file", h.recorded(), before...)
		h.forget("other")
		close(ready)
		h.runsOn("afterwards", "own/a=2-3")
		h.equal("the file", h.recorded(), "static", "0-1,4-7", "own/a=2-3")
	})
}

// On the way from static to none, a container that was created with CPUs of its own starts on all, and one whose pod becomes known late gets its
// limit back.
func TestNoneWithCreatedAndLate(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		p := h.want("own", "a=2")
		late := h.want("late", "a=2")
		h.run(late, "a")
		if err := h.Assign(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		id, err := h.create(p, "a")
		if err != nil {
			t.Fatal(err)
		}
		h.end()
		delete(h.pods, "late")
		h.conf.Static = false
		h.made()
		h.start()
		h.runsOn("one of an unknown pod", "late/a=2-3", "own/a=4-5")
		h.mu.Lock()
		h.pods["late"] = late
		h.mu.Unlock()
		h.Changed()
		h.runsOn("it is known", "late/a=0-7", "own/a=4-5")
		h.equal("the file waits for the created one", h.recorded()[:1], "static")
		started, err := h.Starting(t.Context(), p, &p.Spec.Containers[0], id)
		if err != nil {
			t.Fatal(err)
		}
		h.turn(id, pod.ContainerRunning)
		started()
		h.runsOn("it starts", "late/a=0-7", "own/a=0-7")
		h.equal("with their limits", h.made(), "late/a on 0-7 with its limit", "own/a on 0-7 with its limit")
		h.overtaken()
		h.equal("the file", h.recorded(), "none", "")
	})
}

// The runtime may carry out what a killed agent has asked for after what its successor asks for.
func TestOvertaken(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		h.run(h.want("own", "a=2"), "a")
		h.start()
		h.mu.Lock()
		h.runs["own/a"].cpus = set(t, "0-7")
		h.mu.Unlock()
		h.overtaken()
		h.runsOn("after a while", "own/a=2-3")
	})
}

// If an agent is killed while it gives all CPUs back to all containers, the next one goes on with it.
func TestKilledOnTheWayToNone(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		file := entries("2-3")
		text, err := file.Encode()
		if err == nil {
			err = os.WriteFile(filepath.Join(h.dir, "cpu_manager_state"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		h.want("own", "a=2")
		h.runs["own/a"] = &container{"own", "a", set(t, "2-3"), pod.ContainerRunning}
		h.conf.Static, h.hangs, h.broken = false, true, true
		h.start()
		time.Sleep(time.Minute + 2*time.Second) // while a call hangs
		h.equal("nothing could be changed", h.recorded(), "static", "0-1,4-7", "own/a=2-3")
		h.mu.Lock()
		h.hangs, h.broken = false, false
		h.mu.Unlock()
		h.start()
		h.runsOn("after another start", "own/a=0-7")
		h.equal("its limit is in force again", h.made(), "own/a on 0-7 with its limit")
		h.overtaken()
		h.equal("the file", h.recorded(), "none", "")
	})
}

// A container whose CPUs can't be read may run on any: a start waits until it has been moved.
func TestUnreadableCPUs(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.want("burst", "a=1")
		h.runs["burst/a"] = &container{"burst", "a", set(t, "0-7"), pod.ContainerRunning}
		h.blind, h.hangs, h.broken = true, true, true
		h.start()
		own := h.want("own", "a=2")
		if err := h.Assign(t.Context(), own); err != nil {
			t.Fatal(err)
		}
		if _, err := h.create(own, "a"); err == nil || !strings.Contains(err.Error(), "container a of pod burst") {
			t.Error("it starts on CPUs that are perhaps in use:", err)
		}
		h.mu.Lock()
		h.hangs = false
		h.mu.Unlock()
		if _, err := h.create(own, "a"); err != nil {
			t.Error("the runtime's answer counts:", err)
		}
	})
}

// With the policy none, nothing is read from cgroups, changed or written.
func TestNone(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.conf.Policy, h.conf.Cgroups, h.conf.Machine = Policy{}, nil, nil
		h.start()
		p := h.want("own", "a=2")
		var to translate.Devices
		if err := errors.Join(h.Assign(t.Context(), p), h.Provide(t.Context(), p, &p.Spec.Containers[0], &to)); err != nil || to.Assignment != (translate.Assignment{}) {
			t.Errorf("the container gets %+v, %v", to.Assignment, err)
		}
		h.Changed()
		h.Release("own")
		if list, err := os.ReadDir(h.dir); err != nil || len(list) > 0 {
			t.Errorf("there are files: %v, %v", list, err)
		}
	})
}

func TestFixes(t *testing.T) {
	within(t, func(t *testing.T, h *host) {
		h.start()
		has := func(cpu, memory string) *pod.Allocation {
			list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
			return &pod.Allocation{Containers: map[string]v1.ResourceRequirements{"a": {Requests: list, Limits: list}}}
		}
		for _, c := range []struct {
			p         *v1.Pod
			had, asks *pod.Allocation
			fixed     bool
		}{
			{h.want("whole", "a=2"), has("2", "1Gi"), has("3", "1Gi"), true},
			{h.want("part", "a=500m"), has("500m", "1Gi"), has("600m", "1Gi"), true},
			{h.want("memory", "a=2"), has("2", "1Gi"), has("2", "2Gi"), false},
			{h.want("burst", "a=2"), has("2", "1Gi"), has("3", "1Gi"), false},
		} {
			why, detail := h.Fixes(c.p, c.had, c.asks)
			if want := `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`; (why == want && detail == "guaranteed_pod_cpu_manager_static_policy") != c.fixed || (why == "") == c.fixed {
				t.Errorf("%s: %q, %q", c.p.Name, why, detail)
			}
		}
	})
}
