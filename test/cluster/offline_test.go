package cluster_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
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

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// outage is how long the API server stays away; make test has no time for the ten minutes of the real thing.
var outage = flag.Duration("outage", 0, "how long the API server stays away at least in TestWithoutAPIServer (10m)")

// Values of Secrets that are to be in no file of the node, by what the Secrets are for.
const inVolumes, inEnvironments, forPulling = "c4n4ry-1f0e7d", "c4n4ry-2a9c33", "c4n4ry-35be18"

// TestWithoutAPIServer: the node goes on with what it last knew, also after it was switched off, whatever it is that keeps it from the API server; and is as
// that says when it is back, without another start of the agent.
func TestWithoutAPIServer(t *testing.T) {
	binary := builtOnce(t)
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
	var back func(*testing.T)
	outer := t
	t.Run("one of two nodes", func(t *testing.T) {
		other, link := joinApart(outer, p, binary, "node2", "--hold-pods-for", briefly.String())
		other.Start()
		other.created()
		other.is(v1.ConditionTrue)
		other.with(t).cutOff(t, link, r)
		back = other.with(t).removed(t, link)
	})
	t.Run("the node's object is removed", func(t *testing.T) { r.with(t).nodeRemoved(t) })
	secrets, key, kept := r.secretsUser(t), keyFile(t), false
	for _, tc := range []struct {
		name string
		away func() (back func())
		// crashing has a container end meanwhile, which takes ten seconds to be back.
		crashing bool
		// dead says that nobody can ask the API server.
		dead bool
		// key says that Secrets and tokens are kept.
		key bool
	}{
		{"packets are lost", func() func() { way.cut(); return way.heal }, true, false, false},
		{"connections are reset", func() func() { way.reset(); return way.heal }, false, false, true},
		{"another authority's certificate", func() func() { return impostor(t, kubeconfig) }, false, false, true},
		{"the API server was killed", p.KillAPIServer, false, true, true},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			if tc.key && !kept {
				kept = true
				r.Stop()
				r.hidesSecrets(t, "", "a journal that was written")
				r.AddFlags("--offline-secrets-key", key)
				r.Start()
			}
			r.without(t, secrets, tc.away, tc.crashing, tc.dead, tc.key)
		})
		if !ok {
			return
		}
	}
	t.Run("the disk is full", func(t *testing.T) { r.with(t).fullDisk(t) })
	if back != nil {
		t.Run("the other node is back, and was removed meanwhile", back)
	}
}

// keyFile is a key for what is kept while the API server is away.
func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, bytes.Repeat([]byte("k"), 32), 0o400); err != nil {
		t.Fatal(err)
	}
	return path
}

// secretsUser makes Secrets, and returns a manifest of a pod "secrets" that uses them in a volume, in its environment and for its image, and has a token.
func (r *rig) secretsUser(t *testing.T) string {
	t.Helper()
	reg := registry.New(t, registry.WithUser("me", forPulling))
	reg.Push(t, "app:1", registry.WithLayer(t, registry.FromArchive(t, filepath.Join(r.RootDir, "images", "web.tar"), node.Image), 1000))
	r.kubectl("create", "secret", "docker-registry", "pulling", "--docker-server="+reg.Host(), "--docker-username=me", "--docker-password="+forPulling)
	r.apply(secret("mounted", inVolumes) + secret("environment", inEnvironments))
	s := spec("[serve], volumeMounts: [{name: s, mountPath: /s}], env: [{name: S, valueFrom: {secretKeyRef: {name: environment, key: k}}}]",
		"automountServiceAccountToken: true, imagePullSecrets: [{name: pulling}], volumes: [{name: s, secret: {secretName: mounted}}],")
	return podNamed("secrets", strings.Replace(s, node.Image, reg.Ref("app:1"), 1))
}

// environments are where containerd keeps the environment of containers (docs/tasks/without-the-api-server.md).
var environments = []string{
	"containerd/root/io.containerd.metadata.v1.bolt/meta.db", "containerd/state/io.containerd.runtime.v2.task/k8s.io/*/config.json",
}

