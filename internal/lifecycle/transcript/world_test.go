package transcript

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a runtime and a worker in memory, as far as is needed to have decisions to record.
type world struct {
	in    lifecycle.Input
	d     lifecycle.Decision
	obs   pod.Observed
	next  int
	turns []turn
}

func newWorld(p *v1.Pod) *world {
	w := &world{obs: pod.Observed{UID: p.UID, Name: p.Name, Namespace: p.Namespace}}
	w.in = lifecycle.Input{Now: epoch, Pod: p, Node: lifecycle.Node{HostIPs: []string{"192.0.2.1", "2001:db8::1"}, RuntimeName: "containerd"}}
	return w
}

// decide makes one decision on the present state, with a snapshot that is new only if it has changed.
func (w *world) decide(results ...pod.Result) {
	w.in.Results = results
	w.in.InFlight = remaining((&turn{in: w.in, d: w.d}).pending(), results)
	w.in.Memory = w.d.Memory
	w.d = lifecycle.Decide(w.in)
	w.turns = append(w.turns, turn{w.in, w.d})
	w.in.Now = w.in.Now.Add(137 * time.Millisecond)
}

// snapshot publishes the runtime's state.
func (w *world) snapshot() {
	o := w.obs
	o.Sandboxes, o.Containers = slices.Clone(o.Sandboxes), slices.Clone(o.Containers)
	w.in.Observed = &o
}

// run lets every action succeed until nothing is left to do.
func (w *world) run(tb testing.TB) {
	tb.Helper()
	w.decide()
	for range 200 {
		pending := (&turn{in: w.in, d: w.d}).pending()
		if len(pending) == 0 {
			return
		}
		w.decide(w.succeed(pending[0]))
	}
	tb.Fatal("it never comes to rest")
}

func (w *world) succeed(a pod.Action) pod.Result {
	r := pod.Result{Action: a, At: w.in.Now.Add(-time.Millisecond)}
	w.next++
	switch a.Kind {
	case pod.PreparePod:
		w.in.Allocation = a.PodResources
	case pod.EnsureImage:
		r.ID, r.Message = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "Container image is present"
	case pod.CreateSandbox:
		r.ID = fmt.Sprintf("sandbox%d", w.next)
		w.obs.Sandboxes = slices.Insert(w.obs.Sandboxes, 0, pod.Sandbox{ID: r.ID, State: pod.SandboxReady, Attempt: uint32(a.Attempt), CreatedAt: w.in.Now, IPs: []string{"10.0.0.1", "fd00::1"}})
	case pod.CreateContainer:
		r.ID = fmt.Sprintf("0123456789abcdef0123456789abcdef0123456789abcdef%d", w.next)
		w.obs.Containers = slices.Insert(w.obs.Containers, 0, pod.Container{ID: r.ID, Name: a.Container, SandboxID: a.SandboxID, Attempt: a.Attempt,
			State: pod.ContainerCreated, CreatedAt: w.in.Now, ImageRef: a.ImageRef, Backoff: a.Backoff, LogPath: "/var/log/pods/default_web_u1/web/0.log", Hash: "1f2e3d4c",
			CreatedWith: &pod.CreatedWith{}, RuntimeReported: &pod.RuntimeReported{User: &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000}}}})
	case pod.StartContainer:
		w.update(a.ID, func(c *pod.Container) { c.State, c.StartedAt = pod.ContainerRunning, w.in.Now })
	case pod.StopContainer:
		w.update(a.ID, func(c *pod.Container) {
			c.State, c.FinishedAt, c.ExitCode, c.Reason = pod.ContainerExited, w.in.Now, 143, "Error"
		})
	case pod.RemoveSandbox:
		w.obs.Sandboxes, w.obs.Containers = nil, nil
	case pod.RemoveContainer:
		w.obs.Containers = slices.DeleteFunc(w.obs.Containers, func(c pod.Container) bool { return c.ID == a.ID })
	}
	w.snapshot()
	return r
}

func (w *world) update(id string, change func(*pod.Container)) {
	for i := range w.obs.Containers {
		if w.obs.Containers[i].ID == id {
			change(&w.obs.Containers[i])
		}
	}
}

// exit ends the running instances of a container.
func (w *world) exit(name string, code int32) {
	for i := range w.obs.Containers {
		if c := &w.obs.Containers[i]; c.Name == name && c.State == pod.ContainerRunning {
			c.State, c.FinishedAt, c.ExitCode, c.Reason = pod.ContainerExited, w.in.Now, code, "Error"
		}
	}
	w.snapshot()
}

// story is a pod that comes up, crashes, is probed, fails to pull, is edited and taken down.
func story(tb testing.TB) *world {
	tb.Helper()
	w := newWorld(examplePod(tb))
	w.run(tb)
	for range 2 {
		w.exit("web", 3)
		w.run(tb)
	}
	for i := range w.d.Probes {
		w.in.Probes = append(w.in.Probes, pod.ProbeResult{Probe: w.d.Probes[i], OK: i%2 == 0, At: w.in.Now, Message: "it says \"no\"\nand (no)"})
		w.decide()
	}
	w.in.Now = w.in.Now.Add(time.Minute)
	w.decide()
	edited := w.in.Pod.DeepCopy()
	edited.Labels["tier"] = "front"
	edited.Generation++
	w.in.Pod = edited
	w.decide()
	w.exit("web", 3)
	w.decide()
	for i := range w.d.Actions {
		if a := w.d.Actions[i]; a.Kind == pod.EnsureImage {
			w.decide(pod.Result{Action: a, At: w.in.Now, Failure: &pod.Failure{Reason: "ErrImagePull", Message: "no route to \"host\"\n", Permanent: true}})
		}
	}
	grace := 5 * time.Second
	w.in.Stop = &lifecycle.Stop{At: w.in.Now, Why: "its manifest is gone", Grace: &grace}
	w.run(tb)
	return w
}

func examplePod(tb testing.TB) *v1.Pod {
	tb.Helper()
	var p v1.Pod
	if err := yaml.UnmarshalStrict([]byte(exampleYAML), &p); err != nil {
		tb.Fatal(err)
	}
	p.CreationTimestamp = metav1.NewTime(epoch)
	return &p
}

const exampleYAML = `
metadata:
  name: web
  namespace: default
  uid: u1
  generation: 1
  labels: {app: web}
  annotations:
    kubernetes.io/config.hash: abc
    kubectl.kubernetes.io/last-applied-configuration: "{all: sesame}"
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 30
  initContainers:
  - {name: side, image: "example.com/side:1", restartPolicy: Always}
  containers:
  - name: web
    image: example.com/web:1
    env:
    - {name: PASSWORD, value: sesame}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    ports: [{containerPort: 8080, protocol: TCP}]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 64Mi}}
    lifecycle:
      preStop: {httpGet: {path: /, port: 8080, httpHeaders: [{name: Authorization, value: sesame}]}}
    readinessProbe: {httpGet: {path: /, port: http, httpHeaders: [{name: Authorization, value: sesame}]}, periodSeconds: 1}
    livenessProbe: {tcpSocket: {port: 8080}}
`
