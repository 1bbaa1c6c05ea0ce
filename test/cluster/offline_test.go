package cluster_test

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// outage is how long the API server stays away; make test has no time for the ten minutes of the real thing.
var outage = flag.Duration("outage", 0, "how long the API server stays away at least in TestWithoutAPIServer (10m)")

// TestWithoutAPIServer: the node goes on with what it last knew, also after it was switched off, whatever it is that keeps it from the API server; and is as
// that says when it is back, without another start of the agent.
func TestWithoutAPIServer(t *testing.T) {
	binary, err := node.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := plane.Start(t, program)
	t.Run("node", func(t *testing.T) { withoutAPIServer(t, p, binary) })
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

func withoutAPIServer(t *testing.T, p *plane.Plane, binary string) {
	way, kubeconfig := newPassage(t, p)
	r := join(t, p, binary, "", "--kubeconfig", kubeconfig)
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	for _, tc := range []struct {
		name string
		away func() (back func())
		// crashing has a container end meanwhile, which takes ten seconds to be back.
		crashing bool
		// dead says that nobody can ask the API server.
		dead bool
	}{
		{"packets are lost", func() func() { way.cut(); return way.heal }, true, false},
		{"connections are reset", func() func() { way.block("REJECT", "--reject-with", "tcp-reset"); return way.heal }, false, false},
		{"another authority's certificate", func() func() { return impostor(t, kubeconfig) }, false, false},
		{"the API server was killed", p.KillAPIServer, false, true},
	} {
		ok := t.Run(tc.name, func(t *testing.T) { r.without(t, tc.away, tc.crashing, tc.dead) })
		if !ok {
			return
		}
	}
}

// offline is the spec of a pod that needs no token.
func offline(args string, fields ...string) string {
	return spec(args, append(fields, "automountServiceAccountToken: false,")...)
}

// impostor has a kubeconfig lead to somebody else who has the API server's address.
func impostor(t *testing.T, kubeconfig string) (back func()) {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	other.StartTLS()
	lead := func(text []byte) {
		t.Helper()
		if err := atomicfile.Write(kubeconfig, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lead(regexp.MustCompile(`https://[0-9.:]+`).ReplaceAll(text, []byte(other.URL)))
	return func() { lead(text); other.Close() }
}

func (r *rig) without(t *testing.T, away func() func(), crashing, dead bool) {
	names := []string{"stays", "goes", "again"}
	run := []string{"stays"}
	if crashing {
		names, run = append(names, "crashes"), append(run, "crashes")
	}
	if dead {
		run = append(run, "again")
	}
	mounts := strings.Replace(offline("[serve]", "nodeSelector: {kubernetes.io/os: linux}, volumes: [{name: conf, configMap: {name: conf}}],"), "args: [serve]",
		"args: [serve], volumeMounts: [{name: conf, mountPath: /conf}], envFrom: [{configMapRef: {name: optional, optional: true}}]", 1)
	r.apply(configMap("conf", "1"))
	for _, name := range names {
		r.apply(podNamed(name, mounts))
	}
	r.apply(podNamed("done", offline("[exit, '0']", "restartPolicy: Never,")) + podNamed("account", spec("[serve]")))
	r.podReady(append(names, "account")...)
	r.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", "--timeout=60s")
	before := map[string]*v1.Pod{}
	for _, name := range names {
		before[name] = r.pod(name)
	}
	known := filepath.Join(r.RootDir, "checkpoints", "apiserver.jsonl")
	r.Eventually("what the API server says is kept", func() error {
		text, err := os.ReadFile(known)
		for _, p := range before {
			if err != nil || !strings.Contains(string(text), string(p.UID)) {
				return fmt.Errorf("%s isn't kept (%v)", p.Name, err)
			}
		}
		return err
	})
	if dead {
		documentedFormat(t, known)
	}

	back := away()
	lost := time.Now()
	if crashing {
		r.Eventually("it runs again here", r.restartedHere(t, "crashes"))
	}
	r.PowerOff()
	if !dead {
		r.kubectl("delete", "pod", "goes", "again", "--force", "--grace-period=0")
		r.apply(podNamed("again", mounts) + podNamed("new", mounts))
	}
	began := time.Now()
	r.Start()
	pid := r.PID()
	r.Await("its pods are back, but for what waits for the API server", func(s local.Snapshot) error {
		for _, v := range s.Pods {
			was, ready := before[v.Pod.Name], condition(v.Pod, v1.PodReady).Status == v1.ConditionTrue
			switch {
			case was == nil && !ready && (v.Pod.Name == "account" || v.Pod.Status.Phase == v1.PodSucceeded):
			case was == nil || v.Pod.UID != was.UID || !ready:
				return fmt.Errorf("%s %s: %s, %s", v.Pod.Name, v.Pod.UID, v.Pod.Status.Phase, v.Waiting())
			}
		}
		if len(s.Pods) != len(before)+2 {
			return fmt.Errorf("%d pods", len(s.Pods))
		}
		return nil
	})
	t.Logf("all run %s after the agent's start", time.Since(began).Round(time.Millisecond))
	for _, v := range r.snapshot().Pods {
		if s := v.Pod.Status.ContainerStatuses; before[v.Pod.Name] != nil && (s[0].RestartCount == 0 || v.Pod.Name == "crashes" && s[0].RestartCount != 2) {
			t.Errorf("%s has %d restarts", v.Pod.Name, s[0].RestartCount)
		}
	}
	if wait := *outage - time.Since(lost); wait > 0 {
		time.Sleep(wait)
	}
	ran := r.Instances()

	_, from := r.calls(0)
	back()
	if dead {
		r.kubectl("delete", "pod", "goes")
	}
	r.is(v1.ConditionTrue)
	if !dead {
		r.podReady("new")
	}
	r.podReady(slices.Concat(run, []string{"again", "account"})...)
	r.Eventually("what was deleted is gone", func() error { return r.gone("goes") })
	if r.PID() != pid {
		t.Errorf("the agent was started again")
	}
	for _, name := range run {
		was, is := before[name], r.pod(name)
		id := strings.TrimPrefix(is.Status.ContainerStatuses[0].ContainerID, "containerd://")
		if is.UID != was.UID || ran[id].Pod != name {
			t.Errorf("%s: %s of %s was started again: %+v", name, id, is.UID, ran)
		}
	}
	if is := r.pod("again"); !dead && (is.UID == before["again"].UID || is.Status.ContainerStatuses[0].RestartCount > 0) {
		t.Errorf("another pod of that name: %+v", is.Status)
	}
	r.comes(r.inVolume("stays", "configmap", "conf", "k"), "1")
	patches := map[string]int{}
	r.Eventually("some renewals of the lease later", func() error { // what else it has to say it says meanwhile
		count, _ := r.calls(from)
		if count["update leases.coordination.k8s.io"] < 2 {
			return fmt.Errorf("%v", count)
		}
		return nil
	})
	for _, c := range r.p.Calls()[from:] {
		if c.Verb+" "+c.Resource == "patch pods/status" {
			patches[c.Name]++
		}
	}
	t.Logf("patches: %v", patches)
	for _, name := range run {
		if patches[name] != 1 {
			t.Errorf("patches: %v", patches)
		}
	}
	if patches["done"] > 1 || patches["goes"] > 0 && !dead { // its sandbox has gone, with its address
		t.Errorf("patches: %v", patches)
	}
	r.kubectl("delete", "pod", "--all", "--timeout=60s")
	r.Eventually("nothing is left", func() error {
		for _, name := range append(names, "done", "account", "new") {
			if err := r.gone(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// documentedFormat checks that the file has the format that UPGRADING.md names.
func documentedFormat(t *testing.T, known string) {
	text, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(filepath.Join("..", "..", "UPGRADING.md"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	written := regexp.MustCompile(`"version":(\d+)`).FindStringSubmatch(line)
	documented := regexp.MustCompile("(?m)^\\| `checkpoints/apiserver.jsonl`[^|]*\\| (\\d+) \\|").FindStringSubmatch(string(document))
	if written == nil || documented == nil || written[1] != documented[1] {
		t.Errorf("%s begins with %.80q, while UPGRADING.md has format %v", known, line, documented)
	}
}
