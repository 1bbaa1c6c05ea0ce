package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Attached are the interfaces plugged into the node's bridge.
func (n *Node) Attached() []string {
	return list("/sys/class/net/" + n.in.Config.Bridge + "/brif")
}

// leftovers lists everything of this node that is still on the host after it was
// taken down. attached are the interfaces its bridge had.
func (n *Node) leftovers(attached []string) []string {
	n.t.Helper()
	left := n.leftProcesses()
	left = append(left, n.leftMounts()...)
	left = append(left, n.leftNetfilter(append(n.subnets(), n.in.Config.Bridge)...)...)
	for _, name := range append(attached, n.in.Config.Bridge) {
		if _, err := net.InterfaceByName(name); err == nil {
			left = append(left, "network interface "+name)
		}
	}
	for _, dir := range cgroupDirs(n.CgroupRoot) {
		left = append(left, "control group "+dir)
	}
	layout, err := n.in.Config.Layout()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, dir := range []string{n.RootDir, layout.Run(), n.PodLogs, n.LogLinks} {
		if _, err := os.Lstat(dir); err == nil {
			left = append(left, dir)
		}
	}
	return left
}

// TakeDown removes the node with `deckhand reset`, without giving pods time, and fails the test if anything is left.
func (n *Node) TakeDown() {
	n.t.Helper()
	attached := n.Attached()
	if out, code := n.Deckhand("reset", "--yes", "--force"); code != 0 {
		n.t.Errorf("deckhand reset ended with %d: %s", code, out)
	}
	n.NothingLeft(attached)
}

// NothingLeft fails the test if anything of this node is still on the host after `deckhand reset`. attached are the
// interfaces that its bridge had.
func (n *Node) NothingLeft(attached []string) {
	n.t.Helper()
	for _, what := range n.leftovers(attached) {
		n.t.Errorf("left on the host by deckhand reset: %s", what)
	}
}

