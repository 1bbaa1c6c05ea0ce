package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// secrets are values that nobody but the containers they are for may come to know.
type secrets struct {
	mu     sync.Mutex
	values []string
}

// value makes one.
func (s *secrets) value() string {
	v := "hush-" + rand.Text()
	s.add(v)
	return v
}

func (s *secrets) add(v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, v)
}

// in lists which of the values are in a text, plain or as base64.
func (s *secrets) in(text []byte) []string {
	var found []string
	for _, v := range s.values {
		if bytes.Contains(text, []byte(v)) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte(v)))) {
			found = append(found, v)
		}
	}
	return found
}

// notIn fails the test if a value is in a text, or if the words aren't that tell that it is
// the text that was meant.
func (s *secrets) notIn(t *testing.T, what string, text []byte, words string) {
	t.Helper()
	if !bytes.Contains(text, []byte(words)) {
		t.Errorf("%s doesn't even tell %q", what, words)
	}
	for _, v := range s.in(text) {
		at := max(0, bytes.Index(text, []byte(v)))
		t.Errorf("%s tells a Secret's value: ...%s...", what, text[max(0, at-300):min(len(text), at+len(v)+50)])
	}
}

// Of objects that can't be used it is reported what is wrong, nothing else suffers, and the
// last good version of each stays; and whatever is wrong or not, no value of a Secret is reported.
func TestBadObjectsAndSecrets(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Archives: []string{tools}, Flags: []string{"-v", "6"}})
	n.Start()
	var s secrets
	t.Run("parts", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *node.Node, *secrets){
			"last good": testLastGoodObjects, "immutable": testImmutableObjects, "twice": testObjectsTwice,
			"malformed": testMalformedObjects, "registry": testRegistryPassword, "misused": testMisusedSecrets,
			"volumes": testSecretVolumes,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, n.For(t), &s)
			})
		}
	})
	testSecretsAreNotShown(t, n, &s)
}

func testLastGoodObjects(t *testing.T, n *node.Node, s *secrets) {
	first, second := s.value(), s.value()
	goodPod := toolPod(n, "g", containers(tool("main", "act", "env: [{name: GREETING, "+fromConfig("g", "greeting")+"}, {name: PASSWORD, "+fromSecret("g", "password")+"}, {name: VERSION, value: $(GREETING)-$(PASSWORD)}]")))
	const unknown = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n"
	text := func(docs ...string) string { return strings.Join(docs, "---\n") }
	n.Write("g.yaml", text(configMap("g", "greeting: one"), secret("g", "password: "+first), unknown, goodPod, strings.Replace(configMap("h", "a: b"), "\ndata:", "\ndta:", 1)))
	bad := []node.Condition{node.Problem(n.Path("g.yaml")+", document 3", "Deployment"), node.Problem(n.Path("g.yaml")+", document 5", "ConfigMap default/h", "dta")}
	n.Await("the good ones beside them are used", append(bad, node.Ready("g"))...)
	n.Eventually("it has their values", logs(n, "g", "main", "main version one-"+first+"\n"))

	broken := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: g}\ndata: {password: %q}\n", second)
	n.Write("g.yaml", text(configMap("g", "greeting: two"), broken, strings.Replace(goodPod, tools1, tools2, 1)))
	n.Await("the broken one is reported, the others are new", node.Problem(n.Path("g.yaml")+", document 2", "Secret default/g", "base64"), node.Ready("g"), runs("g", "main", 1))
	n.Eventually("it has the new value of one, and the last good of the other", logs(n, "g", "main", "main version two-"+first+"\n"))

	n.Write("g.yaml", text(configMap("g", "greeting: three"), secret("g", "password: "+second), goodPod))
	n.Await("all are good again", node.Ready("g"), runs("g", "main", 2))
	n.Eventually("it has the new values", logs(n, "g", "main", "main version three-"+second+"\n"))
}

