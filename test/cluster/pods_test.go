package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/devices/devicestest"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

var (
	kills    = flag.Int("kills", 10, "how often the agent is killed under churn")
	restarts = flag.Int("restarts", 3, "how often it is killed with a static pod")
	come     = flag.Int("pods", 40, "how many pods come and go")
)

// TestPods: pods of the API server run, their status goes back, and they are deleted as they should be.
func TestPods(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	for name, test := range map[string]func(*rig, *testing.T){
		"one pod": (*rig).onePod, "deletions": (*rig).deletions, "what others say": (*rig).others, "workloads": (*rig).workloads,
		"a name that is taken": (*rig).contest, "away": (*rig).away, "killed under churn": (*rig).killedUnderChurn, "come and go": (*rig).comeAndGo,
		"admission": (*rig).admission, "volumes of a CSI driver": (*rig).csi,
	} {
		t.Run(name, func(t *testing.T) {
			r := join(t, p, binary, "")
			r.Start()
			r.created()
			r.is(v1.ConditionTrue)
			test(r, t)
			r.kubectl("delete", "deployment,daemonset,statefulset,job,cronjob,pod", "--all", "--timeout=60s")
		})
	}
	t.Run("110 pods after a partition", func(t *testing.T) { partition(t, p, binary) })
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

// apply has the API server have what a manifest says.
func (r *rig) apply(manifest string) {
	r.t.Helper()
	if out, err := r.p.Kubectl(manifest, "apply", "-f", "-"); err != nil {
		r.t.Fatalf("kubectl apply: %v\n%s\n%s", err, out, manifest)
	}
}

// spec is that of a pod with one container, whose arguments these are, and perhaps other fields of it; fields are of the
// pod's spec. The container mounts all volumes of the pod, at /volumes/NAME unless args says where.
func spec(args string, fields ...string) string {
	const list = "volumeMounts: ["
	var p v1.PodSpec
	if err := yaml.Unmarshal([]byte("{"+strings.Join(fields, "")+"}"), &p); err != nil {
		panic(err)
	}
	mounts := ""
	for i := range p.Volumes {
		if name := p.Volumes[i].Name; !strings.Contains(args, "{name: "+name+", mountPath: ") {
			mounts += fmt.Sprintf("{name: %[1]s, mountPath: /volumes/%[1]s}, ", name)
		}
	}
	if own, others, ok := strings.Cut(args, list); ok {
		args = own + list + mounts + others
	} else if mounts != "" {
		args += ", " + list + mounts + "]"
	}
	return fmt.Sprintf("{terminationGracePeriodSeconds: 2, %s containers: [{name: c, image: %s, args: %s}]}", strings.Join(fields, ""), node.Image, args)
}

// manifest is that of an object, whose metadata and spec these are.
func manifest(version, kind, metadata, spec string) string {
	return fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {%s}, spec: %s}\n---\n", version, kind, metadata, spec)
}

func podNamed(name, spec string) string { return manifest("v1", "Pod", "name: "+name, spec) }

// workload is a manifest of what makes pods with these labels by a template.
func workload(kind, name, fields, spec string) string {
	return manifest("apps/v1", kind, "name: "+name, fmt.Sprintf("{selector: {matchLabels: {app: %[1]s}}, %[2]s template: {metadata: {labels: {app: %[1]s}}, spec: %[3]s}}", name, fields, spec))
}

// pod is a pod as the API server has it.
func (r *rig) pod(name string) *v1.Pod {
	r.t.Helper()
	var p v1.Pod
	if err := json.Unmarshal([]byte(r.kubectl("get", "pod", name, "-o", "json")), &p); err != nil {
		r.t.Fatal(err)
	}
	return &p
}

func (r *rig) podReady(names ...string) {
	r.t.Helper()
	for _, name := range names {
		r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	}
}

