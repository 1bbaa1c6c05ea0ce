package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	podtypes "github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// A pod that asks for a device waits for its plugin, sees what the plugin gives it, and runs on without the plugin, also when its
// container or the agent is started again. After a reboot it waits for the plugin, which announces itself in the other way by then.
func TestDevices(t *testing.T) {
	t.Parallel()
	n := start(t)
	lib := filepath.Join(n.Base, "lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "driver"), []byte("version 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const ask = "resources: {limits: {example.com/gpu: 1}}"
	n.Write("a.yaml", pod("a", ask))
	n.Await("the pod waits for the plugin", waitsFor("a", podtypes.WaitForPlugin))
	if out, _ := n.Deckhand("why", "a"); !strings.Contains(out, "waiting for the device plugin of example.com/gpu, which hasn't registered") {
		t.Errorf("why says:\n%s", out)
	}
	cdi := cdiDevice(t, n)
	p := devicestest.New(t, filepath.Join(n.RootDir, "device-plugins"), "example.com/gpu", "one", "two")
	p.Answer = func(ids []string) *api.ContainerAllocateResponse {
		return &api.ContainerAllocateResponse{Envs: map[string]string{"GPU": ids[0]}, Mounts: []*api.Mount{{ContainerPath: "/lib/gpu", HostPath: lib, ReadOnly: true}},
			Devices: []*api.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/null", Permissions: "r"}}, CdiDevices: []*api.CDIDevice{{Name: cdi}}}
	}
	if err := p.Register(); err != nil {
		t.Fatal(err)
	}
	s := n.Await("the pod runs", node.Ready("a"))
	for _, command := range [][]string{{"version 7", "/web", "cat", "/lib/gpu/driver"}, {"GPU=one", "/web", "env"}, {"BY_CDI=yes", "/web", "env"}, {"", "/web", "cat", "/dev/gpu"}} {
		if out, code := n.Deckhand(append([]string{"exec", "a", "--"}, command[1:]...)...); code != 0 || !strings.Contains(out, command[0]) {
			t.Errorf("%v says, with code %d, %q", command[1:], code, out)
		}
	}
	if out, code := n.Deckhand("node"); code != 0 || !regexp.MustCompile(`(?m)^example.com/gpu +2 .* 2 +1 \(50%\)`).MatchString(out) || !strings.Contains(out, "example.com/gpu: 1") || !regexp.MustCompile(`(?m)^default +a-\S+ +web +example.com/gpu +one$`).MatchString(out) {
		t.Errorf("node says, with code %d:\n%s", code, out)
	}
	first := containerID(t, s, "a", "web")
	n.Write("b.yaml", pod("b", "resources: {limits: {example.com/gpu: 2}}"))
	n.Await("there aren't enough for another", failed("b", "OutOfexample.com/gpu", "requested: 2, used: 1, capacity: 2"))
	p.Die()
	n.Kill()
	n.Start()
	n.Write("c.yaml", pod("c", ask))
	s = n.Await("the pod runs on without the plugin, a new one waits", agentIs(n), node.Ready("a"), waitsFor("c", podtypes.WaitForPlugin))
	if h := view(t, s, "a").Pod.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(h) != 1 || h[0].Resources[0].ResourceID != "one" || h[0].Resources[0].Health != "Unknown" {
		t.Errorf("its devices are %+v", h)
	}
	if id := containerID(t, s, "a", "web"); id != first {
		t.Errorf("its container was %s and is %s", first, id)
	}
	p.Serve()
	if err := p.Register(); err != nil {
		t.Fatal(err)
	}
	n.Await("the new one has the other device", node.Ready("a", "c"))
	if told := fmt.Sprint(p.Told()); told != "[[one] [two]]" {
		t.Errorf("the plugin was told %s", told)
	}
	onlyForRoot(t, n)

	p.Die()
	n.PowerOff()
	n.Start()
	n.Await("after a reboot they wait for the plugin", agentIs(n), waitsForDevices("a"), waitsForDevices("c"))
	p.Serve()
	p.Announce(filepath.Join(n.RootDir, "plugins_registry"))
	s = n.Await("they run again", node.Ready("a", "c"))
	for name, device := range map[string]string{"a": "one", "c": "two"} {
		if h := view(t, s, name).Pod.Status.ContainerStatuses[0].AllocatedResourcesStatus; len(h) != 1 || h[0].Resources[0].ResourceID != v1.ResourceID(device) || h[0].Resources[0].Health != "Healthy" {
			t.Errorf("the devices of %s are %+v", name, h)
		}
	}
	if told := p.Told(); len(told) != 4 {
		t.Errorf("the plugin was told %v", told)
	}
}

// waitsForDevices checks that a pod that the node has admitted before waits for the plugin of its devices.
func waitsForDevices(name string) node.Condition {
	return node.Each([]string{name}, func(v local.PodView) error {
		if v.Pod.Status.Phase == v1.PodFailed || !strings.Contains(v.Waiting(), "waiting for the device plugin of example.com/gpu, which hasn't registered") {
			return fmt.Errorf("%s, waits for %s", v.Pod.Status.Phase, v.Waiting())
		}
		return nil
	})
}

// onlyForRoot checks that nobody else can connect to a socket of the agent, the runtime's aside.
func onlyForRoot(t *testing.T, n *node.Node) {
	t.Helper()
	var found []string
	for _, dir := range []string{"", "device-plugins", "plugins_registry", "pod-resources"} {
		entries, err := os.ReadDir(filepath.Join(n.RootDir, dir))
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if e.Type() != fs.ModeSocket || e.Name() == "gpu.sock" { // which the plugin has made
				continue
			}
			info, err := e.Info()
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s in %q: mode %v (%v)", e.Name(), dir, info.Mode(), err)
			}
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	if len(found) < 3 {
		t.Errorf("only %q are sockets", found)
	}
}

// cdiDevice has the runtime know a device by the Container Device Interface, and returns its name.
func cdiDevice(t *testing.T, n *node.Node) string {
	t.Helper()
	const dir = "/var/run/cdi"
	kind := fmt.Sprintf("deckhand-test-%d.example.com/gpu", n.Port(0))
	path := filepath.Join(dir, strings.ReplaceAll(kind, "/", "-")+".json")
	t.Cleanup(func() { _ = errors.Join(os.Remove(path), os.Remove(dir)) }) // others may have theirs there
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"cdiVersion": "0.6.0", "kind": %q, "devices": [{"name": "all", "containerEdits": {"env": ["BY_CDI=yes"]}}]}`, kind), 0o644); err != nil {
		t.Fatal(err)
	}
	return kind + "=all"
}

// waitsFor checks that a pod waits for something before the node admits it.
func waitsFor(name string, what podtypes.WaitFor) node.Condition {
	return func(s local.Snapshot) error {
		v := node.Find(s, name)
		if v == nil {
			return fmt.Errorf("pod %s isn't there", name)
		}
		for _, w := range v.Waits {
			if w.For == what {
				return nil
			}
		}
		return fmt.Errorf("pod %s waits for %+v", name, v.Waits)
	}
}
