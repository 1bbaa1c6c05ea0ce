package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels by which the runtime knows a container's pod, as the kubelet writes them.
const (
	labelPod       = "io.kubernetes.pod.name"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// Container is what the runtime itself says of a container.
type Container struct {
	ID, Name, Pod, UID, Sandbox string
	Attempt                     uint32
	Running                     bool
}

// Containers lists all containers the runtime has, asking it directly.
func (n *Node) Containers() []Container {
	n.t.Helper()
	list, err := n.containers(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

func (n *Node) containers(ctx context.Context) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, Deadline)
	defer cancel()
	list, err := n.conn.ListContainers(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := make([]Container, len(list))
	for i, c := range list {
		out[i] = Container{ID: c.Id, Name: c.Labels[labelContainer], Pod: c.Labels[labelPod], UID: c.Labels[labelUID], Sandbox: c.PodSandboxId,
			Attempt: c.Metadata.GetAttempt(), Running: c.State == runtimeapi.ContainerState_CONTAINER_RUNNING}
	}
	return out, nil
}

// Sandboxes lists all sandboxes the runtime has, by ID, with the pod's name.
func (n *Node) Sandboxes() map[string]string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	list, err := n.conn.ListPodSandbox(ctx, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]string{}
	for _, s := range list {
		out[s.Id] = s.GetMetadata().GetName()
	}
	return out
}

// RunningIDs are the IDs of the running containers, by "pod/container". It fails
// the test if two of one name run.
func (n *Node) RunningIDs() map[string]string {
	n.t.Helper()
	out := map[string]string{}
	for _, c := range n.Containers() {
		if !c.Running {
			continue
		}
		key := c.Pod + "/" + c.Name
		if out[key] != "" {
			n.t.Errorf("two containers %s run at once: %s and %s", key, out[key], c.ID)
		}
		out[key] = c.ID
	}
	return out
}

// Containerd returns the process of this node's containerd, or 0.
func (n *Node) Containerd() int {
	config := filepath.Join(n.RootDir, "containerd", "config.toml")
	for _, p := range processes() {
		if filepath.Base(p.args[0]) == "containerd" && slices.Contains(p.args, config) {
			return p.pid
		}
	}
	return 0
}

// SignalContainerd sends containerd a signal. After SIGSTOP it waits until each of its threads has stopped: on a machine with much to do others go
// on until the one that the kernel chose has its turn.
func (n *Node) SignalContainerd(signal syscall.Signal) {
	n.t.Helper()
	pid := n.Containerd()
	if pid == 0 {
		n.t.Fatal("containerd doesn't run")
	}
	if err := syscall.Kill(pid, signal); err != nil {
		n.t.Fatal(err)
	}
	if signal == syscall.SIGSTOP {
		n.Eventually("containerd stands still", func() error {
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
			for _, path := range threads {
				if text, _ := os.ReadFile(path); !bytes.Contains(text, []byte("State:\tT")) {
					return fmt.Errorf("%s: %.80s", path, text)
				}
			}
			return err
		})
	}
}

// running is one process of the host.
type running struct {
	pid  int
	args []string
}

func (p running) String() string { return fmt.Sprintf("%d %s", p.pid, strings.Join(p.args, " ")) }

// processes lists the host's processes, less those that end meanwhile or are the kernel's.
func processes() []running {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []running
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && len(line) > 0 {
			out = append(out, running{pid, strings.Split(string(bytes.TrimSuffix(line, []byte{0})), "\x00")})
		}
	}
	return out
}

// inOurCgroups reports whether a process is in this node's control groups.
func (n *Node) inOurCgroups(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(text), ":"+n.CgroupRoot+"/")
}

// Running looks whether exactly these containers run, as "pod/container" with the
// pod's name in its manifest.
func (n *Node) Running(want ...string) func() error {
	return func() error {
		var got []string
		for _, c := range n.Containers() {
			if c.Running {
				got = append(got, strings.TrimSuffix(c.Pod, "-"+Name)+"/"+c.Name)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Errorf("containers %q run, want %q", got, want)
		}
		return nil
	}
}

// Instance is a sandbox (Container is empty) or an instance of a container, as the runtime has it.
type Instance struct {
	Pod, UID, Container, State string
	Attempt                    uint32
	Created, Started, Finished time.Time
}

// Instances are all that the runtime has, by ID.
func (n *Node) Instances() map[string]Instance {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	out := map[string]Instance{}
	sandboxes, err := n.conn.ListPodSandbox(ctx, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range sandboxes {
		out[s.Id] = Instance{Pod: s.GetMetadata().GetName(), UID: s.GetMetadata().GetUid(), State: s.State.String(), Attempt: s.GetMetadata().GetAttempt(), Created: time.Unix(0, s.CreatedAt)}
	}
	for _, c := range n.Containers() {
		st, err := n.conn.ContainerStatus(ctx, c.ID)
		if err != nil {
			n.t.Fatal(err)
		}
		out[c.ID] = Instance{Pod: c.Pod, UID: c.UID, Container: c.Name, State: st.State.String(), Attempt: c.Attempt,
			Created: time.Unix(0, st.CreatedAt), Started: time.Unix(0, st.StartedAt), Finished: time.Unix(0, st.FinishedAt)}
	}
	return out
}

// StartTimes are when the containers started, by their name, as the runtime says.
func (n *Node) StartTimes() map[string]time.Time {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	out := map[string]time.Time{}
	for _, c := range n.Containers() {
		st, err := n.conn.ContainerStatus(ctx, c.ID)
		if err != nil {
			n.t.Fatal(err)
		}
		out[c.Name] = time.Unix(0, st.StartedAt)
	}
	return out
}
