package takedown

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// Where containerd's CRI keeps what, below the store and state folders.
const (
	bundles   = "io.containerd.runtime.v2.task/k8s.io"
	sandboxes = "io.containerd.grpc.v1.cri/sandboxes"
)

// found is what of this agent's there is, from whatever record has survived.
type found struct {
	// containers are the IDs of containers and sandboxes.
	containers map[string]bool
	// pods are the UIDs of pods.
	pods map[string]bool
	// cgroups are folders of containers, in any hierarchy.
	cgroups map[string]bool
	// inits are the first processes of containers.
	inits []initProcess
}

// initProcess is a container's first process, told apart from a later one of the
// same number by its start time.
type initProcess struct {
	PID   int    `json:"init_process_pid"`
	Start uint64 `json:"init_process_start"`
}

// inventory reads the records on disk. What can't be read is as good as not
// there: the other records and the later steps have to find it.
func (t *taker) inventory() *found {
	f := &found{containers: map[string]bool{}, pods: map[string]bool{}, cgroups: map[string]bool{}}
	for _, uid := range names(filepath.Join(t.layout.Root, "pods")) {
		f.pods[uid] = true
	}
	for _, id := range names(filepath.Join(t.layout.Store(), sandboxes)) {
		f.containers[id] = true
	}
	dir := filepath.Join(t.layout.State(), bundles)
	for _, id := range names(dir) {
		f.containers[id] = true
		f.addBundle(filepath.Join(dir, id, "config.json"))
	}
	dir = filepath.Join(t.layout.RuncRoot(), "k8s.io")
	for _, id := range names(dir) {
		f.containers[id] = true
		f.addRuncState(filepath.Join(dir, id, "state.json"))
	}
	// host-local's reservations: a sandbox's ID, then its interface.
	dir = filepath.Join(t.layout.CNIState(), t.network.Bridge)
	for _, address := range names(dir) {
		text, err := os.ReadFile(filepath.Join(dir, address))
		if id, _, ok := strings.Cut(string(text), "\n"); err == nil && ok {
			f.containers[strings.TrimSpace(id)] = true
		}
	}
	return f
}

// addBundle reads the OCI configuration that containerd wrote for a container.
func (f *found) addBundle(path string) {
	var config struct {
		Annotations map[string]string `json:"annotations"`
	}
	if !readJSON(path, &config) {
		return
	}
	if uid := config.Annotations["io.kubernetes.cri.sandbox-uid"]; uid != "" {
		f.pods[uid] = true
	}
}

// addRuncState reads runc's record of a container.
func (f *found) addRuncState(path string) {
	var state struct {
		initProcess
		Cgroups map[string]string `json:"cgroup_paths"`
	}
	if !readJSON(path, &state) {
		return
	}
	f.inits = append(f.inits, state.initProcess)
	for _, dir := range state.Cgroups {
		f.cgroups[dir] = true
	}
}

func readJSON(path string, into any) bool {
	text, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(text, into) == nil
}

func names(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
