package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// held is for how long pods run on there of which the API server has lost all.
const held = 20 * time.Second

// TestRestoredStore: etcd goes back to a backup while the agent runs, and with it all resource versions (kubernetes/kubernetes#131115). What the restored
// state has runs on, or again; what it doesn't have ends as it should; and what is changed from then on reaches the node. Then all that it has is lost.
func TestRestoredStore(t *testing.T) {
	binary := builtOnce(t)
	p := plane.StartPatient(t, program, time.Minute)
	t.Run("node", func(t *testing.T) {
		way, kubeconfig := newPassage(t, p)
		// The agent isn't to find by its heartbeats that nobody answers.
		r := join(t, p, binary, "nodeLeaseDurationSeconds: 80\n", "--kubeconfig", kubeconfig, "--hold-pods-for", held.String())
		r.Start()
		r.created()
		r.is(v1.ConditionTrue)
		t.Run("restored", func(t *testing.T) { r.with(t).restored(t) })
		r.kubectl("delete", "pod", "--all", "--timeout=60s")
		t.Run("lost", func(t *testing.T) { r.with(t).lost(t, way) })
		r.kubectl("delete", "pod", "--all", "--timeout=60s")
	})
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

func (r *rig) restored(t *testing.T) {
	dir := t.TempDir()
	// late says goodbye on the host when it is ended gracefully.
	late := spec("[serve], volumeMounts: [{name: h, mountPath: /h}], lifecycle: {preStop: {exec: {command: [/web, write, /h/bye, bye]}}}",
		"volumes: [{name: h, hostPath: {path: "+dir+"}}],")
	r.apply(configMap("conf", "1") + podNamed("keeps", spec("[serve]", "volumes: [{name: conf, configMap: {name: conf}}],")) + podNamed("edited", spec("[serve]")) + podNamed("back", spec("[serve]")))
	r.podReady("keeps", "edited", "back")
	restore := r.p.Backup()
	backup := r.pod("keeps")

	r.apply(podNamed("late", late))
	r.podReady("late")
	r.kubectl("patch", "pod", "edited", "-p", `{"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}`)
	r.Eventually("the edit is seen", func() error {
		if p := r.pod("edited"); p.Status.ObservedGeneration != p.Generation || p.Generation < 2 {
			return fmt.Errorf("generation %d, observed %d", p.Generation, p.Status.ObservedGeneration)
		}
		return nil
	})
	r.kubectl("delete", "pod", "back", "--timeout=60s")
	r.Eventually("nothing is left of it", func() error { return r.gone("back") })
	for i := range 20 { // versions get ahead
		r.kubectl("patch", "configmap", "conf", "-p", fmt.Sprintf(`{"data": {"k": "later %d"}}`, i))
	}
	conf := r.inVolume("keeps", "configmap", "conf", "k")
	r.comes(conf, "later 19")
	running := r.Instances()

	restore()
	if was := r.pod("keeps"); was.ResourceVersion != backup.ResourceVersion {
		t.Logf("keeps has version %s, and had %s", was.ResourceVersion, backup.ResourceVersion)
	}
	r.comes(conf, "1")
	r.Eventually("what the API server doesn't have any more is gone", func() error { return r.gone("late") })
	if text, err := os.ReadFile(filepath.Join(dir, "bye")); err != nil || string(text) != "bye\n" {
		t.Errorf("it wasn't ended gracefully: %q, %v", text, err)
	}
	r.podReady("keeps", "edited", "back")
	r.Eventually("an older generation is observed", func() error {
		if p := r.pod("edited"); p.Status.ObservedGeneration != p.Generation || p.Generation != 1 {
			return fmt.Errorf("generation %d, observed %d", p.Generation, p.Status.ObservedGeneration)
		}
		return nil
	})
	r.is(v1.ConditionTrue)
	for id, i := range running {
		if _, still := r.Instances()[id]; !still && (i.Pod == "keeps" || i.Pod == "edited") {
			t.Errorf("%+v is gone", i)
		}
	}
	for _, name := range []string{"keeps", "edited"} {
		if s := r.pod(name).Status.ContainerStatuses[0]; s.RestartCount > 0 || running[strings.TrimPrefix(s.ContainerID, "containerd://")].Pod != name {
			t.Errorf("%s: %+v", name, s)
		}
	}
	// Versions that were seen before come again, with something else in them.
	for i := range 25 {
		r.kubectl("patch", "configmap", "conf", "-p", fmt.Sprintf(`{"data": {"k": "again %d"}}`, i))
	}
	r.comes(conf, "again 24")
	r.apply(podNamed("new", spec("[serve]")))
	r.podReady("new")
	r.kubectl("delete", "pod", "keeps", "--timeout=60s")
	r.Eventually("it is gone", func() error { return r.gone("keeps") })
}

// lost: etcd is empty behind an API server whose clients have noticed nothing, for their connections wait at a load balancer. That is found, reported
// loudly while the pods run on, and obeyed in the end.
func (r *rig) lost(t *testing.T, way *passage) {
	r.apply(podNamed("lost", spec("[serve]")) + podNamed("lost-too", spec("[serve]")))
	r.podReady("lost", "lost-too")
	before, running, pid := r.object(), r.Instances(), r.PID()
	logged := len(r.Logged())
	gate := make(chan struct{})
	way.gate.Store(&gate)
	r.p.LoseData()
	close(gate)
	s := r.Await("that is a problem", node.Problem("it has none of the 2 pods", "run on until"))
	if !strings.Contains(r.Logged()[logged:], "may not be that of before") {
		t.Error("it was found otherwise than by the lease")
	}
	for _, v := range s.Pods {
		c := v.Pod.Status.ContainerStatuses[0]
		if id := strings.TrimPrefix(c.ContainerID, "containerd://"); v.Pod.DeletionTimestamp != nil || c.State.Running == nil || c.RestartCount > 0 || running[id].Pod != v.Pod.Name {
			t.Errorf("%s: %+v", v.Pod.Name, c)
		}
	}
	if out, _ := r.Deckhand("pods"); len(s.Pods) != 2 || !strings.Contains(out, "it has none of the 2 pods") {
		t.Errorf("%d pods, and deckhand pods says %s", len(s.Pods), out)
	}
	began := r.AwaitNodeEvent("PodsHeld", "none of the 2 pods", "run on until")
	r.created()
	r.tells("Node " + node.Name + " PodsHeld")
	r.Await("then the API server counts", func(s local.Snapshot) error {
		if len(s.Pods) > 0 {
			return fmt.Errorf("%d pods", len(s.Pods))
		}
		return node.NoProblems(s)
	})
	if took := r.AwaitNodeEvent("PodsHeld", "still has none of the 2 pods").Time.Sub(began.First); took < held {
		t.Errorf("the pods were held for %s", took)
	}
	r.is(v1.ConditionTrue)
	if r.object().UID == before.UID || r.PID() != pid {
		t.Errorf("the node's object is the one before, or the agent isn't")
	}
	r.apply(podNamed("next", spec("[serve]")))
	r.podReady("next")
}
