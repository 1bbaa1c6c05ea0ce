package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// atOnce is how long a pod may take to run once what it waited for is there. It would be tried
// again by itself a minute after it failed.
const atOnce = 30 * time.Second

// configMap is a manifest of one with these lines of data.
func configMap(name string, lines ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {%s}\n", name, strings.Join(lines, ", "))
}

// secret is the like for a Secret, with values as plain text.
func secret(name string, lines ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {%s}\n", name, strings.Join(lines, ", "))
}

func runtimeClass(name, handler string, lines ...string) string {
	return fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\n%s\n", name, handler, strings.Join(lines, "\n"))
}

// says is a field of a container: what `tools act` prints behind the word "version".
func says(value string) string { return "env: [{name: VERSION, " + value + "}]" }

// fromConfig and fromSecret are values for says.
func fromConfig(name, key string) string {
	return fmt.Sprintf("valueFrom: {configMapKeyRef: {name: %s, key: %s}}", name, key)
}

func fromSecret(name, key string) string {
	return fmt.Sprintf("valueFrom: {secretKeyRef: {name: %s, key: %s}}", name, key)
}

// explains fails the test unless `deckhand why` has these words about a pod.
func explains(t *testing.T, n *node.Node, pod string, words ...string) {
	t.Helper()
	for _, command := range []string{"pods", "why"} {
		out, code := n.Deckhand(command, pod)
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("deckhand %s %s ended with %d and doesn't tell %q:\n%s", command, pod, code, w, out)
			}
		}
	}
}

// releases waits until a pod runs that this action has to release, and fails the test if
// that takes as long as it would without the action being noticed.
func releases(t *testing.T, n *node.Node, pod string, action func()) local.Snapshot {
	t.Helper()
	begin := time.Now()
	action()
	s := n.Await("what it waited for is there: "+pod+" runs", node.Ready(pod))
	if took := time.Since(begin); took > atOnce {
		t.Errorf("pod %s ran only %s after what it waited for was there", pod, took)
	}
	return s
}

// A pod that refers to what isn't there is held, with the reason, and runs as soon as it is.
func TestPodsWaitForObjects(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	for name, test := range map[string]func(*testing.T, *node.Node){
		"config map": testWaitForConfigMap, "secret": testWaitForSecret, "runtime class": testWaitForRuntimeClass,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.For(t))
		})
	}
}

func testWaitForConfigMap(t *testing.T, n *node.Node) {
	n.Write("m.yaml", toolPod(n, "m", containers(tool("main", "act", says(fromConfig("m", "greeting"))), tool("other", "act"))))
	const missing = `configmap "m" not found in namespace "default"`
	n.Await("it is held", waiting("m", "CreateContainerConfigError", missing), runs("m", "other", 0))
	n.AwaitEvent("m", "Failed", "spec.containers{main}", missing)
	explains(t, n, "m", missing)
	if out, _ := n.Deckhand("pods", "m"); !strings.Contains(out, "CreateContainerConfigError") {
		t.Errorf("deckhand pods m says %s", out)
	}
	begin := time.Now()
	const noKey = `couldn't find key "greeting" in ConfigMap default/m`
	n.Write("m-objects.yaml", configMap("other", "x: text")+"---\n"+configMap("m", "another: value"))
	n.Await("the key isn't there yet", waiting("m", "CreateContainerConfigError", noKey))
	if took := time.Since(begin); took > atOnce {
		t.Errorf("another reason was reported only after %s", took)
	}
	explains(t, n, "m", noKey)
	releases(t, n, "m", func() { n.Write("m-objects.yaml", configMap("m", "another: value", "greeting: hello")) })
	n.Eventually("it has the value", logs(n, "m", "main", "main version hello\n"))
	remove(t, n, "m")
	n.Remove("m-objects.yaml")
}

func testWaitForSecret(t *testing.T, n *node.Node) {
	n.Write("s.yaml", toolPod(n, "s",
		initContainers(tool("first", "act -after 1ms", "envFrom: [{secretRef: {name: s}}]")), containers(tool("main", "act", says(fromSecret("s", "VERSION"))))))
	const missing = `secret "s" not found in namespace "default"`
	n.Await("its init container is held", container("s", "first", func(c v1.ContainerStatus) error {
		if w := c.State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, missing) {
			return fmt.Errorf("is %+v", c.State)
		}
		return nil
	}))
	explains(t, n, "s", missing)
	releases(t, n, "s", func() { n.Write("s-objects.yaml", secret("s", "VERSION: of-the-secret")) })
	for _, c := range []string{"first", "main"} {
		n.Eventually("it has the value", logs(n, "s", c, c+" version of-the-secret\n"))
	}
	remove(t, n, "s")
	n.Remove("s-objects.yaml")
}

