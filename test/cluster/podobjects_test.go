package cluster_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// canary is a Secret's value, which is to be nowhere but in the Secret's volumes and environments.
const canary = "c4n4ry-7f3a9b"

// TestPodObjects: what pods of the API server refer to reaches them, and nothing else is asked for.
func TestPodObjects(t *testing.T) {
	binary := builtOnce(t)
	p := plane.Start(t, program)
	t.Run("node", func(t *testing.T) { podObjects(t, p, binary) })
	t.Run("without watches", func(t *testing.T) { withoutWatches(t, p, binary) })
	t.Run("memory", func(t *testing.T) { memory(t, p, binary) })
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

func podObjects(t *testing.T, p *plane.Plane, binary string) {
	cloud := newCloud(t)
	r := join(t, p, binary, "", append(cloud.flags, "--v=10")...) // all that may ever be logged
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	var tokens []string
	nothingElse := func(r *rig, t *testing.T) { r.nothingElse(t, tokens) }
	for _, test := range []struct {
		name string
		run  func(*rig, *testing.T)
	}{
		{"edits", (*rig).edits}, {"what is missing comes", (*rig).missingComes}, {"until the end", (*rig).untilTheEnd}, {"tokens", func(r *rig, t *testing.T) { tokens = r.tokens(t) }}, {"many pods", (*rig).manyPods}, {"pull secrets", (*rig).pullSecrets}, {"credential provider", cloud.provides}, {"claims", (*rig).claims}, {"runtime class", (*rig).runtimeClass}, {"nothing else", nothingElse},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(r.with(t), t) })
	}
	r.kubectl("delete", "pod", "--all", "--timeout=60s")
}

// withoutWatches: edits reach volumes by another way, and nothing is watched.
func withoutWatches(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "configMapAndSecretChangeDetectionStrategy: Get\nsyncFrequency: 1s\n")
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	_, from := r.calls(0)
	r.edits(t)
	r.kubectl("delete", "pod", "--all", "--timeout=60s")
	if count, _ := r.calls(from); count["watch configmaps"]+count["watch secrets"] > 0 || count["get configmaps"] == 0 {
		t.Errorf("calls %v", count)
	}
}

// cloud is a registry whose passwords a credential provider has, for a pod's service account.
type cloud struct {
	*registry.Registry
	flags []string
	log   string
}

