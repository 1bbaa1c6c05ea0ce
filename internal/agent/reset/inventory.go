package reset

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// found has the IDs and paths of this agent's objects, according to the records that are left on disk.
type found struct {
	// containers are the IDs of containers and sandboxes.
	containers map[string]bool
	// pods are the UIDs of pods.
	pods map[string]bool
	// cgroups are the cgroup directories of containers, in any hierarchy.
	cgroups map[string]bool
	// inits are the init processes of containers.
	inits []orphans.Process
}

// inventory reads the records on disk. It skips unreadable records: then only other records and the later steps can
// find the objects.
func (t *resetter) inventory() *found {
	f := &found{containers: map[string]bool{}, pods: map[string]bool{}, cgroups: map[string]bool{}}
	for _, uid := range names(filepath.Join(t.layout.Root, "pods")) {
		f.pods[uid] = true
	}
	for _, id := range names(t.layout.Sandboxes()) {
		f.containers[id] = true
	}
	for _, id := range names(t.layout.Bundles()) {
		f.containers[id] = true
		f.addBundle(filepath.Join(t.layout.Bundles(), id, "config.json"))
	}
	for _, id := range names(t.layout.RuncContainers()) {
		f.containers[id] = true
		f.addRuncState(t.layout.RuncState(id))
	}
	// Reservations of the CNI plugin host-local: each file contains a sandbox's ID, then its interface.
	dir := filepath.Join(t.layout.CNIState(), t.network.Bridge)
	for _, address := range names(dir) {
		text, err := os.ReadFile(filepath.Join(dir, address))
		if id, _, ok := strings.Cut(string(text), "\n"); err == nil && ok {
			f.containers[strings.TrimSpace(id)] = true
		}
	}
	return f
}

// addBundle adds a container according to the OCI configuration that containerd wrote for it.
func (f *found) addBundle(path string) {
	var config struct {
		Annotations map[string]string `json:"annotations"`
	}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &config) != nil {
		return
	}
	if uid := config.Annotations["io.kubernetes.cri.sandbox-uid"]; uid != "" {
		f.pods[uid] = true
	}
}

// addRuncState adds a container according to its state file, which runc wrote.
func (f *found) addRuncState(path string) {
	c, ok := orphans.ReadContainer(path)
	if !ok {
		return
	}
	f.inits = append(f.inits, c.Init)
	for _, dir := range c.Cgroups {
		f.cgroups[dir] = true
	}
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

// Describe lists the objects that a reset with this configuration removes, as lines for a person.
func Describe(c Config) ([]string, error) {
	layout, err := c.Runtime.Layout()
	if err != nil {
		return nil, err
	}
	if err := refuse(layout.Root); err != nil {
		return nil, err
	}
	t := &resetter{config: c, layout: layout}
	if t.network, err = c.Runtime.Network(); err != nil {
		return nil, err
	}
	f := t.inventory()
	var list []string
	if n := len(f.pods); n > 0 {
		pods, their := "1 pod", "its"
		if n > 1 {
			pods, their = fmt.Sprintf("%d pods", n), "their"
		}
		list = append(list, fmt.Sprintf("%s, with %s volumes below the root directory and %[2]s logs in %s", pods,
			their, c.PodLogs))
	}
	if _, err := os.Stat(layout.Store()); err == nil {
		list = append(list, "all images of the embedded containerd")
	}
	if _, err := net.InterfaceByName(c.Runtime.Bridge); err == nil {
		list = append(list, "the bridge "+c.Runtime.Bridge+", with its masquerading and host ports")
	}
	if len(t.podCgroups(f)) > 0 {
		list = append(list, "the pods' control groups, in "+filepath.Join("/", c.CgroupRoot, "kubepods"))
	}
	root := "the directory " + layout.Root
	if !layout.Claimed() {
		root = "in " + layout.Root + ", which was there before deckhand, only containerd/ and cni/"
	}
	return append(list, root), nil
}