func testWaitForRuntimeClass(t *testing.T, n *node.Node) {
	n.Write("c.yaml", toolPod(n, "c", "runtimeClassName: c", containers(
		tool("main", "act", "resources: {limits: {cpu: 100m, memory: 64Mi}}"))))
	const missing = `RuntimeClass "c" isn't there`
	n.AwaitEvent("c", "FailedCreatePodSandBox", missing)
	n.Await("it is held", waiting("c", "ContainerCreating", ""))
	explains(t, n, "c", missing)
	class := runtimeClass("c", "runc", "overhead: {podFixed: {cpu: 50m, memory: 16Mi}}")
	s := releases(t, n, "c", func() { n.Write("c-objects.yaml", class) })
	p := view(t, s, "c").Pod
	if cpu, memory := p.Spec.Overhead.Cpu(), p.Spec.Overhead.Memory(); cpu.MilliValue() != 50 || memory.Value() != 16<<20 {
		t.Errorf("the pod's overhead is %v", p.Spec.Overhead)
	}
	inForce(t, n, string(p.UID), containerID(t, s, "c", "main"), 100, 64)
	inForce(t, n, string(p.UID), "", 150, 80)

	// Another, which changes nothing about the pod, and names no handler of the runtime's.
	n.Write("h.yaml", toolPod(n, "h", "runtimeClassName: h", containers(tool("main", "act"))))
	n.AwaitEvent("h", "FailedCreatePodSandBox", `RuntimeClass "h" isn't there`)
	begin := time.Now()
	n.Write("h-objects.yaml", runtimeClass("h", "kata"))
	n.AwaitEvent("h", "FailedCreatePodSandBox", `"kata"`)
	if took := time.Since(begin); took > atOnce {
		t.Errorf("the class was noticed only after %s", took)
	}
	explains(t, n, "h", `"kata"`)
	n.Remove("h.yaml")
	remove(t, n, "c")
	n.Remove("c-objects.yaml")
	n.Remove("h-objects.yaml")
}

// A container has what its objects said when it was made. The next one has what they say
// then, whichever source they come from, and whether that can be reached or not.
func TestObjectsAreEdited(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Archives: []string{tools}, Config: "httpCheckFrequency: 1s"})
	server := serveManifests(t, fmt.Sprintf("127.0.0.1:%d", n.Port(5)))
	n.AddFlags("--manifest-url", "http://"+server.address+"/objects", "--manifest-url-header", "X-Ship:deckhand")
	// A pod of its own tells that a text was taken in.
	witness := func(name string) string {
		return "---\n" + toolPod(n, name, containers(tool("main", "act", says(fromConfig("app", "greeting")))))
	}
	server.say(configMap("app", "greeting: one") + "---\n" + secret("app", "password: old"))
	app := toolPod(n, "app", containers(tool("main", "act", `env: [{name: GREETING, `+fromConfig("app", "greeting")+`}, {name: PASSWORD, `+fromSecret("app", "password")+`}, {name: VERSION, value: $(GREETING)-$(PASSWORD)}]`)))
	n.Write("app.yaml", app)
	n.Start()
	hasSaid := func(words string) {
		t.Helper()
		n.Eventually("app says "+words, logs(n, "app", "main", "main version "+words+"\n"))
	}
	n.Await("it runs", node.Ready("app"))
	hasSaid("one-old")
	before := n.RunningIDs()
	server.say(configMap("app", "greeting: two") + "---\n" + secret("app", "password: new") + witness("w"))
	n.Await("the edit is taken in, and nothing restarts", node.Ready("app", "w"), noRestarts)
	n.Eventually("a new pod has the new value", logs(n, "w", "main", "main version two\n"))
	server.down()
	n.Await("the URL is down", node.Problem(server.address, "connection refused"))
	n.Kill()
	n.Start()
	n.Await("a new agent leaves all as it is", agentIs(n), node.Ready("app", "w"), node.Only("app", "w"), noRestarts, node.Problem(server.address, "connection refused"))
	now := n.RunningIDs()
	delete(now, "w-"+node.Name+"/main")
	unchanged(t, before, now)
	hasSaid("one-old")
	// Another image is another instance, without a back-off.
	n.Write("app.yaml", strings.Replace(app, tools1, tools2, 1))
	n.Await("the next one runs", node.Ready("app"), runs("app", "main", 1))
	hasSaid("two-new")

	n.PowerOff()
	n.Start()
	n.Await("both run after a reboot without the URL", agentIs(n), node.Ready("app", "w"), node.Only("app", "w"), runs("app", "main", 2))
	hasSaid("two-new")

	server.say(configMap("other", "x: text") + "---\n" + toolPod(n, "x", containers(tool("main", "act"))))
	server.up()
	n.Await("the URL doesn't define it any more; who runs, runs on", node.Ready("app", "x"), node.Only("app", "x"), runs("app", "main", 2))
	n.Write("app.yaml", app)
	n.Await("the next one is held", waiting("app", "CreateContainerConfigError", `configmap "app" not found`))
	releases(t, n, "app", func() {
		n.Write("objects.yaml", configMap("app", "greeting: three")+"---\n"+secret("app", "password: newest"))
	})
	hasSaid("three-newest")
	if restarts := status(t, n.Await("it runs", node.Ready("app")), "app", "main").RestartCount; restarts != 3 {
		t.Errorf("it was restarted %d times, want 3", restarts)
	}
	info, err := os.Stat(n.RootDir + "/checkpoints/desired/http.json")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the checkpoint that holds Secrets has mode %v (%v), want that only root reads it", info.Mode(), err)
	}
	remove(t, n, "app")
}
