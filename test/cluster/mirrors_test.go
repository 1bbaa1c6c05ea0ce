package cluster_test

import (
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// TestMirrors: static pods of a node are to be seen at the API server, as they are, and nobody there can end them.
func TestMirrors(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	t.Run("node", func(t *testing.T) {
		r := join(t, p, binary, "")
		r.Start()
		r.created()
		r.is(v1.ConditionTrue)
		t.Run("one", r.mirror)
		t.Run("edited", r.editedManifest)
		t.Run("removed and back", r.manifestBack)
		t.Run("finished", r.finished)
		t.Run("refused", r.refusedManifest)
		t.Run("hundred", r.mirrors)
	})
	t.Run("the API server is away", func(t *testing.T) { staticPodsAlone(t, p, binary) })
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

// static is a manifest of a pod with one container.
func static(name, fields string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s containers: [{name: c, image: %s, args: [serve]}]}}\n", name, fields, node.Image)
}

// renewed waits until a mirror pod runs that isn't the one before.
func (r *rig) renewed(what, name string, before *v1.Pod) *v1.Pod {
	r.t.Helper()
	began := time.Now()
	var now *v1.Pod
	r.Eventually(what, func() error {
		out, err := r.p.Kubectl("", "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
		if err != nil || out == string(before.UID) {
			return fmt.Errorf("UID %s, %v", out, err)
		}
		return nil
	})
	r.t.Logf("%s: there is another one after %s", what, time.Since(began).Round(time.Millisecond))
	r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	if now = r.pod(name); now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID {
		r.t.Errorf("%s: the static pod's container is another one", what)
	}
	return now
}

// begun is when a pod's worker began, by its journal, which it returns, too.
func (r *rig) begun(name string) (at time.Time, journal string) {
	r.t.Helper()
	journal, _ = r.Deckhand("journal", name)
	_, rest, _ := strings.Cut(journal, "\n> at ")
	first, _, _ := strings.Cut(rest, "\n")
	at, err := time.Parse(time.RFC3339Nano, first)
	if err != nil {
		r.t.Fatalf("%v: %s", err, journal)
	}
	return at, journal
}

func (r *rig) mirror(t *testing.T) {
	_, from := r.calls(0)
	name := "one-" + node.Name
	// Its end takes a while, to be looked at.
	r.Write("one.yaml", strings.Replace(static("one", "terminationGracePeriodSeconds: 10,"), "args: [serve]", "args: [serve], lifecycle: {preStop: {sleep: {seconds: 3}}}", 1))
	r.kubectl("wait", "--for=create", "pod/"+name, "--timeout=60s")
	r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	first := r.pod(name)
	view := node.Find(r.Await("the static pod runs", node.Ready("one")), "one").Pod
	began, _ := r.begun("one")
	for _, c := range r.p.Calls()[from:] {
		if c.Verb == "create" && c.Resource == "pods" {
			t.Logf("there is a mirror pod %s after the static pod's worker began", c.Answered.Sub(began).Round(time.Millisecond))
		}
	}
	if s := first.Status; s.Phase != v1.PodRunning || s.PodIP == "" || s.PodIP != view.Status.PodIP || s.ObservedGeneration != 0 || first.Generation != 1 || s.Conditions[0].ObservedGeneration != 0 ||
		s.ContainerStatuses[0].ContainerID != view.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("generation %d, status %+v", first.Generation, s)
	}
	if o := first.OwnerReferences; len(o) != 1 || o[0].UID != r.object().UID || first.Annotations["kubernetes.io/config.mirror"] != string(view.UID) || first.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("owners %+v, annotations %v", o, first.Annotations)
	}
	r.Eventually("describe shows the static pod's events", func() error {
		if out := r.kubectl("describe", "pod", name); !strings.Contains(out, "Container started") {
			return fmt.Errorf("%s", out[max(0, len(out)-500):])
		}
		return nil
	})

	if out := r.kubectl("logs", name); !strings.Contains(out, "listens on") {
		t.Errorf("logs: %q", out)
	}
	for i := range *restarts {
		_, from := r.calls(0)
		before := r.pod(name)
		r.Kill()
		r.Start()
		r.is(v1.ConditionTrue)
		r.Await("the static pod runs", node.Ready("one"))
		again := r.pod(name)
		if again.UID != first.UID || again.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("UID %s after a restart of the agent, was %s", again.UID, first.UID)
		}
		if count, _ := r.calls(from); count["create pods"] > 0 || count["delete pods"] > 0 || count["patch pods/status"] > 0 {
			t.Errorf("calls of restart %d: %v, status\n%+v, was\n%+v", i, count, again.Status, before.Status)
		}
	}

	r.kubectl("delete", "pod", name, "--force", "--grace-period=0")
	second := r.renewed("deleted by force", name, first)
	r.kubectl("delete", "pod", name, "--wait=false")
	third := r.renewed("deleted with a grace", name, second)
	r.kubectl("delete", "node", node.Name)
	r.created()
	fourth := r.renewed("another node object", name, third)
	if o := fourth.OwnerReferences; len(o) != 1 || o[0].UID != r.object().UID {
		t.Errorf("owners %+v", o)
	}

	r.Remove("one.yaml")
	r.Await("it ends", node.Each([]string{"one"}, func(v local.PodView) error {
		if v.Pod.DeletionTimestamp == nil {
			return fmt.Errorf("not yet")
		}
		return nil
	}))
	if last := r.pod(name); last.UID != fourth.UID || last.DeletionTimestamp != nil {
		t.Errorf("while it ends: %s, %s", last.UID, last.Status.Phase)
	}
	r.kubectl("wait", "--for=delete", "pod/"+name, "--timeout=60s")
	if s := r.Sandboxes(); len(s) > 0 {
		t.Errorf("the mirror pod went before %v", s)
	}
}