// PodLeftovers lists what pods have left on the host while the agent runs and no
// pod should be there.
func (n *Node) PodLeftovers() error {
	n.t.Helper()
	var left []string
	for id, pod := range n.Sandboxes() {
		left = append(left, "sandbox "+id+" of "+pod)
	}
	for _, c := range n.Containers() {
		left = append(left, "container "+c.ID+" of "+c.Pod)
	}
	for _, p := range processes() {
		if strings.HasPrefix(filepath.Base(p.args[0]), "containerd-shim") && strings.Contains(p.String(), n.RootDir+"/") || n.inOurCgroups(p.pid) {
			left = append(left, "process "+p.String())
		}
	}
	left = append(left, n.podMounts()...)
	for _, name := range n.Attached() {
		left = append(left, "network interface "+name)
	}
	for i := 2; i < 10; i++ {
		left = append(left, n.leftNetfilter(fmt.Sprintf("dport %d ", n.Port(i)))...)
	}
	for _, qos := range []string{"", "burstable", "besteffort"} {
		for _, dir := range cgroupDirs(filepath.Join(n.CgroupRoot, "kubepods", qos)) {
			for _, name := range list(dir) {
				if strings.HasPrefix(name, "pod") {
					left = append(left, "control group "+filepath.Join(dir, name))
				}
			}
		}
	}
	for _, dir := range []string{filepath.Join(n.RootDir, "pods"), n.PodLogs, n.LogLinks} {
		for _, name := range list(dir) {
			left = append(left, filepath.Join(dir, name))
		}
	}
	for _, name := range list(filepath.Join(n.RootDir, "cni", "addresses", n.in.Config.Bridge)) {
		if net.ParseIP(name) != nil {
			left = append(left, "address "+name)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("left on the host:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}

// leftProcesses are the processes that name our directory or are in our control groups.
func (n *Node) leftProcesses() []string {
	var left []string
	for _, p := range processes() {
		if p.pid != os.Getpid() && (strings.Contains(p.String(), n.RootDir) || n.inOurCgroups(p.pid)) {
			left = append(left, "process "+p.String())
		}
	}
	return left
}

// leftMounts are the mounts below the base directory and in our directory for sockets.
func (n *Node) leftMounts() []string {
	layout, err := n.in.Config.Layout()
	if err != nil {
		n.t.Fatal(err)
	}
	var left []string
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, info := range infos {
		if strings.HasPrefix(info.Mountpoint, n.Base+"/") || strings.HasPrefix(info.Mountpoint, layout.Run()+"/") {
			left = append(left, "mount "+info.Mountpoint)
		}
	}
	return left
}

// podMounts are leftMounts without the root directory itself, which stays mounted until the node is taken down.
func (n *Node) podMounts() []string {
	return slices.DeleteFunc(n.leftMounts(), func(what string) bool { return what == "mount "+n.RootDir })
}

// subnets are how the addresses of pods begin in a rule, for each family.
func (n *Node) subnets() []string {
	cidrs := strings.Split(n.in.Config.PodCIDR, ",")
	for i, cidr := range cidrs {
		cidrs[i] = strings.TrimSuffix(strings.TrimSuffix(cidr, "0/24"), "/112")
	}
	return cidrs
}

// leftNetfilter lists netfilter rules with any of the words.
func (n *Node) leftNetfilter(words ...string) []string {
	var left []string
	for _, command := range [][]string{{"nft", "list", "ruleset"}, {"iptables-save"}} {
		path, err := exec.LookPath(command[0])
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(context.Background(), path, command[1:]...).Output()
		if err != nil {
			n.t.Errorf("%s: %v", strings.Join(command, " "), err)
			continue
		}
		for line := range strings.SplitSeq(string(out), "\n") {
			for _, word := range words {
				if mentions(line, word) {
					left = append(left, command[0]+" rule "+strings.TrimSpace(line))
				}
			}
		}
	}
	return left
}

// mentions reports whether the word is in the line, and doesn't go on in another digit
// there: dhtest10 isn't dhtest1.
func mentions(line, word string) bool {
	for rest := line; ; {
		at := strings.Index(rest, word)
		if at < 0 {
			return false
		}
		rest = rest[at+len(word):]
		if !digitAt(word, len(word)-1) || !digitAt(rest, 0) {
			return true
		}
	}
}

func digitAt(s string, i int) bool { return i < len(s) && s[i] >= '0' && s[i] <= '9' }

// cgroupDirs are the directories of a control group in every hierarchy that has it.
func cgroupDirs(group string) []string {
	infos, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil
	}
	var out []string
	for _, info := range infos {
		dir := filepath.Join(info.Mountpoint, group)
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			out = append(out, dir)
		}
	}
	return out
}

// CgroupFile reads the file of a container's control group in whichever hierarchy
// has it, by the first of the names that exists (cgroup v1's and v2's differ).
func (n *Node) CgroupFile(uid, id string, names ...string) (string, error) {
	for _, qos := range []string{"", "burstable", "besteffort"} {
		for _, dir := range cgroupDirs(filepath.Join(n.CgroupRoot, "kubepods", qos, "pod"+uid, id)) {
			for _, name := range names {
				if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
					return strings.TrimSpace(string(text)), nil
				}
			}
		}
	}
	return "", fmt.Errorf("no control group of container %s has %v", id, names)
}

// Freeze freezes the control group of a pod, or what is below it: a container's.
func (n *Node) Freeze(uid string, below ...string) error {
	for _, v := range [][2]string{{"freezer.state", "FROZEN"}, {"cgroup.freeze", "1"}} { // cgroup v1's, and v2's
		for _, qos := range []string{"", "burstable", "besteffort"} {
			for _, dir := range cgroupDirs(filepath.Join(append([]string{n.CgroupRoot, "kubepods", qos, "pod" + uid}, below...)...)) {
				path := filepath.Join(dir, v[0])
				if _, err := os.Stat(path); err == nil {
					return os.WriteFile(path, []byte(v[1]), 0)
				}
			}
		}
	}
	return fmt.Errorf("pod %s has no control group that can be frozen", uid)
}

// list are the names in a directory; none if it doesn't exist.
func list(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out
}
