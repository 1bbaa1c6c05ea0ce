package assign_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
)

// directory is a root directory that an earlier agent or kubelet has left, and the containers that run: those of pods
// own and own2 request as many CPUs to themselves as "asks" says, that of pod burst shares.
type directory struct {
	// cpus are how many CPUs the machine has, offline those of them that are offline. reserved are today's.
	cpus              int
	offline, reserved string
	none              bool // today's policy
	file              func(t *testing.T, path string)
	asks              map[string]int
	runs              map[string]string // by pod
	// want are the CPUs afterwards of the containers whose CPUs change.
	want map[string]string
	// kinds are the kinds of differences that are reported.
	kinds []string
	// gone says that the file isn't read nor written: with the policy none there is no state.
	gone bool
}

// text returns a function that writes a file.
func text(content string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// formV2 is a file of today's form with a right checksum. Entries are "POD=LIST".
func formV2(policy, shared string, entries ...string) func(*testing.T, string) {
	c := state.CPUManagerCheckpoint{PolicyName: policy, DefaultCPUSet: shared, Entries: map[string]map[string]string{}}
	for _, e := range entries {
		uid, list, _ := strings.Cut(e, "=")
		c.Entries[uid] = map[string]string{"a": list}
	}
	content, err := c.Encode()
	return func(t *testing.T, path string) {
		if err != nil {
			t.Fatal(err)
		}
		text(string(content))(t, path)
	}
}

// formV1 is a file of Kubernetes before 1.18, whose entries are by the container's ID.
func formV1(shared string, entries ...string) func(*testing.T, string) {
	var list []string
	for _, e := range entries {
		uid, cpus, _ := strings.Cut(e, "=")
		list = append(list, fmt.Sprintf("%q:%q", uid+"/a", cpus))
	}
	return text(fmt.Sprintf(`{"policyName":"static","defaultCpuSet":%q,"entries":{%s},"checksum":0}`, shared, strings.Join(list, ",")))
}

// formV3 is a file of the gate PodLevelResourceManagers.
func formV3(shared, entries, pods string) func(*testing.T, string) {
	return text(fmt.Sprintf(`{"policyName":"static","defaultCpuSet":%q,"entries":%s,"podEntries":%s,"checksum":12345}`, shared, entries, pods))
}

func sparse(t *testing.T, path string) {
	text("{")(t, path)
	if err := os.Truncate(path, 10<<30); errors.Is(err, fs.ErrInvalid) {
		t.Skip("this file system has no sparse files:", err)
	} else if err != nil {
		t.Fatal(err)
	}
}

func aDirectory(t *testing.T, path string) {
	if err := os.MkdirAll(filepath.Join(path, "inner"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func aLink(t *testing.T, path string) {
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
}

// With any content of the root directory an agent starts, no pod is rejected and no container ended; a running container
// keeps the CPUs that it has, as far as the machine has them, and shares none that it could have alone.
func TestDirectories(t *testing.T) {
	shared := func(rest string) map[string]string { return map[string]string{"burst": rest} }
	for name, d := range map[string]directory{
		"today's form, 2 CPUs":      {cpus: 2, file: formV2("static", "0", "own=1"), asks: map[string]int{"own": 1}, runs: map[string]string{"own": "1", "burst": "0"}},
		"today's form, 4 CPUs":      {cpus: 4, file: formV2("static", "0,3", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}},
		"today's form, 16 CPUs":     {cpus: 16, file: formV2("static", "0,8-15", "own=1-4", "own2=5-7"), asks: map[string]int{"own": 4, "own2": 3}, runs: map[string]string{"own": "1-4", "own2": "5-7", "burst": "0,8-15"}},
		"before 1.18, 4 CPUs":       {cpus: 4, file: formV1("0,3", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}},
		"before 1.18, 16 CPUs":      {cpus: 16, file: formV1("0,3-15", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3-15"}},
		"before 1.18, others stay":  {cpus: 4, file: formV1("0,3", "own=1-2", "ended=3"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}},
		"pod entries":               {cpus: 8, file: formV3("0,3-7", `{"own":{"a":"1-2"}}`, `{"whole":{"cpuSet":"3-4"}}`), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3-7"}},
		"pod entries alone":         {cpus: 8, file: formV3("0-7", `{}`, `{"whole":{"cpuSet":"3-4"}}`), runs: shared("0-7")},
		"no file, nothing runs":     {cpus: 1},
		"no file, one shares":       {cpus: 1, runs: shared("0")},
		"no file, one has its own":  {cpus: 8, asks: map[string]int{"own": 2}, runs: map[string]string{"own": "5-6", "burst": "0-4,7"}, kinds: []string{"recorded"}},
		"empty":                     {cpus: 4, file: text(""), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "2-3", "burst": "0-1"}, kinds: []string{"damaged", "recorded"}},
		"half a file":               {cpus: 4, file: text(`{"policyName":"static","defaultCpuSet":"0,3","entr`), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, kinds: []string{"damaged", "recorded"}},
		"zeros":                     {cpus: 4, file: text(strings.Repeat("\x00", 300)), runs: shared("0-3"), kinds: []string{"damaged"}},
		"another checksum":          {cpus: 4, file: text(`{"policyName":"static","defaultCpuSet":"0,3","entries":{"own":{"a":"1-2"}},"checksum":7}`), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, kinds: []string{"damaged", "recorded"}},
		"a bad list":                {cpus: 4, file: text(`{"policyName":"static","defaultCpuSet":"5-3","checksum":0}`), runs: shared("0-3"), kinds: []string{"damaged"}},
		"a huge list":               {cpus: 4, file: text(`{"policyName":"static","defaultCpuSet":"0-9999999999","checksum":0}`), runs: shared("0-3"), kinds: []string{"damaged"}},
		"a later version":           {cpus: 4, file: text(`{"apiVersion":"v9","policyName":"static","defaultCpuSet":"0,3","entries":{"own":{"a":{"cpus":"1-2"}}},"checksum":7}`), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, kinds: []string{"damaged", "recorded"}},
		"a directory":               {cpus: 4, file: aDirectory, asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, kinds: []string{"damaged", "recorded"}},
		"a link":                    {cpus: 4, file: aLink, asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, kinds: []string{"damaged", "recorded"}},
		"10 GB":                     {cpus: 4, file: sparse, asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, kinds: []string{"damaged", "recorded"}},
		"the policy was none":       {cpus: 4, file: formV2("none", ""), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "0-3", "burst": "0-3"}, want: map[string]string{"own": "2-3", "burst": "0-1"}, kinds: []string{"policy", "policy"}},
		"none, and too few CPUs":    {cpus: 2, file: formV2("none", ""), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "0-1", "burst": "0-1"}, kinds: []string{"policy", "shared"}},
		"the policy is none":        {cpus: 4, none: true, file: formV2("static", "0,3", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, want: map[string]string{"own": "0-3", "burst": "0-3"}, kinds: []string{"policy"}},
		"none, and damaged":         {cpus: 4, none: true, file: text("}"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3"}, want: map[string]string{"own": "0-3", "burst": "0-3"}, kinds: []string{"damaged"}},
		"none, and no file":         {cpus: 4, none: true, runs: shared("0-3"), gone: true},
		"other CPUs are reserved":   {cpus: 8, reserved: "1-2", file: formV2("static", "0,3-7", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0,3-7"}},
		"more CPUs are reserved":    {cpus: 8, reserved: "0-6", file: formV2("static", "0,5-7", "own=1-4"), asks: map[string]int{"own": 4}, runs: map[string]string{"own": "1-4", "burst": "0,5-7"}},
		"a CPU is offline":          {cpus: 8, offline: "2", file: formV2("static", "0,3-7", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1", "burst": "0,3-7"}, want: map[string]string{"own": "1,3", "burst": "0,4-7"}, kinds: []string{"gone"}},
		"all its CPUs are offline":  {cpus: 8, offline: "1-2", file: formV2("static", "0,3-7", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "", "burst": "0,3-7"}, want: map[string]string{"own": "4-5", "burst": "0,3,6-7"}, kinds: []string{"gone"}},
		"a smaller machine":         {cpus: 2, file: formV2("static", "0,9-15", "own=1-8"), asks: map[string]int{"own": 8}, runs: map[string]string{"own": "1", "burst": "0"}, kinds: []string{"gone"}},
		"a larger machine":          {cpus: 16, file: formV2("static", "0", "own=1"), asks: map[string]int{"own": 1}, runs: map[string]string{"own": "1", "burst": "0"}, want: shared("0,2-15")},
		"two have the same CPU":     {cpus: 8, file: formV2("static", "0,3-7", "own=1-2", "own2=2-3"), asks: map[string]int{"own": 2, "own2": 2}, runs: map[string]string{"own": "1-2", "own2": "2-3", "burst": "0,4-7"}, want: map[string]string{"own": "1-2", "own2": "3-4", "burst": "0,5-7"}, kinds: []string{"gone"}},
		"its cgroup says otherwise": {cpus: 8, file: formV2("static", "0,3-7", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "6-7", "burst": "0-5"}, kinds: []string{"recorded"}},
		"its pod has gone":          {cpus: 8, file: formV2("static", "0,3-7", "ended=1-2"), runs: shared("0,3-7"), want: shared("0-7")},
		"others haven't left":       {cpus: 8, file: formV2("static", "0,3-7", "own=1-2"), asks: map[string]int{"own": 2}, runs: map[string]string{"own": "1-2", "burst": "0-7"}, want: shared("0,3-7")},
	} {
		t.Run(name, func(t *testing.T) { within(t, func(t *testing.T, h *host) { d.check(t, h) }) })
	}
}

func (d directory) check(t *testing.T, h *host) {
	machine := topology.Machine{Nodes: []topology.Node{{}}, Offline: set(t, d.offline)}
	for id := range d.cpus {
		if !machine.Offline.Contains(id) {
			machine.CPUs = append(machine.CPUs, topology.CPU{ID: id, Core: id &^ 1})
		}
	}
	reserved := cpuset.New(0)
	if d.reserved != "" {
		reserved = set(t, d.reserved)
	}
	h.conf.Machine = func() (topology.Machine, error) { return machine, nil }
	h.conf.Static, h.conf.Reserved = !d.none, func(*topology.Machine) cpuset.CPUSet { return reserved }
	path := filepath.Join(h.dir, "cpu_manager_state")
	if d.file != nil {
		d.file(t, path)
	}
	want := maps.Clone(d.runs)
	maps.Copy(want, d.want)
	var on []string
	for uid, list := range want {
		on = append(on, uid+"/a="+list)
	}
	for uid, list := range d.runs {
		count := max(1, d.asks[uid])
		h.want(types.UID(uid), fmt.Sprintf("a=%d", count))
		h.runs[uid+"/a"] = &container{uid: types.UID(uid), name: "a", cpus: set(t, list), state: pod.ContainerRunning}
	}
	for range 2 { // the second agent finds the file of the first
		h.start()
		h.runsOn("the containers", slices.Clone(on)...)
		for id, c := range h.runs {
			if c.state != pod.ContainerRunning {
				t.Errorf("container %s was ended", id)
			}
		}
		for uid := range d.runs {
			if err := h.Assign(t.Context(), h.pod(types.UID(uid))); err != nil && !slices.Contains(d.kinds, "shared") {
				t.Errorf("pod %s is rejected: %v", uid, err)
			}
		}
		h.overtaken()
		h.runsOn("they stay", slices.Clone(on)...)
		var kinds []string
		for _, difference := range h.Differences() {
			kinds = append(kinds, difference.Kind)
		}
		if slices.Sort(kinds); !slices.Equal(kinds, d.kinds) {
			t.Errorf("the differences are %+v, want kinds %q", h.Differences(), d.kinds)
		}
		if list := h.recorded(); (list[0] == "static") == d.none && !d.gone {
			t.Errorf("the file is %q", list)
		}
		d.kinds = slices.DeleteFunc(slices.Clone(d.kinds), func(kind string) bool { return kind != "shared" })
	}
}