// left waits until that many pods with a label are there.
func (r *rig) left(selector string, want int) {
	r.t.Helper()
	r.Eventually(fmt.Sprintf("%d pods of %s", want, selector), func() error {
		if names := strings.Fields(r.kubectl("get", "pods", "-l", selector, "-o", "name")); len(names) != want {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
}

func (r *rig) onePod(t *testing.T) {
	_, from := r.calls(0)
	r.apply(podNamed("one", spec("[serve]")))
	r.podReady("one")
	p := r.pod("one")
	if p.Status.Phase != v1.PodRunning || p.Status.PodIP == "" || p.Status.HostIP == "" || p.Status.ObservedGeneration != p.Generation || p.Status.QOSClass != v1.PodQOSBestEffort {
		t.Errorf("status %+v", p.Status)
	}
	count, from := r.calls(from)
	if n := count["patch pods/status"]; n < 1 || n > 2 || count["get pods"] > 0 || count["update pods/status"] > 0 {
		t.Errorf("calls until it ran: %v", count)
	}
	r.kubectl("delete", "pod", "one", "--grace-period=1", "--timeout=60s")
	count, _ = r.calls(from)
	if n := count["patch pods/status"]; n < 1 || n > 2 || count["delete pods"] != 1 || count["get pods"] > 0 {
		t.Errorf("calls until it was gone: %v", count)
	}
}

// deletions: by force, of one that can't start, of one that was to end later, and with a finalizer.
func (r *rig) deletions(t *testing.T) {
	stubborn := spec("[sleep, 1h]", "terminationGracePeriodSeconds: 600,")
	stubborn = strings.Replace(stubborn, "args: [sleep, 1h]", "args: [sleep, 1h], lifecycle: {preStop: {sleep: {seconds: 500}}}", 1)
	r.apply(podNamed("force", stubborn) + podNamed("shorter", stubborn) + podNamed("pending", strings.Replace(spec("[serve]"), node.Image, "127.0.0.1:1/none:1", 1)) +
		manifest("v1", "Pod", "name: finalized, finalizers: [example.com/hold]", spec("[serve]")))
	r.podReady("force", "shorter", "finalized")
	r.kubectl("delete", "pod", "force", "--force", "--grace-period=0")
	r.Eventually("nothing of what was removed by force is left here", func() error { return r.gone("force") })

	seen := r.record()
	r.kubectl("delete", "pod", "pending", "--timeout=60s")
	if last := seen.last("pending"); last.Status.Phase != v1.PodFailed || len(last.Status.ContainerStatuses) != 1 || last.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("a pod that was deleted before it ran: %+v", last.Status)
	}
	r.kubectl("delete", "pod", "shorter", "--wait=false")
	r.kubectl("delete", "pod", "shorter", "--grace-period=1", "--timeout=60s")

	_, from := r.calls(0)
	r.kubectl("delete", "pod", "finalized", "--wait=false")
	r.Eventually("its end is told", func() error {
		if p := r.pod("finalized"); p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			return fmt.Errorf("%s", p.Status.Phase)
		}
		return nil
	})
	r.Eventually("its object is asked for to go", func() error {
		if count, _ := r.calls(from); count["delete pods"] != 1 {
			return fmt.Errorf("%v", count)
		}
		return nil
	})
	r.Kill()
	r.Start()
	r.kubectl("label", "pod", "finalized", "a=b")
	r.podCalls("the next agent asks once, too", from, "delete pods", 2)
	r.kubectl("patch", "pod", "finalized", "-p", `{"metadata": {"finalizers": null}}`)
	r.kubectl("wait", "--for=delete", "pod/finalized", "--timeout=60s")
	r.Eventually("nothing is left", func() error { return r.gone("finalized") })
}

// podCalls waits until calls of that kind were made so often.
func (r *rig) podCalls(what string, from int, kind string, want int) {
	r.t.Helper()
	r.Eventually(what, func() error {
		if count, _ := r.calls(from); count[kind] != want {
			return fmt.Errorf("%v", count)
		}
		return nil
	})
}

// gone reports whether the agent has nothing of a pod.
func (r *rig) gone(name string) error {
	for _, v := range r.snapshot().Pods {
		if v.Pod.Name == name {
			return fmt.Errorf("%s", v.Pod.Status.Phase)
		}
	}
	return nil
}

func (r *rig) snapshot() local.Snapshot {
	r.t.Helper()
	return r.Await("a snapshot", func(local.Snapshot) error { return nil })
}

// others: what others write into a status counts, and what they write of this node's is put right.
func (r *rig) others(t *testing.T) {
	r.apply(podNamed("gated", spec("[serve]", "readinessGates: [{conditionType: example.com/gate}],")) + podNamed("mine", spec("[serve]")) + podNamed("failed", spec("[serve]", "restartPolicy: Always,")))
	r.podReady("mine", "failed")
	r.kubectl("wait", "--for=condition=ContainersReady", "pod/gated", "--timeout=60s")
	if c := condition(r.pod("gated"), v1.PodReady); c.Status != v1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("before its gate: %+v", c)
	}
	patch := func(name, status string) {
		r.kubectl("patch", "pod", name, "--subresource=status", "-p", `{"status": `+status+`}`)
	}
	patch("gated", `{"conditions": [{"type": "example.com/gate", "status": "True"}]}`)
	r.podReady("gated")
	if c := condition(r.pod("gated"), "example.com/gate"); c.Status != v1.ConditionTrue {
		t.Errorf("its gate afterwards: %+v", c)
	}
	_, from := r.calls(0)
	patch("mine", `{"message": "somebody else's", "conditions": [{"type": "Ready", "status": "False"}]}`)
	r.podReady("mine")
	r.Eventually("the status is ours again", func() error {
		if s := r.pod("mine").Status; s.Message != "" {
			return fmt.Errorf("%s", s.Message)
		}
		return nil
	})
	if count, _ := r.calls(from); count["patch pods/status"] > 2 {
		t.Errorf("calls %v", count)
	}
	patch("failed", `{"phase": "Failed", "reason": "Theirs"}`)
	r.Eventually("a pod that somebody failed is stopped", func() error {
		s := r.pod("failed").Status
		if len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Terminated == nil || s.Phase != v1.PodFailed || s.Reason != "Theirs" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func condition(p *v1.Pod, t v1.PodConditionType) v1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return v1.PodCondition{}
}

// workloads: what controllers make of pods.
func (r *rig) workloads(t *testing.T) {
	sidecar := fmt.Sprintf("initContainers: [{name: proxy, image: %s, args: [serve], restartPolicy: Always, startupProbe: {httpGet: {port: 8080}, periodSeconds: 1}}],", node.Image)
	r.apply(workload("Deployment", "web", "replicas: 5,", spec("[serve]")) +
		workload("DaemonSet", "each", "", spec("[serve]")) +
		workload("StatefulSet", "db", "replicas: 2, serviceName: db,", spec("[serve]")) +
		manifest("batch/v1", "Job", "name: job", "{completions: 2, template: {spec: "+spec("[exit, '0']", "restartPolicy: Never,", sidecar)+"}}") +
		manifest("batch/v1", "CronJob", "name: cron", "{schedule: '* * * * *', jobTemplate: {spec: {template: {spec: "+spec("[exit, '0']", "restartPolicy: Never,")+"}}}}"))
	for _, w := range []string{"deployment/web", "daemonset/each", "statefulset/db"} {
		r.kubectl("rollout", "status", w, "--timeout=120s")
	}
	r.kubectl("wait", "--for=condition=Complete", "job/job", "--timeout=60s")
	r.kubectl("set", "env", "deployment/web", "VERSION=2")
	r.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
	r.kubectl("scale", "deployment/web", "--replicas=1")
	r.left("app=web", 1)
	first := r.pod("db-1")
	r.kubectl("delete", "pod", "db-1", "--timeout=60s")
	r.kubectl("wait", "--for=create", "pod/db-1", "--timeout=60s")
	r.podReady("db-1")
	if again := r.pod("db-1"); again.UID == first.UID {
		t.Error("a StatefulSet's pod isn't another one")
	}
	r.kubectl("create", "job", "now", "--from=cronjob/cron")
	r.kubectl("wait", "--for=condition=Complete", "job/now", "--timeout=60s")

	r.kubectl("cordon", node.Name)
	r.kubectl("drain", node.Name, "--ignore-daemonsets", "--force", "--timeout=60s")
	r.left("app=each", 1)
	r.Eventually("evicted pods are gone from here", func() error {
		for _, v := range r.snapshot().Pods {
			if !strings.HasPrefix(v.Pod.Name, "each-") && !podstatus.Over(v.Pod) {
				return fmt.Errorf("%s: %s", v.Pod.Name, v.Pod.Status.Phase)
			}
		}
		return nil
	})
	r.kubectl("uncordon", node.Name)
	r.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
}

// contest: a manifest has a name that a pod of the API server had before.
func (r *rig) contest(t *testing.T) {
	r.apply(podNamed("taken-"+node.Name, spec("[serve]", "nodeName: "+node.Name+",")))
	r.podReady("taken-" + node.Name)
	r.Write("taken.yaml", fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: taken}, spec: {containers: [{name: web, image: %s}]}}", node.Image))
	r.Eventually("the other one has failed", func() error {
		if s := r.pod("taken-" + node.Name).Status; s.Phase != v1.PodFailed || s.Reason != "PodConflict" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	r.kubectl("delete", "pod", "taken-"+node.Name, "--timeout=60s")
	r.Await("the static pod runs", node.Ready("taken"))
	r.kubectl("wait", "--for=create", "pod/taken-"+node.Name, "--timeout=60s") // its mirror
	r.podReady("taken-" + node.Name)
	r.Remove("taken.yaml")
	r.Await("it is gone", node.Only())
}

// admission: pods that are bound past the scheduler are judged by the node as it is in the API at that moment, and what was admitted
// stays when its agent starts again.
func (r *rig) admission(t *testing.T) {
	bound := func(name string, fields ...string) string {
		return podNamed(name, spec("[serve]", append(fields, "nodeName: "+node.Name+",")...))
	}
	rejected := func(name, reason, message string) {
		t.Helper()
		r.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/"+name, "--timeout=60s")
		if s := r.pod(name).Status; s.Reason != reason || !strings.HasPrefix(s.Message, "Pod was rejected: "+message) || len(s.ContainerStatuses) > 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	third := r.object().Status.Allocatable.Cpu().MilliValue() / 3
	some := func(name string, fields ...string) string {
		return strings.Replace(bound(name, fields...), "args: [serve]", fmt.Sprintf("args: [serve], resources: {requests: {cpu: %dm}}", third), 1)
	}
	r.apply(some("a") + some("b") + some("c", "priority: 0,"))
	r.podReady("a", "b", "c")
	r.apply(some("over"))
	rejected("over", "OutOfcpu", "Node didn't have enough resource: cpu, requested: ")

	r.apply(bound("choosy", "nodeSelector: {disk: ssd},"))
	rejected("choosy", "NodeAffinity", "Predicate NodeAffinity failed")
	r.kubectl("label", "node", node.Name, "disk=ssd")
	labelled := time.Now()
	r.Eventually("the agent knows of a label", func() error {
		if out, code := r.Deckhand("node", "-o", "jsonpath={.labels.disk}"); code != 0 || strings.TrimSpace(out) != "ssd" {
			return fmt.Errorf("%d, %s", code, out)
		}
		return nil
	})
	took := time.Since(labelled)
	t.Logf("%v from a label to admission by it; with nothing else to do it is to be less than 1 s", took)
	if took > 5*time.Second {
		t.Errorf("the agent knew of the label after %v", took)
	}
	r.Eventually("a label opens the node", func() error {
		r.kubectl("delete", "pod", "next", "--ignore-not-found", "--timeout=60s")
		r.apply(bound("next", "nodeSelector: {disk: ssd},"))
		r.kubectl("wait", "--for=jsonpath={.status.observedGeneration}", "pod/next", "--timeout=60s")
		if s := r.pod("next").Status; s.Phase == v1.PodFailed {
			return fmt.Errorf("%s", s.Reason)
		}
		return nil
	})
	r.podReady("next")

	r.apply(some("vital", "priorityClassName: system-node-critical,"))
	r.podReady("vital")
	var stay []*v1.Pod
	for _, name := range []string{"a", "b", "c"} {
		switch p := r.pod(name); {
		case p.Status.Phase == v1.PodRunning:
			stay = append(stay, p)
		case p.Status.Reason != "Preempting" || condition(p, v1.DisruptionTarget).Status != v1.ConditionTrue:
			t.Errorf("%s: %+v", name, p.Status)
		}
	}
	if len(stay) != 2 {
		t.Fatalf("%d pods stay beside the critical one, want 2", len(stay))
	}
	untaint := r.tainted(t, bound)
	r.Kill()
	r.Start()
	r.Eventually("the next agent has the same pods running", func() error {
		var names []string
		for _, v := range r.snapshot().Pods {
			if v.Pod.Status.Phase == v1.PodRunning {
				names = append(names, v.Pod.Name)
			}
		}
		if want := []string{stay[0].Name, stay[1].Name, "next", "static-" + node.Name, "tolerant", "vital"}; !slices.Equal(slices.Sorted(slices.Values(names)), want) {
			return fmt.Errorf("%v, want %v", names, want)
		}
		return nil
	})
	for _, was := range stay {
		if is := r.pod(was.Name); is.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID {
			t.Errorf("%s: %+v", was.Name, is.Status)
		}
	}
	untaint()
	r.devices(t, bound)
}

// tainted: a taint with the effect NoExecute keeps new pods away that don't tolerate it, but static ones; those that run are the business of the cluster's
// controllers, which stand still until untaint is called.
func (r *rig) tainted(t *testing.T, bound func(string, ...string) string) (untaint func()) {
	goOn := r.p.PauseControllers()
	r.kubectl("taint", "node", r.name, "broken=yes:NoExecute")
	r.Eventually("the agent knows of the taint", func() error {
		if out, code := r.Deckhand("node", "-o", "jsonpath={.taints[*].key}"); code != 0 || !strings.Contains(out, "broken") {
			return fmt.Errorf("%d, %s", code, out)
		}
		return nil
	})
	r.apply(bound("intolerant") + bound("tolerant", "tolerations: [{key: broken, operator: Exists}],"))
	r.Write("static.yaml", fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: static}, spec: {containers: [{name: web, image: %s}]}}", node.Image))
	r.Await("a static pod runs", node.Ready("static"))
	r.podReady("tolerant")
	r.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/intolerant", "--timeout=60s")
	if s := r.pod("intolerant").Status; s.Reason != "TaintToleration" || !strings.HasPrefix(s.Message, "Pod was rejected: Predicate TaintToleration failed") || len(s.ContainerStatuses) > 0 {
		t.Errorf("the one that doesn't tolerate it: %+v", s)
	}
	return func() {
		t.Helper()
		r.kubectl("taint", "node", r.name, "broken-")
		goOn()
		r.Remove("static.yaml")
	}
}

// deviceCount is told the node, and tells how many devices it has for pods.
type deviceCount struct{ told chan int64 }

func (c deviceCount) Listed(all apiclient.List) {
	for _, o := range all.Objects {
		c.Changed(watch.Modified, o)
	}
}

func (deviceCount) Away(error) {}

func (deviceCount) Malformed(apiclient.Malformed) {}

func (c deviceCount) Changed(_ watch.EventType, o kruntime.Object) {
	if n, ok := o.(*v1.Node); ok && n.Name == node.Name {
		devices := n.Status.Allocatable["example.com/gpu"]
		c.told <- devices.Value()
	}
}

// devices: the node's status has a plugin's devices at once. Pods that ask for some while the plugin is away, after a start of the agent, wait for it; those
// that have some run on.
func (r *rig) devices(t *testing.T, bound func(string, ...string) string) {
	count := deviceCount{make(chan int64, 100)}
	follow(t, admin(t, r.p), apiclient.Nodes, count)
	<-count.told // it is listed
	p := devicestest.New(t, filepath.Join(r.RootDir, "device-plugins"), "example.com/gpu", "one", "two")
	p.Answer = func(ids []string) *deviceplugin.ContainerAllocateResponse {
		return &deviceplugin.ContainerAllocateResponse{Envs: map[string]string{"GPU": ids[0]}}
	}
	began := time.Now()
	if err := p.Register(); err != nil {
		t.Fatal(err)
	}
	for devices := range count.told {
		if devices == 2 {
			break
		}
	}
	took := time.Since(began)
	t.Logf("%v from a plugin's registration to the node's status; on a machine with nothing else to do it is to be less than 200 ms", took)
	if took > 2*time.Second { // on a busy machine; the status is told every 10 s anyway
		t.Errorf("the node's status had the plugin's devices after %v", took)
	}
	asks := func(name string) string {
		return strings.Replace(bound(name), "args: [serve]", "args: [serve], resources: {limits: {example.com/gpu: 1}}", 1)
	}
	r.apply(asks("has"))
	r.podReady("has")
	was := r.pod("has").Status.ContainerStatuses[0]
	p.Die()
	r.Kill()
	r.Start()
	r.apply(asks("waits"))
	r.Eventually("the pod waits for the plugin", func() error {
		for _, v := range r.snapshot().Pods {
			if v.Pod.Name == "waits" && slices.ContainsFunc(v.Waits, func(w local.Wait) bool { return w.For == pod.WaitForPlugin }) {
				return nil
			}
		}
		return errors.New("it doesn't")
	})
	if is := r.pod("has").Status.ContainerStatuses[0]; is.ContainerID != was.ContainerID || is.State.Running == nil {
		t.Errorf("the one with a device was %+v and is %+v", was, is)
	}
	p.Serve()
	if err := p.Register(); err != nil {
		t.Fatal(err)
	}
	r.podReady("waits")
	if told := fmt.Sprint(p.Told()); told != "[[one] [two]]" {
		t.Errorf("the plugin was told %s", told)
	}
}

// away: what happens while no agent runs is made up for.
func (r *rig) away(t *testing.T) {
	r.apply(podNamed("stays", spec("[serve]")) + podNamed("deleted", spec("[serve]")) + podNamed("forced", spec("[serve]")))
	r.podReady("stays", "deleted", "forced")
	before := r.pod("stays")
	r.Kill()
	r.kubectl("delete", "pod", "deleted", "--wait=false")
	r.kubectl("delete", "pod", "forced", "--force", "--grace-period=0")
	r.apply(podNamed("new", spec("[serve]", "nodeName: "+node.Name+",")))
	r.Start()
	r.podReady("new")
	r.kubectl("wait", "--for=delete", "pod/deleted", "--timeout=60s")
	r.Await("what was removed is gone", node.Only("new", "stays"))
	if after := r.pod("stays"); after.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID || after.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("it runs as %+v, before as %+v", after.Status.ContainerStatuses[0], before.Status.ContainerStatuses[0])
	}
}

// recorder is told what the API server has of pods and nodes, and keeps what was wrong.
type recorder struct {
	mu    sync.Mutex
	pods  map[types.UID]*v1.Pod
	names map[string]*v1.Pod
	nodes map[string]*v1.Node
	// removed are the objects that went.
	removed map[types.UID]bool
	faults  []string
}

func (c *recorder) Listed(all apiclient.List) {
	for _, o := range all.Objects {
		c.Changed(watch.Modified, o)
	}
}

func (c *recorder) Away(error) {}

func (c *recorder) Malformed(m apiclient.Malformed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf("%s %s can't be decoded", m.Namespace, m.Name))
}

func (c *recorder) Changed(kind watch.EventType, o kruntime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := o.(type) {
	case *v1.Node:
		if was := c.nodes[o.Name]; was != nil && ready(was).Status == v1.ConditionTrue && ready(o).Status != v1.ConditionTrue && kind != watch.Deleted {
			c.faults = append(c.faults, fmt.Sprintf("node %s became %+v", o.Name, ready(o)))
		}
		c.nodes[o.Name] = o
	case *v1.Pod:
		was := c.pods[o.UID]
		c.pods[o.UID], c.names[o.Name] = o, o
		c.removed[o.UID] = kind == watch.Deleted
		if was == nil || o.DeletionTimestamp != nil {
			return
		}
		if podstatus.Ready(was) && !podstatus.Ready(o) {
			c.faults = append(c.faults, fmt.Sprintf("pod %s became not ready: %+v", o.Name, o.Status.Conditions))
		}
		for _, s := range o.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				c.faults = append(c.faults, fmt.Sprintf("a container of pod %s was restarted: %+v", o.Name, s))
			}
		}
	}
}

