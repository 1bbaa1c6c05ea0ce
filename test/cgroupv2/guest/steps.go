package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// kubepods is the group that all pods' groups are in.
const kubepods = machine.CgroupDir + "/kubepods"

// steps is what happens in the guest, from an empty machine to an empty machine.
func steps(ctx context.Context, a *agent) error {
	tellHost()
	machine.TellFile("controllers", machine.CgroupDir+"/cgroup.controllers")
	machine.TellFile("pressure", "/proc/pressure/cpu")
	if err := contract(ctx); err != nil {
		return err
	}
	names := []string{"guaranteed", "burstable"}
	if err := placeManifests(names); err != nil {
		return err
	}
	if err := a.start(); err != nil {
		return err
	}
	before, err := a.awaitReady(ctx, names)
	if err != nil {
		return err
	}
	tellPods(before, "")
	tellGroups(ctx, before)
	if err := tellProcesses(a, ""); err != nil {
		return err
	}
	if err := tellMeasured(ctx); err != nil {
		return err
	}
	tellAnswers(ctx, before, "")

	if err := runOutOfMemory(ctx, a); err != nil {
		return err
	}
	if err := exceedLimit(ctx, a, "group"); err != nil {
		return err
	}

	if err := a.kill(); err != nil {
		return err
	}
	config, err := os.ReadFile(a.config)
	if err != nil {
		return err
	}
	if err := askKubelet(ctx, config, len(names)); err != nil {
		return err
	}
	// The runtime tells which container's processes were killed; without the kernel's log only SystemOOM is missing.
	if err := os.Rename(kernel.LogDevice, kernel.LogDevice+"-hidden"); err != nil {
		return err
	}
	a.config = "/etc/single.yaml"
	if err := os.WriteFile(a.config, append(config, "singleProcessOOMKill: true\n"...), 0o600); err != nil {
		return err
	}
	if err := a.start(); err != nil {
		return err
	}
	after, err := a.awaitReady(ctx, names)
	if err != nil {
		return fmt.Errorf("after kill -9: %w", err)
	}
	own, err := said(ctx)
	if err != nil {
		return err
	}
	tellSaid("deckhand", own)
	tellPods(after, " after kill -9")
	tellAnswers(ctx, after, " after kill -9")
	machine.TellFile("burstable QoS cgroup cpu.weight after kill -9", kubepods+"/burstable/cpu.weight")
	machine.TellFile("kubepods memory.min after kill -9", kubepods+"/memory.min")
	if err := tellProcesses(a, " after kill -9"); err != nil {
		return err
	}
	if err := exceedLimit(ctx, a, "single"); err != nil {
		return err
	}
	if err := evict(ctx, a); err != nil {
		return err
	}
	log, err := os.ReadFile(agentLog)
	if err != nil {
		return err
	}
	machine.Tell(strconv.Itoa(strings.Count(string(log), "Nobody is told when the machine runs out of memory")), "starts without the kernel's log")

	return clearAway(ctx, a, names)
}