// An edit of what is immutable isn't applied.
func testImmutableObjects(t *testing.T, n *node.Node, s *secrets) {
	first, second := s.value(), s.value()
	objects := func(value, password string) string {
		return configMap("i", "value: "+value) + "immutable: true\n---\n" + secret("i", "password: "+password) + "immutable: true\n"
	}
	tells := toolPod(n, "i", containers(tool("main", "act", "env: [{name: VALUE, "+fromConfig("i", "value")+"}, {name: PASSWORD, "+fromSecret("i", "password")+"}, {name: VERSION, value: $(VALUE)-$(PASSWORD)}]")))
	n.Write("i-objects.yaml", objects("one", first))
	n.Write("i.yaml", tells)
	n.Await("it runs", node.Ready("i"))
	n.Write("i-objects.yaml", objects("two", second))
	n.Await("the edits are refused", node.Problem(n.Path("i-objects.yaml")+", document 1", "ConfigMap default/i", "immutable"), node.Problem(n.Path("i-objects.yaml")+", document 2", "Secret default/i", "immutable"))
	n.Write("i.yaml", strings.Replace(tells, tools1, tools2, 1))
	n.Await("the next one runs", node.Ready("i"), runs("i", "main", 1))
	n.Eventually("it has what they were", logs(n, "i", "main", "main version one-"+first+"\n"))
}

// Of two that claim one name the first has it.
func testObjectsTwice(t *testing.T, n *node.Node, s *secrets) {
	first, second := s.value(), s.value()
	n.Write("t-1.yaml", secret("t", "VERSION: "+first)+"---\n"+secret("t", "VERSION: "+second))
	n.Await("two in one file are reported", node.Problem(n.Path("t-1.yaml")+", document 2", "Secret default/t", "document 1"))
	n.Write("t-2.yaml", secret("t", "VERSION: "+second)+"---\n"+configMap("t", "a: b"))
	n.Await("two in two files are reported", node.Problem(n.Path("t-2.yaml"), "Secret default/t", n.Path("t-1.yaml")))
	n.Write("t.yaml", toolPod(n, "t", containers(tool("main", "act", "envFrom: [{secretRef: {name: t}}, {configMapRef: {name: t}}]"))))
	n.Await("it runs", node.Ready("t"))
	n.Eventually("it has the first one's", logs(n, "t", "main", "main version "+first+"\n"))
}