func newCloud(t *testing.T) *cloud {
	dir := t.TempDir()
	c := &cloud{Registry: registry.New(t, registry.WithUser("robot", canary)), log: filepath.Join(dir, "log"),
		flags: []string{"--image-credential-provider-config", filepath.Join(dir, "providers.yaml"), "--image-credential-provider-bin-dir", dir}}
	password := filepath.Join(dir, "password")
	for path, text := range map[string]string{password: "robot:" + canary, filepath.Join(dir, "providers.yaml"): fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: provider
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [%q]
  defaultCacheDuration: 1h
  args: [%q, %q]
  tokenAttributes: {serviceAccountTokenAudience: registry, requireServiceAccount: true, cacheType: ServiceAccount}
`, c.Host(), password, c.log)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "provider"), "../e2e/provider").CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	return c
}

// provides: the provider is given a token of the pod's service account, for the audience that it wants.
func (c *cloud) provides(r *rig, t *testing.T) {
	c.Push(t, "app:1", registry.WithLayer(t, registry.FromArchive(t, filepath.Join(r.RootDir, "images", "web.tar"), node.Image), 1000))
	// A node may ask for tokens for audiences that its pods have.
	r.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: cloud}}\n---\n" + podNamed("provided", strings.Replace(spec("[serve]", "serviceAccountName: cloud,",
		"volumes: [{name: token, projected: {sources: [{serviceAccountToken: {path: token, audience: registry}}]}}],"), node.Image, c.Ref("app:1"), 1)))
	r.podReady("provided")
	text, err := os.ReadFile(c.log)
	_, token, given := strings.Cut(string(text), "token ")
	if err != nil || !given {
		t.Fatalf("the provider has written %q, %v", text, err)
	}
	if s := r.review(strings.Fields(token)[0], "registry"); !s.Authenticated || s.User.Username != "system:serviceaccount:default:cloud" || !slices.Equal(s.Audiences, []string{"registry"}) {
		t.Errorf("the token: %+v", s)
	}
	if w := r.warnings("provided"); w != "" {
		t.Errorf("warnings: %s", w)
	}
	r.kubectl("delete", "pod", "provided", "--timeout=60s")
}

// review is what the API server says of a token.
func (r *rig) review(token string, audiences ...string) authentication.TokenReviewStatus {
	r.t.Helper()
	review := authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token, Audiences: audiences}}
	review.SetGroupVersionKind(authentication.SchemeGroupVersion.WithKind("TokenReview"))
	text, err := json.Marshal(review)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := r.p.Kubectl(string(text), "create", "-f", "-", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &review)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return review.Status
}

// with is the rig for a part of a test.
func (r *rig) with(t *testing.T) *rig {
	part := *r
	part.t = t
	return &part
}

func configMap(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {k: '%s'}}\n---\n", name, value)
}

func secret(name, value string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s}, stringData: {k: '%s'}}\n---\n", name, value)
}

// inVolume is the host's path of a file in a volume of a pod.
func (r *rig) inVolume(pod, plugin, volume, file string) string {
	return filepath.Join(r.RootDir, "pods", string(r.pod(pod).UID), "volumes", "kubernetes.io~"+plugin, volume, file)
}

// comes waits until a file has a text, and returns how long that took.
func (r *rig) comes(path, want string) time.Duration {
	r.t.Helper()
	began := time.Now()
	r.Eventually(fmt.Sprintf("%s has %q", path, want), func() error {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			return fmt.Errorf("%q, %v", text, err)
		}
		return nil
	})
	return time.Since(began)
}

// warnings are the warnings about a pod.
func (r *rig) warnings(pod string) string {
	r.t.Helper()
	return r.kubectl("get", "events", "--field-selector=type=Warning,involvedObject.name="+pod, "-o", "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}")
}

// edits: an edit is in volumes at once, and the first look at what isn't known yet is no failure.
func (r *rig) edits(t *testing.T) {
	r.apply(configMap("conf", "1") + secret("canary", canary) + secret("unused", "unused") + podNamed("reader", spec("[serve]",
		"volumes: [{name: conf, configMap: {name: conf}}, {name: secret, secret: {secretName: canary, defaultMode: 0400}}, {name: none, configMap: {name: none, optional: true}}],")))
	r.podReady("reader")
	conf, hidden := r.inVolume("reader", "configmap", "conf", "k"), r.inVolume("reader", "secret", "secret", "k")
	r.comes(conf, "1")
	r.comes(hidden, canary)
	var took []time.Duration
	for n := range 5 {
		want := fmt.Sprint("edit ", n)
		r.kubectl("patch", "configmap", "conf", "-p", fmt.Sprintf(`{"data": {"k": "%s"}}`, want))
		took = append(took, r.comes(conf, want).Round(time.Millisecond))
	}
	t.Logf("in the volume after kubectl returned: %v", took)
	r.apply(secret("canary", canary+"2"))
	r.comes(hidden, canary+"2")
	r.apply(configMap("none", "there now"))
	r.comes(r.inVolume("reader", "configmap", "none", "k"), "there now")
	r.kubectl("delete", "configmap", "none")
	r.Eventually("what was removed and is optional isn't in the volume", func() error {
		if _, err := os.Stat(r.inVolume("reader", "configmap", "none", "k")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	if w := r.warnings("reader"); w != "" {
		t.Errorf("warnings: %s", w)
	}
}

// missingComes: containers and volumes wait for what isn't there, say so, and go on at once when it is.
func (r *rig) missingComes(t *testing.T) {
	env := strings.Replace(spec("[env]", "restartPolicy: Never,"), "args: [env]", "args: [env], env: [{name: LATE, valueFrom: {secretKeyRef: {name: late-env, key: k}}}]", 1)
	r.apply(podNamed("late-env", env) + podNamed("late-volume", spec("[serve]", "volumes: [{name: v, secret: {secretName: late-volume}}],")))
	r.Eventually("the container waits", func() error {
		s := r.pod("late-env").Status
		if len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Waiting == nil || s.ContainerStatuses[0].State.Waiting.Reason != "CreateContainerConfigError" {
			return fmt.Errorf("%+v", s.ContainerStatuses)
		}
		return nil
	})
	r.Eventually("the volume's wait is an event", func() error {
		if w := r.warnings("late-volume"); !strings.Contains(w, `Secret "late-volume" (namespace default) isn't there`) {
			return fmt.Errorf("%s", w)
		}
		return nil
	})
	r.apply(secret("late-env", canary) + secret("late-volume", canary))
	r.podReady("late-volume")
	r.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/late-env", "--timeout=60s")
	if out, code := r.Deckhand("logs", "late-env"); code != 0 || !strings.Contains(out, "LATE="+canary) || !strings.Contains(out, "KUBERNETES_SERVICE_HOST=10.96.0.1") {
		t.Errorf("environment %s", out)
	}
	r.Eventually("what a finished pod refers to isn't followed", func() error { return r.watchEnded(0, "late-env") })
}