// last is the newest state of a pod of this name.
func (c *recorder) last(name string) *v1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names[name]
}

// denied is how often a pod was ready, and wasn't any more.
func (c *recorder) denied(name string) (times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		if strings.HasPrefix(f, "pod "+name+" became not ready: ") {
			times++
		}
	}
	return times
}

// gone reports whether a pod's object has gone.
func (c *recorder) gone(p *v1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed[p.UID]
}

// record records until the end of the test.
func (r *rig) record() *recorder {
	c := &recorder{pods: map[types.UID]*v1.Pod{}, names: map[string]*v1.Pod{}, nodes: map[string]*v1.Node{}, removed: map[types.UID]bool{}}
	admin := admin(r.t, r.p)
	for _, resource := range []apiclient.Resource{apiclient.Pods, apiclient.Nodes} {
		follow(r.t, admin, resource, c)
	}
	return c
}

// follow has a watch tell until the end of the test.
func follow(t *testing.T, c *apiclient.Client, resource apiclient.Resource, to apiclient.Sight) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { c.Watch(ctx, resource, "", apiclient.Selectors{}, to) })
	t.Cleanup(func() { cancel(); watching.Wait() })
}

// killedUnderChurn: an agent that is killed at any moment restarts no container, and no pod or node seems not ready for that.
func (r *rig) killedUnderChurn(t *testing.T) {
	probed := strings.Replace(spec("[serve]"), "args: [serve]", "args: [serve], readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}, livenessProbe: {httpGet: {port: 8080}, periodSeconds: 1}", 1)
	r.apply(workload("Deployment", "stays", "replicas: 3,", probed) + workload("Deployment", "churn", "replicas: 3,", spec("[serve]")))
	r.kubectl("rollout", "status", "deployment/stays", "--timeout=60s")
	seen := r.record()
	for i := range *kills {
		r.kubectl("scale", "deployment/churn", fmt.Sprint("--replicas=", 1+i%5))
		time.Sleep(time.Duration(i*37%400) * time.Millisecond) // at any moment
		r.Kill()
		r.Start()
		r.kubectl("rollout", "status", "deployment/churn", "--timeout=60s")
	}
	r.kubectl("rollout", "status", "deployment/stays", "--timeout=60s")
	r.left("app=churn", 1+(*kills-1)%5)
	calls := r.p.Calls()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, c := range calls {
		if last := seen.names[c.Name]; c.Verb == "delete" && c.Resource == "pods" && c.Code < 300 && last != nil && seen.removed[last.UID] && pod.Terminal(last.Status.Phase) == "" {
			seen.faults = append(seen.faults, fmt.Sprintf("pod %s was removed in phase %s", c.Name, last.Status.Phase))
		}
	}
	if len(seen.faults) > 0 {
		slices.Sort(seen.faults)
		t.Errorf("%d faults in %d lives:\n%s", len(seen.faults), *kills, strings.Join(slices.Compact(seen.faults), "\n"))
	}
}

