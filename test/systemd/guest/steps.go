package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

const (
	manifest = "/etc/kubernetes/manifests/web.yaml"
	health   = "http://127.0.0.1:10248/healthz"
	burst    = machine.CgroupDir + "/kubepods.slice/kubepods-burstable.slice"
	// leg is how long one step may take. A container takes some seconds to start here.
	leg = 3 * time.Minute
)

// steps is what happens in the guest, from an empty host to an empty host.
func steps(ctx context.Context) error {
	steps := []func(context.Context) error{contract, containerd, kubelet, service}
	if _, err := os.Stat(machine.CgroupDir + "/memory"); err == nil {
		machine.Tell("v1", "cgroups") // which Kubernetes gives up: its groups have to be right, and that is all
		steps = steps[:1]
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// contract runs the tests of package resources/cgroup, which hold for every driver.
func contract(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, machine.Dir+"/resources.test", "-test.short", "-test.skip", "TestRealContainers|TestSystemd")
	cmd.Env = append(os.Environ(), "DECKHAND_TEST_CGROUP_DRIVER=systemd")
	cmd.Dir = "/tmp"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("the tests of internal/resources/cgroup: %w\n%s", err, out)
	}
	return tellCommand(ctx, "slices left of the tests", "systemctl", "list-units", "--all", "--plain", "--no-legend", "deckhand*")
}

// containerd starts the runtime and gives it the images.
func containerd(ctx context.Context) error {
	if _, err := run(ctx, "systemctl", "start", "containerd"); err != nil {
		return err
	}
	archives, err := filepath.Glob(machine.BinDir + "/images/*.tar")
	if err != nil || len(archives) == 0 {
		return errors.Join(err, errors.New("there are no image archives"))
	}
	for _, name := range archives {
		if _, err := run(ctx, machine.BinDir+"/ctr", "-n", "k8s.io", "images", "import", name); err != nil {
			return err
		}
	}
	return nil
}

// kubelet starts the unit as kubeadm installs it, and does to it what happens to units.
func kubelet(ctx context.Context) error {
	// Without a bus, as before, systemd's own socket serves as well.
	if _, err := run(ctx, "systemctl", "start", "dbus"); err != nil {
		return err
	}
	if _, err := run(ctx, "systemctl", "start", "kubelet"); err != nil {
		return err
	}
	p, err := awaitReady(ctx)
	if err != nil {
		return err
	}
	tellPod(ctx, p, "")
	clients, err := run(ctx, "busctl", "list", "--unique", "--no-legend", "--no-pager")
	if err != nil {
		return err
	}
	machine.Tell(fmt.Sprint(strings.Contains(clients, " kubelet ")), "kubelet is on the bus")
	machine.TellAnswer(ctx, p.Status.PodIP+":8080", "pod's answer")

	if _, err := run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	tellPod(ctx, p, " after daemon-reload")
	if _, err := run(ctx, "systemctl", "daemon-reexec"); err != nil { // the bus stays, the answers' sender is new
		return err
	}

	// What the runtime goes by counts more than the configuration (KEP-4033).
	if err := replace("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd", "cgroupDriver: cgroupfs"); err != nil {
		return err
	}
	if _, err := run(ctx, "systemctl", "restart", "kubelet"); err != nil {
		return err
	}
	if p, err = awaitReady(ctx); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	tellPod(ctx, p, " after restart")

	if err := os.Remove(manifest); err != nil {
		return err
	}
	if err := awaitNone(ctx); err != nil {
		return fmt.Errorf("after the manifest was removed: %w", err)
	}
	if err := tellCommand(ctx, "slices left", "systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "kubepods*pod*", "cri-containerd-*"); err != nil {
		return err
	}
	if _, err := run(ctx, "systemctl", "stop", "kubelet"); err != nil {
		return err
	}
	_, err = os.Lstat(machine.CgroupDir + "/kubepods")
	machine.Tell(fmt.Sprint(errors.Is(err, fs.ErrNotExist)), "no groups beside systemd's")
	return tellCommand(ctx, "kubelet's end", "systemctl", "show", "--value", "-p", "ActiveState,Result", "kubelet")
}

func replace(path, old, new string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), old) {
		return fmt.Errorf("%s doesn't say %q", path, old)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o644)
}