// watchEnded fails until the watch of a Secret has ended, which is when it is in the audit log.
func (r *rig) watchEnded(from int, name string) error {
	r.t.Helper()
	for _, c := range r.p.Calls()[from:] {
		if c.Verb == "watch" && c.Resource == "secrets" && strings.HasSuffix(c.Selector, "="+name) {
			return nil
		}
	}
	return fmt.Errorf("the watch of %s goes on", name)
}

// untilTheEnd: what a pod refers to is kept up to date while the pod is being stopped, and nothing follows it when the pod is gone.
func (r *rig) untilTheEnd(t *testing.T) {
	stopping := strings.Replace(spec("[serve], lifecycle: {preStop: {exec: {command: [/web, watch, /v/k]}}}, volumeMounts: [{name: v, mountPath: /v}]",
		"volumes: [{name: v, secret: {secretName: held}}],"), "terminationGracePeriodSeconds: 2,", "terminationGracePeriodSeconds: 60,", 1)
	r.apply(secret("held", canary) + podNamed("stopping", stopping))
	r.podReady("stopping")
	path := r.inVolume("stopping", "secret", "v", "k")
	r.comes(path, canary)
	r.kubectl("delete", "pod", "stopping", "--wait=false")
	r.apply(secret("held", canary+"3"))
	r.comes(path, canary+"3")
	_, from := r.calls(0)
	r.kubectl("delete", "pod", "stopping", "--grace-period=1", "--timeout=60s")
	r.Eventually("its watch has ended", func() error { return r.watchEnded(from, "held") })
}

// manyPods: each has a token of its own, and all one watch of what they share.
func (r *rig) manyPods(t *testing.T) {
	const pods = 20
	_, from := r.calls(0)
	r.apply("{apiVersion: v1, kind: Namespace, metadata: {name: many}}\n---\n")
	r.kubectl("wait", "--for=create", "serviceaccount/default", "configmap/kube-root-ca.crt", "-n", "many", "--timeout=60s")
	r.apply(strings.Replace(workload("Deployment", "many", fmt.Sprintf("replicas: %d,", pods), strings.Replace(spec("[serve]"), "automountServiceAccountToken: false, ", "", 1)), "metadata: {name: many}", "metadata: {name: many, namespace: many}", 1))
	r.kubectl("rollout", "status", "deployment/many", "-n", "many", "--timeout=120s")
	count, refused := map[string]int{}, 0
	for _, c := range r.p.Calls()[from:] {
		if c.Code == http.StatusForbidden { // the authorizer learns a moment later than the node what pods refer to
			refused++
		} else {
			count[c.Verb+" "+c.Resource]++
		}
	}
	if count["create serviceaccounts/token"] != pods || count["list configmaps"] != 1 || count["list services"] > 1 || count["get serviceaccounts"] > 0 {
		t.Errorf("calls for %d pods: %v", pods, count)
	}
	if refused > 5*pods { // the pauses double: five are more than a second
		t.Errorf("calls for %d pods: %d were refused", pods, refused)
	}
	r.kubectl("delete", "deployment", "many", "-n", "many", "--cascade=foreground", "--timeout=60s")
}