// What is wrong is reported without the value that it is about.
func testMalformedObjects(t *testing.T, n *node.Node, s *secrets) {
	head := func(name string) string { return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\n" }
	var conditions []node.Condition
	for name, c := range map[string]struct{ text, want string }{
		"b-base64":    {"data: {password: %s}\n", "base64"},
		"b-json":      {"type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{\"auths\": %s'}\n", ".dockerconfigjson"},
		"b-auths":     {"type: kubernetes.io/dockercfg\nstringData: {.dockercfg: '[\"%s\"]'}\n", ".dockercfg"},
		"b-scalar":    {"stringData: %s\n", "stringData"},
		"b-list":      {"stringData: [%s]\n", "stringData"},
		"b-nested":    {"stringData: {password: {value: %s}}\n", "stringData[password]"},
		"b-listed":    {"data: {password: [%s]}\n", "data[password]"},
		"b-type":      {"type: [%s]\n", "type"},
		"b-immutable": {"immutable: %s\n", "immutable"},
		"b-unclosed":  {"stringData:\n  password: \"%s\n", "yaml"},
		"b-indent":    {"stringData:\n  password: %s\n other: x\n", ""},
		"b-tag":       {"stringData: {password: !!int %s}\n", ""},
		"b-alias":     {"stringData: {password: *%s}\n", ""},
		"b-merge":     {"stringData: {<<: %s}\n", ""},
		"b-twice":     {"stringData: {password: a, password: %s}\n", "password"},
		"b-field":     {"strngData: {password: %s}\n", "strngData"},
		"b-key":       {"stringData: {a/b: %s}\n", "a/b"},
		"b-tls":       {"type: kubernetes.io/tls\nstringData: {tls.crt: %s}\n", "tls.key"},
	} {
		n.Write(name+".yaml", head(name)+fmt.Sprintf(c.text, s.value()))
		conditions = append(conditions, node.Problem(n.Path(name+".yaml"), c.want))
	}
	n.Write("b-list.json", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}, "stringData": {"password": ["`+s.value()+`"]}}, "`+s.value()+`"]}`)
	n.Write("b-cut.json", `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b-cut"}, "stringData": {"password": "`+s.value())
	n.Write("b-pod.yaml", toolPod(n, "b-pod", containers(tool("main", "act", "env: [{name: A=B, value: "+s.value()+"}, {name: '', value: x}]", "envFrom: [{prefix: 'a=', secretRef: {name: b}}]"))))
	n.Await("what is wrong is reported", append(conditions, node.Problem(n.Path("b-list.json")), node.Problem(n.Path("b-cut.json")),
		node.Problem(n.Path("b-pod.yaml"), "spec.containers[0].env[0].name", "spec.containers[0].env[1].name", "spec.containers[0].envFrom[0].prefix"))...)
}

// A registry is sent the password, and nobody else is, whatever it answers.
func testRegistryPassword(t *testing.T, n *node.Node, s *secrets) {
	password := s.value()
	var asked atomic.Bool
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, given, _ := r.BasicAuth(); user == "sailor" && given == password {
			asked.Store(true)
			http.Error(w, `{"errors": [{"code": "DENIED", "message": "not you"}]}`, http.StatusForbidden)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="harbour"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	defer registry.Close()
	address := strings.TrimPrefix(registry.URL, "http://")
	// Nor is what a docker configuration makes of it.
	auth := base64.StdEncoding.EncodeToString([]byte("sailor:" + password))
	s.add(auth)
	n.Write("r.yaml", secret("r", fmt.Sprintf(`.dockerconfigjson: '{"auths": {%q: {"auth": %q}}}'`, address, auth))+"type: kubernetes.io/dockerconfigjson\n---\n"+
		strings.Replace(toolPod(n, "r", "imagePullSecrets: [{name: r}]", containers(tool("main", "act"))), tools1, address+"/fleet/ship:1", 1))
	n.Await("it can't be pulled", waiting("r", "ImagePullBackOff", ""))
	if !asked.Load() {
		t.Error("the registry wasn't sent the password")
	}
	n.Remove("r.yaml")
	n.Await("the pod is gone", gone("r"))
}

// What can't be run with a Secret's value fails without telling it.
func testMisusedSecrets(t *testing.T, n *node.Node, s *secrets) {
	password := s.value()
	n.Write("u-objects.yaml", secret("u", "command: /"+s.value(), fmt.Sprintf(`nul: "%s\0"`, s.value()), "password: "+password, "long: "+strings.Repeat(s.value(), 5000)))
	env := func(key string) string { return "env: [{name: PASSWORD, " + fromSecret("u", key) + "}]" }
	n.Write("u-command.yaml", toolPod(n, "u-command", containers(tool("main", "act", env("command"), "command: [$(PASSWORD)]"))))
	n.Write("u-nul.yaml", toolPod(n, "u-nul", containers(tool("main", "act", env("nul")))))
	n.Write("u-long.yaml", toolPod(n, "u-long", containers(tool("main", "act", env("long")))))
	n.Write("u-key.yaml", toolPod(n, "u-key", containers(tool("main", "act", env("none")))))
	n.Write("u-args.yaml", toolPod(n, "u-args", "restartPolicy: Never", containers(tool("main", "tell $(PASSWORD)", env("password")))))
	n.Write("u-part.yaml", toolPod(n, "u-part", containers(strings.Replace(tool("main", "act", env("command")), "mountPath: /diary", "mountPath: /diary, subPathExpr: $(PASSWORD)", 1))))
	n.Await("each is reported", waiting("u-part", "CreateContainerConfigError", `subPathExpr "$(PASSWORD)"`),
		waiting("u-nul", "CreateContainerConfigError", "NUL"), waiting("u-long", "CreateContainerConfigError", "128 KiB"),
		waiting("u-key", "CreateContainerConfigError", `couldn't find key "none" in Secret default/u`), node.Phase("u-args", v1.PodSucceeded),
		container("u-command", "main", func(c v1.ContainerStatus) error {
			if c.State.Terminated == nil && c.LastTerminationState.Terminated == nil && c.State.Waiting.Reason != "RunContainerError" {
				return fmt.Errorf("is %+v", c.State)
			}
			return nil
		}))
	if args := tells(t, n, "u-args", "main").Args; !slices.Equal(args, []string{password}) {
		t.Error("the container that may know the value doesn't get it")
	}
}

