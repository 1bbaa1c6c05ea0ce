// Package takeover changes a node with running pods from the kubelet to deckhand, and back. Both are given the same
// root directory, configuration and containerd.
package takeover

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/figures"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// Whichever agent made them, sandboxes, containers and what is in emptyDirs stay as they are, those of pods that have
// ended too; restart counts go on. What the kubelet made again since deckhand ran is taken over as well.
func TestFromTheKubeletAndBack(t *testing.T) {
	r := newRig(t)
	r.add("k", r.n.Port(3))
	r.startKubelet()
	r.registerPlugin()
	r.addOne("k", device)
	r.settle("the kubelet runs its pods")
	r.compareMetrics()
	limits := r.limits()
	theirs := r.measured()
	r.stop("the kubelet runs its pods")
	for file, other := range map[string]string{"cpu/cpu.shares": "100", "memory/memory.limit_in_bytes": "1073741824", "pids/pids.max": "30000"} {
		if err := os.WriteFile(r.limitFile(file), []byte(other), 0); err != nil { // so that deckhand has to set them, too
			t.Fatal(err)
		}
	}

	r.n.Start()
	r.registerPlugin()
	r.settle("deckhand runs the kubelet's pods")
	if diff := cmp.Diff(limits, r.limits()); diff != "" {
		t.Errorf("what all pods may use together (-kubelet's +deckhand's):\n%s", diff)
	}
	ours := r.said()
	compared.Compare(r.t, theirs, ours)
	figures.WithoutPressure(r.t, ours)
	r.add("d", r.n.Port(4))
	r.addOne("d", device)
	r.stop("deckhand runs its pods")

	r.edit("k-plain")
	r.startKubelet()
	r.registerPlugin()
	r.stop("the kubelet runs deckhand's pods")

	r.n.Start()
	r.registerPlugin()
	r.stop("deckhand runs them again")
	if told := fmt.Sprint(r.plugin.Told()); told != "[[one] [two]]" && told != "[[two] [one]]" {
		t.Errorf("the device plugin was told %s: each pod has one device, from the agent that ran it first", told)
	}
}