// staticPodsAlone: static pods come up without an API server, and are to be seen there once it can be reached.
func staticPodsAlone(t *testing.T, p *plane.Plane, binary string) {
	server, err := url.Parse(p.Server())
	if err != nil {
		t.Fatal(err)
	}
	iptables := func(what string) error {
		out, err := exec.Command("iptables", "-w", what, "OUTPUT", "-p", "tcp", "--dport", server.Port(), "-j", "REJECT", "--reject-with", "tcp-reset").CombinedOutput()
		if err != nil {
			return fmt.Errorf("iptables %s: %w: %s", what, err, out)
		}
		return nil
	}
	r := join(t, p, binary, "")
	if err := iptables("-I"); err != nil {
		t.Fatal(err)
	}
	reachable := false
	defer func() { // before the node's object is removed, whatever happens
		if !reachable {
			if err := iptables("-D"); err != nil {
				t.Error(err)
			}
		}
	}()
	r.Write("alone.yaml", static("alone", ""))
	r.Write("gone.yaml", static("gone", ""))
	began := time.Now()
	r.Start()
	before := r.Await("it runs", node.Ready("alone", "gone"))
	t.Logf("a static pod runs %s after the agent was started without an API server", time.Since(began).Round(time.Millisecond))
	started := r.AwaitEvent("alone", "Started").Time
	worker, journal := r.begun("alone")
	t.Logf("its container runs %s after its worker began", started.Sub(worker).Round(time.Millisecond))
	if strings.Contains(journal, " failed ") || strings.Contains(journal, "API server") { // as what waits for objects does
		t.Errorf("it waited: %s", journal)
	}
	// It may be that API server whose manifest has to be corrected.
	r.Write("alone.yaml", static("alone", "restartPolicy: OnFailure,"))
	r.Remove("gone.yaml")
	r.Await("its new version runs, and what has no manifest any more is gone", node.Ready("alone"), func(s local.Snapshot) error {
		if len(s.Pods) != 1 {
			return fmt.Errorf("%d pods", len(s.Pods))
		}
		if now := node.Find(s, "alone").Pod.UID; now == node.Find(before, "alone").Pod.UID {
			return fmt.Errorf("it is still %s", now)
		}
		return nil
	})
	if err := iptables("-D"); err != nil {
		t.Fatal(err)
	}
	reachable = true
	name := "pod/alone-" + node.Name
	r.kubectl("wait", "--for=create", name, "--timeout=90s")
	r.kubectl("wait", "--for=condition=Ready", name, "--timeout=60s")
	r.tells("Pod alone-" + node.Name + " Started")
}