// contract runs the tests of packages resources/cgroup/tree and resources/cgroup, but for those of containers and of systemd, which have machines of their own (a child
// takes long to start here, so that one is killed at every fifth step), those of resources/stats of what groups come to, and those of host/alarm.
func contract(ctx context.Context) error {
	for name, args := range map[string][]string{
		"cgroup": {"-test.short", "-test.skip", "TestRealContainers|TestSystemd", "-kill.every", "5"},
		"stats":  {"-test.run", "^(TestFirstAnswer|TestGroupsComeAndGo|TestAges|TestAtRest|TestOneBrokenGroup)$"},
		"alarm":  nil,
		"tree":   nil,
	} {
		cmd := exec.CommandContext(ctx, machine.Dir+"/"+name+".test", args...)
		cmd.Dir = "/tmp"
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("the tests of package %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

// tellHost reports what comes of an attempt to write to the host.
func tellHost() {
	outcome := "written"
	var refused *fs.PathError
	if err := os.WriteFile(machine.Dir+"/guest-was-here", nil, 0o600); errors.As(err, &refused) {
		outcome = refused.Err.Error()
	}
	machine.Tell(outcome, "a file on the host")
}

func placeManifests(names []string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(machine.Dir, name+".yaml"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(manifest(name), text, 0o600); err != nil {
			return err
		}
	}
	images := filepath.Join(rootDir, "images")
	if err := os.MkdirAll(images, 0o700); err != nil {
		return err
	}
	archives, err := filepath.Glob(machine.BinDir + "/images/*.tar")
	if err != nil || len(archives) == 0 {
		return errors.Join(err, errors.New("there are no image archives"))
	}
	for _, path := range archives {
		if err := os.Symlink(path, filepath.Join(images, filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}

// runOutOfMemory has the machine run out of memory, as far as the kernel believes what it is told to, and reports which events of the node there are
// about that.
func runOutOfMemory(ctx context.Context, a *agent) error {
	victim := exec.Command("sleep", "1h")
	if err := victim.Start(); err != nil {
		return err
	}
	pid := strconv.Itoa(victim.Process.Pid)
	err := os.WriteFile("/proc/"+pid+"/oom_score_adj", []byte("1000"), 0)
	if err == nil {
		err = os.WriteFile("/proc/sysrq-trigger", []byte("f"), 0)
	}
	if err != nil {
		return errors.Join(err, victim.Process.Kill(), victim.Wait())
	}
	_ = victim.Wait() // it was killed
	return machine.Await(ctx, leg, a.ended, func(ctx context.Context) error {
		text, err := exec.CommandContext(ctx, machine.Dir+"/deckhand", "events", "--root-dir", rootDir, "-o", "json").Output()
		if err != nil {
			return err
		}
		var list v1.EventList
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		messages := map[string][]string{}
		for _, e := range list.Items {
			if e.Reason == "SystemOOM" {
				about := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
				messages[about] = append(messages[about], strings.ReplaceAll(e.Message, pid, "VICTIM"))
			}
		}
		if len(messages) == 0 {
			return errors.New("there is no event SystemOOM")
		}
		for about, list := range messages {
			machine.Tell(strings.Join(list, "; "), "SystemOOM of %s", about)
		}
		return nil
	})
}

func manifest(name string) string { return filepath.Join(manifestDir, name+".yaml") }

// tellPods reports what the agent says about pods that shouldn't change.
func tellPods(pods []v1.Pod, when string) {
	for _, p := range pods {
		name := short(p)
		machine.Tell(string(p.UID), "%s uid%s", name, when)
		machine.Tell(string(p.Status.QOSClass), "%s qosClass%s", name, when)
		for _, c := range p.Status.ContainerStatuses {
			machine.Tell(c.ContainerID, "%s container id%s", name, when)
			machine.Tell(fmt.Sprint(c.RestartCount), "%s restarts%s", name, when)
		}
	}
}

func short(p v1.Pod) string { return strings.TrimSuffix(p.Name, "-guest") }

// tellAnswers reports what the pods' web servers say, at the pod's own address and
// at the host's port.
func tellAnswers(ctx context.Context, pods []v1.Pod, when string) {
	for _, p := range pods {
		port := p.Spec.Containers[0].Ports[0]
		machine.TellAnswer(ctx, net.JoinHostPort(p.Status.PodIP, fmt.Sprint(port.ContainerPort)), short(p)+" at pod IP"+when)
		if port.HostPort != 0 {
			machine.TellAnswer(ctx, net.JoinHostPort("127.0.0.1", fmt.Sprint(port.HostPort)), short(p)+" at host port"+when)
		}
	}
}

// tellGroups tells the limits of QoS cgroups, pods and containers.
func tellGroups(ctx context.Context, pods []v1.Pod) {
	for _, qos := range []string{"burstable", "besteffort"} {
		machine.TellFile(qos+" QoS cgroup cpu.weight", filepath.Join(kubepods, qos, "cpu.weight"))
	}
	machine.TellFile("kubepods memory.min", filepath.Join(kubepods, "memory.min"))
	machine.TellFile("burstable QoS cgroup memory.low", filepath.Join(kubepods, "burstable", "memory.low"))
	for _, p := range pods {
		dir := podGroup(p)
		for _, file := range []string{"cpu.max", "cpu.weight", "memory.max", "memory.min", "memory.low", "memory.swap.max", "pids.max"} {
			machine.TellFile(fmt.Sprintf("%s pod %s", short(p), file), filepath.Join(dir, file))
		}
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
		for _, file := range []string{"cpu.max", "cpu.weight", "memory.max", "memory.min", "memory.low", "memory.high", "memory.swap.max", "memory.oom.group", "cgroup.controllers"} {
			machine.TellFile(fmt.Sprintf("%s container %s", short(p), file), filepath.Join(dir, id, file))
		}
		machine.Tell(machine.Commands(ctx, filepath.Join(dir, id)), "%s container processes", short(p))
	}
}

func podGroup(p v1.Pod) string {
	qos := kubepods
	if p.Status.QOSClass != v1.PodQOSGuaranteed {
		qos = filepath.Join(qos, strings.ToLower(string(p.Status.QOSClass)))
	}
	return filepath.Join(qos, "pod"+string(p.UID))
}

// tellProcesses reports in which groups processes of the host are.
func tellProcesses(a *agent, when string) error {
	running, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	pids := map[string]string{"first process": "1", "guest": strconv.Itoa(os.Getpid()), "agent": strconv.Itoa(a.process.Pid)}
	kernels := map[string]bool{}
	for _, path := range running {
		name, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		dir := filepath.Dir(path)
		if string(name) == "containerd\n" {
			pids["containerd"] = filepath.Base(dir)
		}
		if group, err := os.ReadFile(dir + "/cgroup"); err == nil && ofKernel(dir) {
			kernels[strings.TrimSpace(string(group))] = true
		}
	}
	machine.Tell(strings.Join(slices.Sorted(maps.Keys(kernels)), " "), "kernel's group%s", when)
	for name, pid := range pids {
		machine.TellFile(name+"'s group"+when, "/proc/"+pid+"/cgroup")
	}
	return nil
}

// ofKernel reports whether the kernel's kthreadd, which is process 2, started a process.
func ofKernel(dir string) bool {
	stat, err := os.ReadFile(dir + "/stat")
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && strings.HasPrefix(state[min(1, len(state)):], " 2 ")
}

// tellMeasured reports of which parts of the host the use is told.
func tellMeasured(ctx context.Context) error {
	text, err := machine.Get(ctx, readOnlyURL+"/stats/summary")
	if err != nil {
		return err
	}
	var summary statsapi.Summary
	if err := json.Unmarshal(text, &summary); err != nil {
		return err
	}
	var names []string
	for _, c := range summary.Node.SystemContainers {
		if c.Memory != nil && c.Memory.UsageBytes != nil && *c.Memory.UsageBytes > 0 {
			names = append(names, c.Name)
		}
	}
	machine.Tell(strings.Join(names, " "), "measured parts of the host")
	return nil
}

// clearAway removes the manifests and tells what is left of the pods.
func clearAway(ctx context.Context, a *agent, names []string) error {
	for _, name := range names {
		if err := os.Remove(manifest(name)); err != nil {
			return err
		}
	}
	if err := a.awaitNone(ctx); err != nil {
		return fmt.Errorf("after the manifests were removed: %w", err)
	}
	groups, err := podGroups()
	if err != nil {
		return err
	}
	machine.Tell(strings.Join(groups, " "), "pods' groups left")
	mounts, err := podMounts()
	if err != nil {
		return err
	}
	machine.Tell(strings.Join(mounts, " "), "pods' mounts left")
	status, err := a.stop()
	if err != nil {
		return err
	}
	machine.Tell(status, "the agent's end")
	return nil
}

// podGroups lists the groups of pods.
func podGroups() ([]string, error) {
	var groups []string
	err := filepath.WalkDir(kubepods, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), "pod") {
			groups = append(groups, path)
			return fs.SkipDir
		}
		return nil
	})
	return groups, err
}

// podMounts lists the mounts below the agent's root directory: pods' root file
// systems, volumes and network namespaces.
func podMounts() ([]string, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var mounts []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[1], rootDir+"/") {
			mounts = append(mounts, fields[1])
		}
	}
	slices.Sort(mounts)
	return mounts, nil
}