// tokens: a pod has a token that the API server knows, its own alone, and keeps it over a restart of the agent. It returns them.
func (r *rig) tokens(t *testing.T) (all []string) {
	withToken := func(name, fields string) string {
		return podNamed(name, strings.Replace(spec("[serve]", fields), "automountServiceAccountToken: false", "automountServiceAccountToken: true", 1))
	}
	r.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}\n---\n" + withToken("open", "serviceAccountName: robot,") +
		withToken("user", "serviceAccountName: robot, securityContext: {runAsUser: 1234},") + withToken("group", "serviceAccountName: robot, securityContext: {fsGroup: 4321},"))
	names := []string{"open", "user", "group"}
	r.podReady(names...)
	read := func(pod string) (text string, mode fs.FileMode, uid, gid uint32) {
		p := r.pod(pod)
		i := slices.IndexFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Projected != nil })
		path := r.inVolume(pod, "projected", p.Spec.Volumes[i].Name, "token")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*syscall.Stat_t)
		return string(data), info.Mode().Perm(), st.Uid, st.Gid
	}
	had := map[string]string{}
	for _, name := range names {
		text, mode, uid, gid := read(name)
		had[name] = text
		all = append(all, text)
		if want := map[string]string{"open": "644 0 0", "user": "600 1234 0", "group": "640 0 4321"}[name]; fmt.Sprintf("%o %d %d", mode, uid, gid) != want {
			t.Errorf("%s: mode %o, owner %d, group %d", name, mode, uid, gid)
		}
		if s := r.review(text); !s.Authenticated || s.User.Username != "system:serviceaccount:default:robot" || !slices.Equal(s.User.Extra["authentication.kubernetes.io/pod-name"], []string{name}) {
			t.Errorf("%s: %+v", name, s)
		}
		if w := r.warnings(name); w != "" {
			t.Errorf("%s: warnings: %s", name, w)
		}
	}
	_, from := r.calls(0)
	r.Kill()
	r.Start()
	r.apply(withToken("next", "serviceAccountName: robot,"))
	r.podReady("next") // the others were looked at before
	for _, name := range names {
		if text, _, _, _ := read(name); text != had[name] {
			t.Errorf("%s has another token after a restart of the agent", name)
		}
	}
	if count, _ := r.calls(from); count["create serviceaccounts/token"] != 1 || count["watch configmaps"] == 0 {
		t.Errorf("calls of the next agent: %v", count)
	}
	return all
}

// pullSecrets: an image of a registry that wants a password, with a secret of the pod's or of its service account's, and without.
func (r *rig) pullSecrets(t *testing.T) {
	reg := registry.New(t, registry.WithUser("me", canary))
	image := registry.WithLayer(t, registry.FromArchive(t, filepath.Join(r.RootDir, "images", "web.tar"), node.Image), 1000)
	for _, name := range []string{"own", "account", "none"} {
		reg.Push(t, name+":1", image)
	}
	r.kubectl("create", "secret", "docker-registry", "login", "--docker-server="+reg.Host(), "--docker-username=me", "--docker-password="+canary)
	r.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: puller}, imagePullSecrets: [{name: login}]}")
	from := func(name, fields string) string {
		return podNamed("pull-"+name, strings.Replace(spec("[serve]", fields), node.Image, reg.Ref(name+":1"), 1))
	}
	r.apply(from("own", "imagePullSecrets: [{name: login}],") + from("account", "serviceAccountName: puller,") + from("none", ""))
	r.podReady("pull-own", "pull-account")
	r.Eventually("without a secret it isn't pulled", func() error {
		s := r.pod("pull-none").Status
		if len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Waiting == nil || !strings.Contains(s.ContainerStatuses[0].State.Waiting.Reason, "Pull") {
			return fmt.Errorf("%+v", s.ContainerStatuses)
		}
		return nil
	})
	for _, name := range []string{"pull-own", "pull-account"} {
		if w := r.warnings(name); w != "" {
			t.Errorf("%s: warnings: %s", name, w)
		}
	}
	r.kubectl("delete", "pod", "pull-own", "pull-account", "pull-none", "--timeout=60s")
}

