package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// A pod answers at its own address and at its host port; the port goes with it. A port that a program of the host listens on is
// told, and only that.
func TestPodNetwork(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a", greeting("from a"), fmt.Sprintf("ports: [{containerPort: 8080, hostPort: %d}]", n.Port(2))))
	n.Write("h.yaml", pod("h", greeting("from h"), fmt.Sprintf("args: [serve, -listen, '127.0.0.1:%d']", n.Port(3)), fmt.Sprintf("ports: [{containerPort: %d}]", n.Port(3)), "spec.hostNetwork: true"))
	s := n.Await("both pods run", node.Ready("a", "h"))
	status := view(t, s, "a").Pod.Status
	if status.PodIP == "" || status.PodIP == status.HostIP || len(status.PodIPs) != 1 || status.PodIPs[0].IP != status.PodIP {
		t.Errorf("addresses of a: pod %s %v, host %s", status.PodIP, status.PodIPs, status.HostIP)
	}
	n.Eventually("a answers at its address", answers("http://"+status.PodIP+":8080/", "from a"))
	hostPort := fmt.Sprintf("http://127.0.0.1:%d/", n.Port(2))
	n.Eventually("a answers at the host's port", answers(hostPort, "from a"))
	if status := view(t, s, "h").Pod.Status; status.PodIP != "127.0.0.1" {
		t.Errorf("the address of a pod on the host's network is %s, want the node's", status.PodIP)
	}
	n.Eventually("h answers on the host's network", answers(fmt.Sprintf("http://127.0.0.1:%d/", n.Port(3)), "from h"))

	n.Remove("a.yaml")
	n.Await("a is gone", node.Only("h"))
	if body, _, err := get(hostPort); err == nil {
		t.Errorf("the host's port still answers: %s", body)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", n.Port(4)))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n.Write("b.yaml", pod("b", greeting("from b"), fmt.Sprintf("ports: [{containerPort: 8080, hostPort: %d}, {containerPort: 8081, hostPort: %d}]", n.Port(2), n.Port(4))))
	n.Await("b runs", node.Ready("b"))
	n.Eventually("b has the port", answers(hostPort, "from b"))
	taken := fmt.Sprintf("Port %d/TCP of the host is in use by e2e.test (process %d)", n.Port(4), os.Getpid())
	if out, code := n.Deckhand("why", "b"); code != 0 || !strings.Contains(out, taken) {
		t.Errorf("why b ended with %d and said %q, want %q", code, out, taken)
	}
	if out, code := n.Deckhand("events"); code != 0 || strings.Count(out, "HostPortConflict") != 1 {
		t.Errorf("the events ended with %d and are %q, want one HostPortConflict", code, out)
	}
}

// Containers of a pod share an emptyDir, which goes with the pod; a hostPath stays.
func TestVolumes(t *testing.T) {
	t.Parallel()
	n := start(t)
	host := filepath.Join(n.Base, "host")
	n.Write("a.yaml", `apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  terminationGracePeriodSeconds: 2
  volumes:
  - {name: data, emptyDir: {}}
  - {name: host, hostPath: {path: `+host+`, type: DirectoryOrCreate}}
  containers:
  - {name: writer, image: `+node.Image+`, args: [clock, /data/now, 50ms], volumeMounts: [{name: data, mountPath: /data}]}
  - {name: web, image: `+node.Image+`, env: [{name: WEB_FILES, value: /data}], volumeMounts: [{name: data, mountPath: /data, readOnly: true}]}
  - {name: once, image: `+node.Image+`, args: [clock, /out/kept, 50ms], volumeMounts: [{name: host, mountPath: /out}]}
`)
	s := n.Await("the pod runs", node.Ready("a"))
	v := view(t, s, "a")
	page := "http://" + v.Pod.Status.PodIP + ":8080/files/now"
	n.Eventually("one container serves what the other writes", answers(page, "T"))
	n.Eventually("the host has the file", func() error { _, err := os.Stat(filepath.Join(host, "kept")); return err })
	if dirs, err := filepath.Glob(filepath.Join(n.RootDir, "pods", string(v.Pod.UID), "volumes", "kubernetes.io~empty-dir", "data")); err != nil || len(dirs) != 1 {
		t.Errorf("the emptyDir isn't at the kubelet's place: %v %v", dirs, err)
	}
	n.Remove("a.yaml")
	n.Await("the pod is gone", node.Only())
	n.Eventually("the pod leaves nothing", n.PodLeftovers)
	if _, err := os.Stat(filepath.Join(host, "kept")); err != nil {
		t.Errorf("the hostPath was removed with the pod: %v", err)
	}
}

// Limits and requests reach the kernel; the pod's class decides where its group is.
func TestResources(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a", "resources: {limits: {cpu: 250m, memory: 64Mi}, requests: {cpu: 100m, memory: 32Mi}}"))
	n.Write("g.yaml", pod("g", "resources: {limits: {cpu: 100m, memory: 32Mi}}"))
	s := n.Await("the pods run", node.Ready("a", "g"))
	for name, class := range map[string]string{"a": "Burstable", "g": "Guaranteed"} {
		if got := view(t, s, name).Pod.Status.QOSClass; string(got) != class {
			t.Errorf("class of %s is %s, want %s", name, got, class)
		}
	}
	uid, id := string(view(t, s, "a").Pod.UID), containerID(t, s, "a", "web")
	for what, want := range map[string]struct {
		files  []string
		values []string
	}{
		"memory limit": {[]string{"memory.limit_in_bytes", "memory.max"}, []string{"67108864"}},
		"CPU limit":    {[]string{"cpu.cfs_quota_us", "cpu.max"}, []string{"25000", "25000 100000"}},
		"CPU request":  {[]string{"cpu.shares", "cpu.weight"}, []string{"102", "4", "17"}},
	} {
		got, err := n.CgroupFile(uid, id, want.files...)
		if err != nil || !slices.Contains(want.values, got) {
			t.Errorf("%s: %q, want one of %q: %v", what, got, want.values, err)
		}
	}
}

// What a container prints is where log shippers look for it.
func TestEnvironmentArgumentsAndLogs(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", `apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: e2e}}
spec:
  restartPolicy: Never
  containers:
  - name: web
    image: `+node.Image+`
    command: [/web]
    args: [env]
    env:
    - {name: PLAIN, value: simple}
    - {name: MADE, value: "of $(PLAIN) and $$(PLAIN)"}
    - {name: FROM, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
`)
	s := n.Await("the container has printed its environment", node.Phase("a", "Succeeded"))
	uid, id := string(view(t, s, "a").Pod.UID), containerID(t, s, "a", "web")
	log := filepath.Join(n.PodLogs, "default_a-node1_"+uid, "web", "0.log")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"PLAIN=simple", "MADE=of simple and $(PLAIN)", "FROM=e2e", "HOSTNAME=a-node1"} {
		if !strings.Contains(string(text), " stdout F "+line+"\n") {
			t.Errorf("the log doesn't have %q:\n%s", line, text)
		}
	}
	link := filepath.Join(n.LogLinks, "a-node1_default_web-"+id+".log")
	if target, err := os.Readlink(link); err != nil || target != log {
		t.Errorf("the link %s leads to %q, want %q: %v", link, target, log, err)
	}
	n.Remove("a.yaml")
	n.Await("the pod is gone", node.Only())
	n.Eventually("logs and link go with it", n.PodLeftovers)
}

// The kubelet's paths in the control group tree, from the outside.
func TestContainerProcessIsInItsGroup(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a"))
	s := n.Await("the pod runs", node.Ready("a"), node.Each([]string{"a"}, func(v local.PodView) error {
		if v.Pod.Status.QOSClass != "BestEffort" {
			return errors.New(string(v.Pod.Status.QOSClass))
		}
		return nil
	}))
	uid, id := string(view(t, s, "a").Pod.UID), containerID(t, s, "a", "web")
	if procs, err := n.CgroupFile(uid, id, "cgroup.procs"); err != nil || procs == "" {
		t.Errorf("processes in the container's group: %q: %v", procs, err)
	}
}