// hidesSecrets fails the test if a file below the root directory, but for volumes that are mounted there, has the value of a Secret or the signature of a
// token, if one is given: but what is in an environment is where the runtime keeps that.
func (r *rig) hidesSecrets(t *testing.T, token, when string) {
	t.Helper()
	values := map[string]string{"volume": inVolumes, "environment": inEnvironments, "image": forPulling}
	if token != "" {
		values["token"] = token[strings.LastIndex(token, ".")+1:]
	}
	var found []string
	device := func(path string) uint64 {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return 0 // it has gone
		}
		return st.Dev
	}
	own, read := device(r.RootDir), 0
	err := filepath.WalkDir(r.RootDir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // while the agent runs
			return nil
		case err != nil:
			return err
		case e.IsDir() && device(path) != own: // a mount
			return fs.SkipDir
		case !e.Type().IsRegular() || device(path) != own:
			return nil
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		read++
		for use, value := range values {
			if bytes.Contains(text, []byte(value)) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte(value)))) {
				name, err := filepath.Rel(r.RootDir, path)
				name = containerID.ReplaceAllString(name, "*")
				if found = append(found, use+": "+name); use != "environment" || !slices.Contains(environments, name) {
					t.Errorf("%s: what a Secret has for the %s is in %s (%v)", when, use, name, err)
				}
			}
		}
		return err
	})
	slices.Sort(found)
	found = slices.Compact(found)
	t.Logf("%s: %d files, of which have values of Secrets: %q", when, read, found)
	if err != nil || token != "" && len(found) == 0 {
		t.Errorf("%d files were read, and not even environments were found: %v", read, err)
	}
}