// rig is a node that two agents have in turn.
type rig struct {
	t       *testing.T
	n       *node.Node
	kubelet string
	// pods are what runs, by their names in manifests.
	pods map[string]kind
	// uids are those of the pods that the agent reported last.
	uids map[string]bool
	// had is what the runtime had of them when the last agent stopped, and kept what was in volumes.
	had  map[string]node.Instance
	kept map[string]string
	// plugin has a device for each of two pods, nil at first.
	plugin *devicestest.Plugin
	// devices are those that pods have, by UID, as the last agent recorded them.
	devices map[string]string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	deckhand, err := node.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("make", "--silent", "-C", "../..", "kubelet").CombinedOutput(); err != nil {
		t.Fatalf("build the kubelet: %v\n%s", err, out)
	}
	kubelet, err := filepath.Abs("../../bin/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, n: node.New(t, deckhand, node.Options{}), kubelet: kubelet, pods: map[string]kind{}}
	r.n.Configure(fmt.Sprintf(`port: %d
staticPodPath: %s
containerRuntimeEndpoint: %s
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
enforceNodeAllocatable: [pods]
kubeReserved: {cpu: 100m, memory: 100Mi, pid: "1000"}
systemReserved: {cpu: 50m, memory: 50Mi}
makeIPTablesUtilChains: false
volumePluginDir: %s
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%}`,
		r.n.Port(2), r.n.Manifests, r.n.RuntimeEndpoint(), filepath.Join(r.n.Base, "plugins")))
	r.n.MakeRoomForKubelet()
	r.t.Cleanup(r.removeLogs)
	r.n.StartRuntime()
	return r
}

func (r *rig) startKubelet() {
	r.t.Helper()
	r.n.StartOther(r.kubelet, "--config", r.n.ConfigFile(), "--root-dir", r.n.RootDir, "--cert-dir", filepath.Join(r.n.Base, "pki"),
		"--hostname-override", node.Name, "--node-ip", "127.0.0.1", "-v", "2", "--containerd", strings.TrimPrefix(r.n.RuntimeEndpoint(), "unix://"))
}

// removeLogs removes the logs of pods that are gone: the kubelet keeps them for a minute.
func (r *rig) removeLogs() {
	logs, err := filepath.Glob(filepath.Join(r.n.PodLogs, "*"))
	if err != nil {
		r.t.Error(err)
	}
	for _, dir := range logs {
		if uid := dir[strings.LastIndex(dir, "_")+1:]; !r.uids[uid] {
			if err := os.RemoveAll(dir); err != nil {
				r.t.Error(err)
			}
		}
	}
}

// compareMetrics holds what the kubelet serves against the list of its metrics that deckhand goes by.
func (r *rig) compareMetrics() {
	r.t.Helper()
	const file, containers = "../../internal/report/metrics/testdata/kubelet-1.36-metrics.txt", "../../internal/resources/stats/testdata/cadvisor-1.36.txt"
	var lists [][]byte
	for _, f := range []string{file, containers} {
		text, err := os.ReadFile(f)
		if err != nil {
			r.t.Fatal(err)
		}
		lists = append(lists, text)
	}
	for _, path := range []string{"/metrics/cadvisor", "/metrics/resource"} {
		figures.Listed(r.t, path, r.page(path), lists...)
	}
	types := map[string]string{}
	for line := range strings.Lines(string(lists[0])) {
		if f := strings.Fields(line); !strings.HasPrefix(line, "#") {
			types[f[0]] = f[1]
		}
	}
	libraries := []string{"go_", "process_", "apiserver_", "aggregator_", "cardinality_", "rest_client_transport_"}
	for _, path := range []string{"/metrics", "/metrics/probes"} {
		for line := range strings.Lines(string(r.page(path))) {
			f := strings.Fields(line)
			if len(f) != 4 || f[1] != "TYPE" || slices.ContainsFunc(libraries, func(p string) bool { return strings.HasPrefix(f[2], p) }) {
				continue
			}
			if types[f[2]] != f[3] {
				r.t.Errorf("the kubelet's %s is a %s: %s has %q", f[2], f[3], file, types[f[2]])
			}
		}
	}
}

// add has a pod of each kind run, with names that begin like this.
func (r *rig) add(prefix string, port int) {
	r.t.Helper()
	for _, k := range kinds(port, filepath.Join(r.n.Base, "host-"+prefix)) {
		r.addOne(prefix, k)
	}
}

func (r *rig) addOne(prefix string, k kind) {
	r.t.Helper()
	name := prefix + "-" + k.name
	r.pods[name] = k
	k.write(r.n, name)
}

// registerPlugin has the device plugin register with the agent that was started, which may remove its socket first.
func (r *rig) registerPlugin() {
	r.t.Helper()
	dir := filepath.Join(r.n.RootDir, "device-plugins")
	r.n.Eventually("the device plugin registers", func() error {
		if _, err := os.Stat(dir); err != nil {
			return err
		}
		if r.plugin == nil {
			r.plugin = devicestest.New(r.t, dir, "example.com/gpu", "one", "two")
			r.plugin.Answer = func(ids []string) *api.ContainerAllocateResponse {
				return &api.ContainerAllocateResponse{Envs: map[string]string{"GPU": ids[0]}}
			}
		} else {
			r.plugin.Die()
			r.plugin.Serve()
		}
		return r.plugin.Register()
	})
}

// recordedDevices are the devices that pods have by the record on disk, by UID.
func (r *rig) recordedDevices() map[string]string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.n.RootDir, "device-plugins", "kubelet_internal_checkpoint"))
	if err != nil {
		r.t.Fatal(err)
	}
	var record struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID    string
				DeviceIDs map[string][]string
			}
		}
	}
	if err := json.Unmarshal(text, &record); err != nil {
		r.t.Fatal(err)
	}
	devices := map[string]string{}
	for _, e := range record.Data.PodDeviceEntries {
		for _, ids := range e.DeviceIDs {
			devices[e.PodUID] += strings.Join(ids, ",")
		}
	}
	return devices
}

// edit gives a pod a label while no agent runs: to the kubelet it is another pod then.
func (r *rig) edit(pod string) {
	r.t.Helper()
	k := r.pods[pod]
	k.labels = "{edited: 'yes'}"
	k.write(r.n, pod)
	maps.DeleteFunc(r.had, func(_ string, i node.Instance) bool { return name(i.Pod) == pod })
}

