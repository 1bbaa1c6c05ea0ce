package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	podtypes "github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// A pod that asks for a device waits for its plugin, sees what the plugin gives it, and runs on without the plugin, also when its
// container or the agent is started again.
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
	p := devicestest.New(t, filepath.Join(n.RootDir, "device-plugins"), "example.com/gpu", "one", "two")
	p.Answer = func(ids []string) *api.ContainerAllocateResponse {
		return &api.ContainerAllocateResponse{Envs: map[string]string{"GPU": ids[0]}, Mounts: []*api.Mount{{ContainerPath: "/lib/gpu", HostPath: lib, ReadOnly: true}},
			Devices: []*api.DeviceSpec{{ContainerPath: "/dev/gpu", HostPath: "/dev/null", Permissions: "r"}}}
	}
	if err := p.Register(); err != nil {
		t.Fatal(err)
	}
	s := n.Await("the pod runs", node.Ready("a"))
	for _, command := range [][]string{{"version 7", "/web", "cat", "/lib/gpu/driver"}, {"GPU=one", "/web", "env"}, {"", "/web", "cat", "/dev/gpu"}} {
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