// editedManifest: it is another pod, whose mirror pod comes when the one before has ended.
func (r *rig) editedManifest(t *testing.T) {
	const file, fields = "slow.yaml", "terminationGracePeriodSeconds: 30,"
	name := "slow-" + node.Name
	slow := func(version string) string {
		return strings.NewReplacer("name: slow}", "name: slow, labels: {version: "+version+"}}", "args: [serve]", "args: [serve], lifecycle: {preStop: {sleep: {seconds: 4}}}").Replace(static("slow", fields))
	}
	r.Write(file, slow("one"))
	r.kubectl("wait", "--for=create", "pod/"+name, "--timeout=60s")
	r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	first := r.pod(name)
	r.Write(file, slow("two"))
	r.Await("the first one ends", node.Each([]string{"slow"}, func(v local.PodView) error {
		if v.Pod.DeletionTimestamp == nil {
			return fmt.Errorf("not yet")
		}
		return nil
	}))
	r.Write(file, slow("three")) // while it ends
	began, looks := time.Now(), 0
	var now *v1.Pod
	r.Eventually("the third one has a mirror pod", func() error {
		out, err := r.p.Kubectl("", "get", "pod", name, "-o", "jsonpath={.metadata.uid} {.metadata.labels.version} {.status.phase}")
		switch uid, rest, _ := strings.Cut(out, " "); {
		case err != nil:
			return err
		case uid != string(first.UID) && strings.HasPrefix(rest, "three"):
			return nil
		case uid == string(first.UID) && rest == "one Running":
			looks++
			return fmt.Errorf("still %s", out)
		case uid == string(first.UID) && rest == "one Succeeded": // it has ended, and is about to go
			return fmt.Errorf("still %s", out)
		default:
			t.Errorf("in between: %s", out)
			return fmt.Errorf("%s", out)
		}
	})
	t.Logf("another mirror pod %s after the edit; the old one was seen running %d times", time.Since(began).Round(time.Millisecond), looks)
	if looks == 0 || time.Since(began) < 3*time.Second {
		t.Error("the old mirror pod went before its static pod")
	}
	r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	if now = r.pod(name); now.Generation != 1 || now.Status.ObservedGeneration != 0 || now.Annotations["kubernetes.io/config.mirror"] == first.Annotations["kubernetes.io/config.mirror"] {
		t.Errorf("generation %d, %d, annotations %v", now.Generation, now.Status.ObservedGeneration, now.Annotations)
	}
	r.Remove(file)
	r.kubectl("wait", "--for=delete", "pod/"+name, "--timeout=60s")
}