// Neither what the agent tells and logs, nor what it writes, has a Secret's value in it.
func testSecretsAreNotShown(t *testing.T, n *node.Node, s *secrets) {
	before := n.Await("it tells of its pods", node.Ready("g", "i", "t", "v"))
	n.Kill()
	n.Start()
	n.Await("the next one does", agentIs(n), node.Ready("g", "i", "t", "v"), held("v-key"), waiting("u-nul", "CreateContainerConfigError", ""))
	for command, must := range map[string]string{
		"events -o json": "u-nul", "events": "u-nul", "pods -o yaml": "u-nul", "pods -o json": "u-nul", "pods": "u-nul", "why": "u-nul",
		"journal u-command": "StartError", "why u-command": "quotes the name",
		"journal v-path": "backslash", "why v": "v-", "why v-both": "both a file and a directory", "events --for v-key": "FailedMount",
	} {
		out, _ := n.Deckhand(strings.Fields(command)...)
		s.notIn(t, "deckhand "+command, []byte(out), must)
	}
	for path, must := range map[string]string{"pods": "u-nul", "metrics": "kubelet_running_pods"} {
		body, _, err := get(n.ReadOnlyURL(path))
		if err != nil {
			t.Fatal(err)
		}
		s.notIn(t, "/"+path, []byte(body), must)
	}
	n.Stop() // which writes down what was decided
	s.notIn(t, "the agent's log", []byte(n.Logged()), "has a NUL byte")
	journals, err := filepath.Glob(filepath.Join(n.RootDir, "journal", "*.txtar"))
	if err != nil || len(journals) < len(before.Pods) {
		t.Errorf("the journal of %d pods on disk is %q (%v)", len(before.Pods), journals, err)
	}
	testSecretsAreNotOnDisk(t, n, s)
}

// On disk they are where they have to be known from after a restart, for root only, and
// in what is the runtime's. Volumes have them in memory.
func testSecretsAreNotOnDisk(t *testing.T, n *node.Node, s *secrets) {
	kept, files, inMemories := filepath.Join(n.RootDir, "checkpoints", "desired"), 0, 0
	apart := []string{kept, filepath.Join(n.RootDir, "containerd")}
	err := filepath.WalkDir(n.RootDir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(apart, path):
			return fs.SkipDir
		case !d.IsDir() && !d.Type().IsRegular():
			return nil
		case inMemory(n, path):
			inMemories++
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		s.notIn(t, path, text, "")
		return err
	})
	if err != nil || files < 10 || inMemories != 3 { // two volumes, and a part of one
		t.Errorf("looked into %d files below the root directory, and %d directories and files are in memory: %v", files, inMemories, err)
	}
	checkpoint := filepath.Join(kept, "file.json")
	info, err := os.Stat(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(checkpoint)
	if found := s.in(text); err != nil || info.Mode().Perm() != 0o600 || len(found) == 0 {
		t.Errorf("the checkpoint has mode %v and %d of the values (%v), want 0600 and some", info.Mode(), len(found), err)
	}
}