// comeAndGo: nothing is left of pods that came and went, on disk, in the runtime, in the agent or at the API server.
func (r *rig) comeAndGo(t *testing.T) {
	type size struct {
		files int
		rss   int64
	}
	measure := func() size {
		t.Helper()
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.PID()))
		if err != nil {
			t.Fatal(err)
		}
		memory, err := report.MemoryOf(r.PID())
		if err != nil {
			t.Fatal(err)
		}
		return size{len(files), memory.RSS}
	}
	const lot = 20
	var before size
	for done := 0; done < *come; done += lot {
		var manifests strings.Builder
		for i := range lot {
			args := "[serve]"
			if i%4 == 0 {
				args = "[exit, '0']"
			}
			manifests.WriteString(podNamed(fmt.Sprint("p", done+i), spec(args, "restartPolicy: OnFailure, volumes: [{name: d, emptyDir: {}}],")))
		}
		r.apply(manifests.String())
		r.Eventually("all have run", func() error {
			for _, phase := range strings.Fields(r.kubectl("get", "pods", "-o", "jsonpath={.items[*].status.phase}")) {
				if phase == string(v1.PodPending) {
					return fmt.Errorf("one is %s", phase)
				}
			}
			return nil
		})
		r.kubectl("delete", "pod", "--all", "--grace-period=1", "--timeout=60s")
		if done == 0 {
			r.Eventually("nothing is left of the first", r.PodLeftovers)
			before = measure()
		}
	}
	r.Eventually("nothing is left", r.PodLeftovers)
	if s := r.snapshot(); len(s.Pods) > 0 {
		t.Errorf("pods %v", s.Pods)
	}
	after := measure()
	t.Logf("after %d pods: open files %d (at first %d), RSS %d KiB (at first %d)", *come, after.files, before.files, after.rss>>10, before.rss>>10)
	if after.files > before.files+5 || after.rss > before.rss+32<<20 {
		t.Errorf("the agent grew from %+v to %+v", before, after)
	}
}