// claims: PersistentVolumes that the cluster's controllers have bound, at once, when the pod is scheduled, or later.
func (r *rig) claims(t *testing.T) {
	dir := t.TempDir()
	volume := func(name, class, source, fields string) string {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("{apiVersion: v1, kind: PersistentVolume, metadata: {name: %[1]s}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: '%[2]s', persistentVolumeReclaimPolicy: Retain, %[3]s: {path: %[4]s}, %[5]s}}\n---\n",
			name, class, source, filepath.Join(dir, name), fields)
	}
	here := fmt.Sprintf("nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}", node.Name)
	claim := func(name, class string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s}, spec: {accessModes: [ReadWriteOnce], storageClassName: '%s', resources: {requests: {storage: 1Gi}}}}\n---\n", name, class)
	}
	user := func(name, fields string) string {
		return podNamed("claim-"+name, spec("[clock, /data/file], volumeMounts: [{name: data, mountPath: /data}]",
			"volumes: [{name: data, persistentVolumeClaim: {claimName: "+name+"}}],", fields))
	}
	t.Cleanup(func() {
		r.kubectl("delete", "pod", "claim-local", "claim-path", "claim-late", "--ignore-not-found", "--timeout=60s")
		r.kubectl("delete", "pvc,pv", "--all", "--timeout=60s")
	})
	r.apply("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: local}, provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}\n---\n" +
		volume("local", "local", "local", here) + claim("local", "local") + user("local", "") +
		volume("path", "path", "hostPath", "") + claim("path", "path") + user("path", "") +
		claim("late", "late") + user("late", "nodeName: "+node.Name+","))
	r.podReady("claim-local", "claim-path")
	r.Eventually("a claim that isn't bound is waited for", func() error {
		if w := r.warnings("claim-late"); !strings.Contains(w, "isn't bound to a PersistentVolume") {
			return fmt.Errorf("%s", w)
		}
		return nil
	})
	r.apply(volume("late", "late", "hostPath", ""))
	r.podReady("claim-late")
	for _, name := range []string{"local", "path", "late"} {
		r.Eventually("the pod writes to its volume", func() error {
			_, err := os.Stat(filepath.Join(dir, name, "file"))
			return err
		})
	}
}

// runtimeClass: a pod waits for its class, and isn't changed by what that says later of pods.
func (r *rig) runtimeClass(t *testing.T) {
	class := func(fields string) string {
		return "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: own}, handler: runc" + fields + "}\n---\n"
	}
	r.apply(class(", overhead: {podFixed: {cpu: 10m, memory: 8Mi}}"))
	r.apply(podNamed("class", spec("[serve]", "runtimeClassName: own, schedulingGates: [{name: example.com/wait}],")))
	r.kubectl("delete", "runtimeclass", "own")
	r.kubectl("patch", "pod", "class", "--type=json", "-p", `[{"op": "remove", "path": "/spec/schedulingGates"}]`)
	r.Eventually("its class is waited for", func() error {
		if w := r.warnings("class"); !strings.Contains(w, `RuntimeClass "own" isn't there`) {
			return fmt.Errorf("%s", w)
		}
		return nil
	})
	r.apply(class(""))
	r.podReady("class")
	if o := r.pod("class").Spec.Overhead; o.Memory().String() != "8Mi" {
		t.Errorf("overhead %v", o)
	}
	r.kubectl("delete", "pod", "class", "--timeout=60s")
	r.kubectl("delete", "runtimeclass", "own")
}

// nothingElse: no Secret was asked for that no pod refers to, and neither its value nor a token is in any of the agent's records.
func (r *rig) nothingElse(t *testing.T, tokens []string) {
	mayAsk := []string{"canary", "held", "late-env", "late-volume", "login"}
	for _, c := range r.p.Calls() {
		if c.Resource == "secrets" && !slices.Contains(mayAsk, c.Name) && !slices.Contains(mayAsk, strings.TrimPrefix(c.Selector, "metadata.name=")) {
			t.Errorf("asked for: %s", c)
		}
	}
	r.Kill() // the journal is on disk then, or was never
	r.Start()
	hides := func(where, text string) {
		if strings.Contains(text, canary) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(canary))) {
			t.Errorf("a Secret's value is in %s", where)
		}
		for _, token := range tokens {
			_, signature, _ := strings.Cut(token[strings.Index(token, ".")+1:], ".")
			if strings.Contains(text, signature) {
				t.Errorf("a token is in %s", where)
			}
		}
	}
	if len(tokens) == 0 || !strings.Contains(r.Logged(), "Volumes are ready") { // which is logged from 4 on
		t.Error("there was nothing to find, or nothing is logged")
	}
	hides("the log", r.Logged())
	hides("events", r.kubectl("get", "events", "-A", "-o", "json"))
	hides("statuses", r.kubectl("get", "pods", "-A", "-o", "jsonpath={.items[*].status}"))
	for _, name := range []string{"reader", "late-env", "late-volume"} {
		why, _ := r.Deckhand("why", name)
		journal, _ := r.Deckhand("journal", name)
		hides("why or journal of "+name, why+journal)
	}
	for _, dir := range []string{"journal", "checkpoints"} {
		err := filepath.WalkDir(filepath.Join(r.RootDir, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			hides(path, string(text))
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}