// settle waits until the pods are as they will stay, and each crashing one has been restarted, by this agent, unless
// that is due in 20 s or more.
func (r *rig) settle(what string) {
	r.t.Helper()
	restarts := map[string]int{}
	for _, i := range r.had {
		if r.crashes(i) {
			restarts[i.Pod] = max(restarts[i.Pod], int(i.Attempt))
		}
	}
	r.n.Eventually(what, func() error {
		var list v1.PodList
		response, err := http.Get(r.n.ReadOnlyURL("pods"))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
			return err
		}
		r.uids = map[string]bool{}
		if len(list.Items) != len(r.pods) {
			return fmt.Errorf("there are %d pods, want %d", len(list.Items), len(r.pods))
		}
		for i := range list.Items {
			p := &list.Items[i]
			r.uids[string(p.UID)] = true
			if err := r.pods[name(p.Name)].settled(&p.Status, min(restarts[p.Name]+1, 2)); err != nil {
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
		}
		// Of another UID's pod, the kubelet removes the directory last.
		found, err := os.ReadDir(filepath.Join(r.n.RootDir, "pods"))
		for _, f := range found {
			if !r.uids[f.Name()] {
				return fmt.Errorf("the directory of pod %s is still there", f.Name())
			}
		}
		return err
	})
}

// name is a static pod's name in its manifest.
func name(pod string) string { return strings.TrimSuffix(pod, "-"+node.Name) }

// crashes reports whether an instance of a container is one of many.
func (r *rig) crashes(i node.Instance) bool {
	return i.Container != "" && r.pods[name(i.Pod)].name == crashing
}

// stop stops the agent, once the pods are as they will stay, and compares what it leaves with what the one before left.
func (r *rig) stop(what string) {
	r.t.Helper()
	r.settle(what)
	r.n.Stop()
	has, contents := r.n.Instances(), r.contents()
	maps.DeleteFunc(has, func(_ string, i node.Instance) bool { return !r.uids[i.UID] })
	old := map[string]bool{}
	for id, before := range r.had {
		old[before.Pod] = true
		if after := has[id]; after != before && !r.crashes(before) {
			r.t.Errorf("%s: %s was\n  %+v\nand is\n  %+v", what, id, before, after)
		}
	}
	for id, after := range has {
		_, had := r.had[id]
		switch {
		case had || !old[after.Pod]:
		case r.crashes(after):
			r.checkBackoff(what, after)
		default:
			r.t.Errorf("%s: %s is new: %+v", what, id, after)
		}
	}
	for path, text := range r.kept {
		if contents[path] != text {
			r.t.Errorf("%s: %s was %q and is %q", what, path, text, contents[path])
		}
	}
	r.had, r.kept = has, contents
	devices := r.recordedDevices()
	for uid, had := range r.devices {
		if devices[uid] != had {
			r.t.Errorf("%s: by the record pod %s has device %q, and had %q", what, uid, devices[uid], had)
		}
	}
	r.devices = devices
}

// checkBackoff looks whether deckhand waited for as long as is documented after the instance that the kubelet left.
func (r *rig) checkBackoff(what string, next node.Instance) {
	r.t.Helper()
	if strings.HasPrefix(what, "the kubelet") {
		return // it has none after its own start
	}
	for _, last := range r.had {
		if last.Pod != next.Pod || last.Container == "" || last.Attempt+1 != next.Attempt {
			continue
		}
		if wait, want := next.Started.Sub(last.Finished), 10*time.Second<<(last.Attempt-1); wait < want {
			r.t.Errorf("%s: instance %d of %s was started %s after the one before, want at least %s", what, next.Attempt, next.Pod, wait, want)
		}
	}
}

// limits are what the control group of all pods is held to, by its files.
func (r *rig) limits() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, file := range []string{"cpu/cpu.shares", "memory/memory.limit_in_bytes", "pids/pids.max"} {
		text, err := os.ReadFile(r.limitFile(file))
		if err != nil {
			r.t.Error(err)
		}
		out[file] = strings.TrimSpace(string(text))
	}
	return out
}

// limitFile is the path of CONTROLLER/FILE of that group.
func (r *rig) limitFile(file string) string {
	controller, name := filepath.Split(file)
	return filepath.Join("/sys/fs/cgroup", controller, r.n.CgroupRoot, "kubepods", name)
}

// contents are the files in emptyDirs that pods have written once.
func (r *rig) contents() map[string]string {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.n.RootDir, "pods/*/volumes/kubernetes.io~empty-dir/*/kept"))
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			r.t.Fatal(err)
		}
		out[path] = string(text)
	}
	return out
}