// service starts deckhand's own unit.
func service(ctx context.Context) error {
	if _, err := run(ctx, "systemctl", "stop", "containerd"); err != nil {
		return err
	}
	if _, err := run(ctx, "systemctl", "start", "systemd-journald"); err != nil {
		return err
	}
	if _, err := run(ctx, "systemctl", "start", "--no-block", "deckhand"); err != nil {
		return err
	}
	first := ""
	err := machine.Await(ctx, leg, nil, func(ctx context.Context) error {
		state, err := run(ctx, "systemctl", "show", "--value", "-p", "ActiveState", "deckhand")
		if first == "" {
			first = state
		}
		if err == nil && state != "active" {
			err = fmt.Errorf("deckhand.service is %s", state)
		}
		return err
	})
	if err != nil {
		return err
	}
	machine.Tell(first, "deckhand.service at first")
	// Active is who answers, well or not yet: the runtime may take its time.
	if _, err := machine.Get(ctx, health); err != nil && !strings.Contains(err.Error(), "ping ok") {
		return fmt.Errorf("deckhand.service is active and doesn't answer: %w", err)
	}
	err = machine.Await(ctx, leg, nil, func(ctx context.Context) error {
		_, err := machine.Get(ctx, health)
		return err
	})
	if err != nil {
		return fmt.Errorf("deckhand.service: %w", err)
	}
	conf, err := os.ReadFile("/var/lib/deckhand/containerd/config.toml")
	if err != nil {
		return err
	}
	machine.Tell(fmt.Sprint(strings.Contains(string(conf), "SystemdCgroup = true")), "deckhand.service's containers are systemd's")
	if err := journal(ctx); err != nil {
		return err
	}
	// Longer than the watchdog waits for a sign of life.
	time.Sleep(8 * time.Second)
	if err := tellCommand(ctx, "deckhand.service later", "systemctl", "show", "--value", "-p", "ActiveState,NRestarts", "deckhand"); err != nil {
		return err
	}
	if _, err := run(ctx, "systemctl", "stop", "deckhand"); err != nil {
		return err
	}
	return tellCommand(ctx, "deckhand.service's end", "systemctl", "show", "--value", "-p", "ActiveState,Result", "deckhand")
}

// journal asks deckhand for what its own unit has logged.
func journal(ctx context.Context) error {
	if _, err := run(ctx, "journalctl", "--sync"); err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: leg}
	for fact, query := range map[string]string{
		"the journal's lines of its start": "query=deckhand&boot=0&pattern=Starting+agent",
		"the journal's last line":          "query=deckhand.service&tailLines=1",
		"the journal from tomorrow on":     "query=deckhand&sinceTime=" + url.QueryEscape(time.Now().Add(24*time.Hour).Format(time.RFC3339)),
		"the journal of a boot before":     "query=deckhand&boot=-1",
		"the log of a service without one": "query=containerd&tailLines=1",
		"the log of a service that isn't":  "query=nobody",
	} {
		r, err := client.Get("https://127.0.0.1:10250/logs/?" + query)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return err
		}
		machine.Tell(strings.TrimSpace(fmt.Sprintf("%d %s", r.StatusCode, text)), "%s", fact)
	}
	return nil
}

// tellPod reports what shouldn't change, and the limits.
func tellPod(ctx context.Context, p v1.Pod, when string) {
	container := p.Status.ContainerStatuses[0]
	_, id, _ := strings.Cut(container.ContainerID, "://")
	pod := filepath.Join(burst, sliceOf(string(p.UID)))
	machine.Tell(string(p.UID), "pod uid%s", when)
	machine.Tell(id, "container id%s", when)
	machine.Tell(fmt.Sprint(container.RestartCount), "restarts%s", when)
	machine.TellFile("QoS cgroup cpu.weight"+when, filepath.Join(burst, "cpu.weight"))
	for _, file := range []string{"cpu.max", "cpu.weight", "memory.max", "memory.swap.max", "pids.max"} {
		machine.TellFile("pod "+file+when, filepath.Join(pod, file))
	}
	scope := filepath.Join(pod, "cri-containerd-"+id+".scope")
	for _, file := range []string{"cpu.max", "memory.max"} {
		machine.TellFile("container "+file+when, filepath.Join(scope, file))
	}
	machine.Tell(machine.Commands(ctx, scope), "container processes%s", when)
	state, err := run(ctx, "systemctl", "show", "--value", "-p", "ActiveState,Transient,MemoryMax", sliceOf(string(p.UID)))
	if err != nil {
		state = err.Error()
	}
	machine.Tell(state, "pod's slice%s", when)
}

func tellCommand(ctx context.Context, fact, name string, args ...string) error {
	out, err := run(ctx, name, args...)
	if err == nil {
		machine.Tell(out, "%s", fact)
	}
	return err
}

// run is what a command says, in one line.
func run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, leg)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.Join(strings.Fields(string(out)), " ")
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// pods asks the agent for its pods.
func pods(ctx context.Context) ([]v1.Pod, error) {
	text, err := machine.Get(ctx, "http://127.0.0.1:10255/pods")
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the agent's pods: %w", err)
	}
	return list.Items, nil
}

func awaitReady(ctx context.Context) (p v1.Pod, err error) {
	err = machine.Await(ctx, leg, nil, func(ctx context.Context) error {
		list, err := pods(ctx)
		if err != nil {
			return err
		}
		if len(list) != 1 {
			return fmt.Errorf("there are %d pods", len(list))
		}
		p = list[0]
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
				return nil
			}
		}
		status, err := json.Marshal(p.Status)
		return errors.Join(err, fmt.Errorf("the pod isn't ready: %s", status))
	})
	return p, err
}

func awaitNone(ctx context.Context) error {
	return machine.Await(ctx, leg, nil, func(ctx context.Context) error {
		list, err := pods(ctx)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("%d pods are there", len(list))
		}
		return err
	})
}

// logTail is how much of each log is shown after a failure, in bytes.
const logTail = 8 << 10

// printLogs shows the ends of what services wrote.
func printLogs() {
	logs, _ := filepath.Glob("/var/log/*.log") // fails for bad patterns only
	for _, name := range logs {
		if text, err := os.ReadFile(name); err == nil {
			fmt.Printf("The end of %s:\n%s\n", name, text[max(0, len(text)-logTail):])
		}
	}
}