// manifestBack: one that is removed and written again at once has its pod started again.
func (r *rig) manifestBack(t *testing.T) {
	name, text := "back-"+node.Name, static("back", "terminationGracePeriodSeconds: 0,")
	r.Write("back.yaml", text)
	r.kubectl("wait", "--for=create", "pod/"+name, "--timeout=60s")
	r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	r.Remove("back.yaml")
	r.Write("back.yaml", text)
	r.Eventually("it runs again, with one restart", func() error {
		if out := r.kubectl("get", "pod", name, "--ignore-not-found", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}"); out != "Running 1" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	r.Remove("back.yaml")
	r.kubectl("wait", "--for=delete", "pod/"+name, "--timeout=60s")
}

// finished: a static pod that has run to its end keeps its mirror pod, until it is started again.
func (r *rig) finished(t *testing.T) {
	name, text := "done-"+node.Name, strings.Replace(static("done", "restartPolicy: OnFailure,"), "[serve]", "[env]", 1)
	r.Write("done.yaml", text)
	r.kubectl("wait", "--for=create", "pod/"+name, "--timeout=60s")
	r.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+name, "--timeout=60s")
	first := r.pod(name)
	r.Kill()
	r.Start()
	r.is(v1.ConditionTrue)
	r.Await("the agent knows it", node.Each([]string{"done"}, func(v local.PodView) error {
		if v.Pod.Status.Phase != v1.PodSucceeded {
			return fmt.Errorf("%s", v.Pod.Status.Phase)
		}
		return nil
	}))
	if again := r.pod(name); again.UID != first.UID || again.Status.Phase != v1.PodSucceeded {
		t.Errorf("UID %s, was %s; %s", again.UID, first.UID, again.Status.Phase)
	}
	r.Remove("done.yaml")
	r.Write("done.yaml", text)
	r.Eventually("it has run again", func() error {
		out := r.kubectl("get", "pod", name, "--ignore-not-found", "-o", "jsonpath={.status.phase} {.status.containerStatuses[0].containerID}")
		if want := "Succeeded "; !strings.HasPrefix(out, want) || out == want+first.Status.ContainerStatuses[0].ContainerID {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	r.Remove("done.yaml")
	r.kubectl("wait", "--for=delete", "pod/"+name, "--timeout=60s")
}

// refusedManifest: a static pod can't refer to what an API server has. One that runs from before goes on, until its manifest is removed.
func (r *rig) refusedManifest(t *testing.T) {
	const why = "spec.volumes[0].configMap: Forbidden: static pods of a cluster can't refer to a ConfigMap"
	name, refers := "refers-"+node.Name, static("refers", "volumes: [{name: v, configMap: {name: c}}],")
	isTold := func() {
		t.Helper()
		r.Eventually("the API server is told", func() error {
			for _, e := range r.told() {
				if e.Reason == "InvalidManifest" && strings.Contains(e.Message, why) {
					return nil
				}
			}
			return fmt.Errorf("%v", r.told())
		})
	}
	r.Write("refers.yaml", refers)
	isTold()
	if out := r.kubectl("get", "pods"); strings.Contains(out, "refers") {
		t.Errorf("pods %s", out)
	}
	r.Write("refers.yaml", static("refers", ""))
	r.kubectl("wait", "--for=create", "pod/"+name, "--timeout=60s")
	r.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	first := r.pod(name)
	r.Write("refers.yaml", refers)
	r.Await("it runs on, and why is said", node.Ready("refers"), node.Problem(why))
	r.Kill()
	r.Start()
	r.Await("it still does after a restart", node.Ready("refers"), node.Problem(why))
	if again := r.pod(name); again.UID != first.UID || again.Status.ContainerStatuses[0].ContainerID != first.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("it is %s, %+v; was %s, %+v", again.UID, again.Status.ContainerStatuses, first.UID, first.Status.ContainerStatuses)
	}
	r.Remove("refers.yaml")
	r.kubectl("wait", "--for=delete", "pod/"+name, "--timeout=60s")
	r.Write("refers.yaml", refers)
	r.Await("it doesn't return", node.Problem(why), func(s local.Snapshot) error {
		if v := node.Find(s, "refers"); v != nil {
			return fmt.Errorf("%s", v.Pod.Status.Phase)
		}
		return nil
	})
	r.Remove("refers.yaml")
}

// mirrors counts the calls that a hundred static pods make.
func (r *rig) mirrors(t *testing.T) {
	const many = 100
	_, from := r.calls(0)
	var text strings.Builder
	var names []string
	for i := range many {
		names = append(names, fmt.Sprint("many", i))
		fmt.Fprintf(&text, "---\n%s", static(names[i], "terminationGracePeriodSeconds: 0, hostNetwork: true,"))
	}
	began := time.Now()
	r.Write("many.yaml", strings.ReplaceAll(text.String(), "[serve]", "[serve, -listen, ':0']"))
	r.Await("they run", node.Ready(names...))
	took := time.Since(began)
	r.Eventually("they run at the API server", func() error {
		out := r.kubectl("get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if n := strings.Count(out, " True\n"); n != many {
			return fmt.Errorf("%d of %d", n, many)
		}
		return nil
	})
	count, _ := r.calls(from)
	t.Logf("%d static pods run after %s and are told after %s: %d creates, %d patches, %d events", many, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond),
		count["create pods"], count["patch pods/status"], count["create events"]+count["patch events"])
	if count["create pods"] != many || count["patch pods/status"] > 2*many || count["delete pods"] > 0 || count["get pods"] > 0 {
		t.Errorf("calls: %v", count)
	}
	r.Remove("many.yaml")
	r.kubectl("wait", "--for=delete", "pod", "--all", "--timeout=120s")
}