// tokenOf is the token in a pod's volume.
func (r *rig) tokenOf(t *testing.T, pod string) string {
	t.Helper()
	for _, v := range r.pod(pod).Spec.Volumes {
		if v.Projected != nil {
			text, err := os.ReadFile(r.inVolume(pod, "projected", v.Name, "token"))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
	t.Fatalf("%s has no token", pod)
	return ""
}

var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// stay has nobody evict a pod from a node that isn't reached for five minutes.
const stay = "tolerations: [{operator: Exists}],"

// offline is the spec of a pod that needs no token.
func offline(args string, fields ...string) string {
	return spec(args, append(fields, "automountServiceAccountToken: false, "+stay)...)
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

func (r *rig) without(t *testing.T, secrets string, away func() func(), crashing, dead, key bool) {
	names, wait := []string{"stays", "goes", "again"}, []string{"account", "secrets"}
	run := []string{"stays"}
	if key {
		names, run, wait = append(names, wait...), append(run, wait...), nil
	}
	if crashing {
		names, run = append(names, "crashes"), append(run, "crashes")
	}
	if dead {
		run = append(run, "again")
	}
	mounts := offline("[serve], volumeMounts: [{name: conf, mountPath: /conf}], envFrom: [{configMapRef: {name: optional, optional: true}}]",
		"nodeSelector: {kubernetes.io/os: linux}, volumes: [{name: conf, configMap: {name: conf}}],")
	r.apply(configMap("conf", "1"))
	for _, name := range names {
		if name != "account" && name != "secrets" {
			r.apply(podNamed(name, mounts))
		}
	}
	r.apply(podNamed("done", offline("[exit, '0']", "restartPolicy: Never,")) + podNamed("account", spec("[serve]", "automountServiceAccountToken: true, "+stay)) + strings.Replace(secrets, "{terminationGrace", "{"+stay+" terminationGrace", 1))
	r.podReady(slices.Concat(names, wait)...)
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

	token := r.tokenOf(t, "secrets")
	r.hidesSecrets(t, token, "while they run")
	back := away()
	lost := time.Now()
	if crashing {
		r.Eventually("it runs again here", r.restartedHere(t, "crashes"))
	}
	r.PowerOff()
	r.hidesSecrets(t, token, "after a power cut")
	if !dead {
		r.kubectl("delete", "pod", "goes", "again", "--force", "--grace-period=0")
		r.apply(podNamed("again", mounts) + podNamed("new", mounts))
	}
	began, logged := time.Now(), len(r.Logged())
	r.Start()
	pid := r.PID()
	r.Await("its pods are back, but for what waits for the API server", func(s local.Snapshot) error {
		for _, v := range s.Pods {
			was, ready := before[v.Pod.Name], condition(v.Pod, v1.PodReady).Status == v1.ConditionTrue
			switch {
			case was == nil && !ready && (slices.Contains(wait, v.Pod.Name) || v.Pod.Status.Phase == v1.PodSucceeded):
			case was == nil || v.Pod.UID != was.UID || !ready:
				return fmt.Errorf("%s %s: %s, %s", v.Pod.Name, v.Pod.UID, v.Pod.Status.Phase, v.Waiting())
			}
		}
		if len(s.Pods) != len(before)+len(wait)+1 {
			return fmt.Errorf("%d pods", len(s.Pods))
		}
		return nil
	})
	all := time.Since(began).Round(time.Millisecond)
	sandbox, container := r.firsts(t, logged)
	t.Logf("all run %s after the agent's start; after the runtime was ready, the first sandbox was begun after %s, the first container started after %s", all, sandbox, container)
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
	r.podReady(slices.Concat(run, []string{"again"}, wait)...)
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
		for _, name := range append(names, "done", "account", "secrets", "new") {
			if err := r.gone(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// firsts are how long after the embedded runtime was ready the agent began with the first sandbox, and the first container started, in the agent's life that
// begins there in its log.
func (r *rig) firsts(t *testing.T, from int) (sandbox, container time.Duration) {
	t.Helper()
	text := r.Logged()[from:]
	at := func(what string) time.Time {
		t.Helper()
		said := regexp.MustCompile(`(?m)^I(\d{4} [0-9:.]+) .*` + what).FindStringSubmatch(text)
		if said == nil {
			t.Fatalf("the log doesn't have %s", what)
		}
		at, err := time.ParseInLocation("20060102 15:04:05.000000", time.Now().Format("2006")+said[1], time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	ready, first := at(`"Containerd is ready"`), time.Now()
	for _, i := range r.Instances() {
		if i.Container != "" && i.Started.After(ready) && i.Started.Before(first) {
			first = i.Started
		}
	}
	return at(`"Action" .*action="CreateSandbox"`).Sub(ready), first.Sub(ready).Round(time.Millisecond)
}

// cutOff: one of two nodes is cut off, with all of its network, while pods come, change and go, and the other serves on. A recorder at the API server and one at each runtime
// show that nothing is doubled, restarted or lost, and the audit log that each pod that differs is told once.
func (r *rig) cutOff(t *testing.T, way *passage, serving *rig) {
	on := func(name string, at *rig) string {
		s := offline("[serve]", "nodeName: "+at.name+", volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600}}]}}],")
		return podNamed(name, strings.Replace(s, "args: [serve]", "args: [serve], livenessProbe: {httpGet: {port: 8080}, periodSeconds: 1}, readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}", 1))
	}
	seen, here, there := r.record(), r.For(t).Watch(), serving.For(t).Watch()
	names := []string{"stays", "crashes", "deleted", "forced", "again", "talks"}
	for _, name := range names[:5] {
		r.apply(on(name, r))
	}
	r.apply(podNamed("talks", offline("[logs, '1000000', 100ms]", "nodeName: "+r.name+",")))
	r.apply(on("elsewhere", serving))
	r.podReady(append(names, "elsewhere")...)
	before, ran, pid := r.pod("stays"), r.Instances(), r.PID()

	way.cut()
	lost := time.Now()
	again := r.restartedHere(t, "crashes")
	r.kubectl("delete", "pod", "deleted", "--wait=false")
	r.kubectl("delete", "pod", "forced", "again", "--force", "--grace-period=0")
	r.apply(on("again", r) + on("new", r))
	r.is(v1.ConditionUnknown)
	r.Eventually("it runs again here", again)
	said, _ := r.Deckhand("logs", "talks")
	served := 0
	for ; time.Since(lost) < max(*outage, 15*time.Second); served++ {
		r.apply(on("served", serving))
		r.podReady("served")
		r.kubectl("delete", "pod", "served", "--grace-period=1", "--timeout=60s")
	}
	for _, command := range []string{"pods", "why"} {
		if out, _ := r.Deckhand(command); !strings.Contains(out, "meanwhile what runs goes on") || *outage >= 10*time.Minute && !strings.Contains(out, "tokens that have ended: default/again") {
			t.Errorf("deckhand %s says %s", command, out)
		}
	}
	if says, code := r.Deckhand("logs", "talks"); code != 0 || len(said) == 0 || len(says) <= len(said) {
		t.Errorf("logs have %d bytes, and had %d: %d", len(says), len(said), code)
	}
	for _, v := range r.snapshot().Pods {
		if s := v.Pod.Status; s.Phase != v1.PodRunning || s.ContainerStatuses[0].State.Running == nil || !slices.Contains(names, v.Pod.Name) {
			t.Errorf("while cut off: %s: %+v", v.Pod.Name, s)
		}
	}

	_, from := r.calls(0)
	healed := time.Now()
	way.heal()
	stay := []string{"stays", "crashes", "again", "new", "talks"}
	r.Eventually("the API server has all there is", func() error {
		views := map[string]local.PodView{}
		for _, v := range r.snapshot().Pods {
			views[v.Pod.Name] = v
		}
		for _, name := range stay {
			v, is := views[name]
			if p := seen.last(name); !is || p == nil || v.Pod.UID != p.UID || !sameStatus(&v.Pod.Status, &p.Status) {
				return fmt.Errorf("%s: %+v", name, v.Pod)
			}
		}
		if deleted := seen.last("deleted"); len(views) != len(stay) || !seen.gone(deleted) {
			return fmt.Errorf("%d pods are here, want %q; deleted: %+v", len(views), stay, deleted.Status)
		}
		return nil
	})
	t.Logf("cut off for %s, while %d pods ran on the other node; exact %s after that", healed.Sub(lost).Round(time.Second), served, time.Since(healed).Round(time.Millisecond))
	r.Eventually("some renewals of the lease later", func() error { // what else it has to say it says meanwhile
		count := 0
		for _, c := range r.p.Calls()[from:] {
			if c.Node == r.name && c.Resource == "leases.coordination.k8s.io" {
				count++
			}
		}
		if count < 3 {
			return fmt.Errorf("%d", count)
		}
		return nil
	})
	patches, removed, events := map[string]int{}, map[string]int{}, 0
	for _, c := range r.p.Calls()[from:] {
		switch c.Verb + " " + c.Resource {
		case "patch pods/status":
			patches[c.Name]++
		case "delete pods":
			removed[c.Name]++
		case "create events", "patch events":
			if c.Node == r.name {
				events++
			}
		}
	}
	t.Logf("patches %v, removals %v, %d events", patches, removed, events)
	if events > 30 { // of four pods that came, went or crashed
		t.Errorf("%d events are told", events)
	}
	// What a call that was under way says of a pod doesn't know yet what the control plane has written meanwhile.
	if patches["stays"] != 1 || patches["talks"] != 1 || patches["crashes"] < 1 || patches["crashes"] > 2 || patches["forced"]+patches["elsewhere"] > 0 || removed["deleted"] != 1 || len(removed) != 1 {
		t.Errorf("patches %v, removals %v", patches, removed)
	}
	if is := r.pod("stays").Status.ContainerStatuses[0]; r.PID() != pid || is.RestartCount > 0 || ran[strings.TrimPrefix(is.ContainerID, "containerd://")].UID != string(before.UID) {
		t.Errorf("it was started again, or the agent: %+v", is)
	}
	if faults := slices.Concat(here.Overlaps(), there.Overlaps(), there.Restarts()); len(faults) > 0 {
		t.Errorf("doubled, or restarted on the other node: %q", faults)
	}
	if restarts := here.Restarts(); len(restarts) != 1 || !strings.HasPrefix(restarts[0], "crashes/c ") || !strings.HasSuffix(restarts[0], "started 2 times") {
		t.Errorf("restarts: %q", restarts)
	}
	seen.mu.Lock()
	for _, fault := range seen.faults {
		if strings.Contains(fault, serving.name) || strings.Contains(fault, "elsewhere") {
			t.Error(fault)
		}
	}
	seen.mu.Unlock()
	r.kubectl("delete", "pod", "--all", "--timeout=60s")
}

// briefly is for how long the node that is removed keeps what it had.
const briefly = 8 * time.Second

// removed: somebody removes the object of a node that is cut off, and the control plane thereupon the objects of its pods. What is returned brings the node back: what
// runs there goes on at first, and is ended when the API server hasn't it after a while either. The node makes an object anew, which new pods come to, also under
// names of before, and has mirrors of its static pods there, which nobody restarts.
func (r *rig) removed(t *testing.T, way *passage) (back func(*testing.T)) {
	const namespace = "kube-public" // where nothing else is
	on := func(name string) string {
		return manifest("v1", "Pod", fmt.Sprintf("name: %s, namespace: %s", name, namespace), offline("[serve]", "nodeName: "+r.name+","))
	}
	mirror := "pod/still-" + r.name
	ready := func(r *rig, pods ...string) {
		r.kubectl("-n", namespace, "wait", "--for=create", mirror, "--timeout=60s")
		r.kubectl(append([]string{"-n", namespace, "wait", "--for=condition=Ready", mirror, "--timeout=60s"}, pods...)...)
	}
	r.Write("still.yaml", strings.Replace(static("still", ""), "name: still", "name: still, namespace: "+namespace, 1))
	r.apply(on("ends") + on("again"))
	ready(r, "pod/ends", "pod/again")
	object, ran, pid := r.object(), r.Instances(), r.PID()
	way.cut()
	r.kubectl("delete", "node", r.name)
	return func(t *testing.T) {
		r := r.with(t)
		r.kubectl("-n", namespace, "wait", "--for=delete", "pod", "--all", "--timeout=90s")
		seen := r.For(t).Watch()
		way.heal()
		s := r.Await("that is a problem", node.Problem("it has none of the 2 pods", "run on until"))
		for _, v := range s.Pods {
			c := v.Pod.Status.ContainerStatuses[0]
			if id := strings.TrimPrefix(c.ContainerID, "containerd://"); c.State.Running == nil || ran[id].Pod != v.Pod.Name {
				t.Errorf("%s: %+v", v.Pod.Name, c)
			}
		}
		began := r.AwaitNodeEvent("PodsHeld", "none of the 2 pods", "run on until")
		r.created()
		r.is(v1.ConditionTrue)
		r.apply(on("again") + on("new"))
		ready(r, "pod/again", "pod/new")
		r.Await("then the API server counts", node.NoProblems, func(s local.Snapshot) error {
			if len(s.Pods) != 3 {
				return fmt.Errorf("%d pods", len(s.Pods))
			}
			return nil
		})
		if took := r.AwaitNodeEvent("PodsHeld", "still has none of the 2 pods").Time.Sub(began.First); took < briefly {
			t.Errorf("the pods were held for %s", took)
		}
		is := r.object()
		if owner := r.kubectl("-n", namespace, "get", mirror, "-o", "jsonpath={.metadata.ownerReferences[*].uid}"); is.UID == object.UID || owner != string(is.UID) {
			t.Errorf("node %s, before %s; the mirror pod is owned by %s", is.UID, object.UID, owner)
		}
		var went []string
		run := r.Instances()
		for id, i := range ran {
			if _, on := run[id]; !on && i.Container != "" {
				went = append(went, i.Pod)
			}
		}
		if slices.Sort(went); r.PID() != pid || !slices.Equal(went, []string{"again", "ends"}) {
			t.Errorf("went: %q, or the agent was started again", went)
		}
		if faults := slices.Concat(seen.Overlaps(), seen.Restarts()); len(faults) > 0 {
			t.Errorf("doubled, or restarted: %q", faults)
		}
		r.Remove("still.yaml")
		r.kubectl("-n", namespace, "delete", "pod", "--all", "--timeout=60s")
	}
}

// nodeRemoved: somebody removes the node's object, and the agent makes another one. Pods run on, and static pods get mirrors of the new one, for the garbage collector
// removes those of the one before.
func (r *rig) nodeRemoved(t *testing.T) {
	r.Write("still.yaml", static("still", ""))
	r.apply(podNamed("bound", offline("[serve]")))
	mirror := "still-" + node.Name
	r.kubectl("wait", "--for=create", "pod/"+mirror, "--timeout=60s")
	r.podReady("bound", mirror)
	object, bound, was := r.object(), r.pod("bound"), r.pod(mirror)
	r.kubectl("delete", "node", node.Name)
	r.created()
	r.is(v1.ConditionTrue)
	now := r.renewed("the object is another one", mirror, was)
	if o := r.object(); o.UID == object.UID || len(now.OwnerReferences) != 1 || now.OwnerReferences[0].UID != o.UID {
		t.Errorf("node %s, before %s; the mirror pod is owned by %+v", o.UID, object.UID, now.OwnerReferences)
	}
	if is := r.pod("bound"); is.UID != bound.UID || is.Status.ContainerStatuses[0].ContainerID != bound.Status.ContainerStatuses[0].ContainerID || is.DeletionTimestamp != nil {
		t.Errorf("%+v", is)
	}
	r.Remove("still.yaml")
	r.kubectl("wait", "--for=delete", "pod/"+mirror, "--timeout=60s")
	r.kubectl("delete", "pod", "bound", "--timeout=60s")
}

// fullDisk: while nothing can be written, pods run, also new ones, and that is reported.
func (r *rig) fullDisk(t *testing.T) {
	r.Stop()
	dir := filepath.Join(r.RootDir, "checkpoints")
	kept := os.DirFS(dir)
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=8m,mode=700"); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(small, kept); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(small, dir, "", unix.MS_MOVE, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r.Start()
	r.is(v1.ConditionTrue)
	r.apply(podNamed("before", offline("[serve]")))
	r.podReady("before")
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 64<<10))
	}
	filler.Close()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	r.apply(manifest("v1", "Pod", "name: meanwhile, annotations: {large: '"+strings.Repeat("x", 8<<10)+"'}", offline("[serve]")))
	r.Await("that is a problem", node.Problem("pods keep running", unix.ENOSPC.Error()))
	r.podReady("meanwhile")
	if err := os.Remove(filler.Name()); err != nil {
		t.Fatal(err)
	}
	r.Await("it is over", node.NoProblems)
	r.kubectl("delete", "pod", "--all", "--timeout=60s")
	r.Stop()
}
