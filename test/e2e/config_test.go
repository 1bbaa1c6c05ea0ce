package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// configured are the values of fields by their paths, as /configz tells them.
func configured(t *testing.T, n *node.Node, fields ...string) map[string]string {
	t.Helper()
	body, status, err := get(n.ReadOnlyURL("configz"))
	if err != nil || status != http.StatusOK {
		t.Fatalf("/configz: %d %v", status, err)
	}
	var page struct{ Kubeletconfig map[string]any }
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatalf("/configz: %v in %s", err, body)
	}
	out := map[string]string{}
	for _, field := range fields {
		var value any = page.Kubeletconfig
		for name := range strings.SplitSeq(field, ".") {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		out[field] = fmt.Sprint(value)
	}
	return out
}

// hush is in every secret of these tests, and in nothing else.
const hush = "hush"

// secretPods serves a pod to whoever knows the password, the header and the query that
// begin with a word, and remembers their Authorization.
type secretPods struct {
	*httptest.Server
	word string
	auth string
}

func serveSecretPods(t *testing.T, word string) *secretPods {
	t.Helper()
	s := &secretPods{word: word, auth: base64.StdEncoding.EncodeToString([]byte("captain:" + word + "-password"))}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if password != word+"-password" || r.Header.Get("X-Token") != word+"-header" || r.URL.Query().Get("token") != word+"-query" {
			http.Error(w, "who are you? "+r.Header.Get("X-Token")+r.URL.String(), http.StatusForbidden)
			return
		}
		fmt.Fprint(w, pod("remote"))
	}))
	t.Cleanup(s.Close)
	return s
}

// url is what only those know, header the header.
func (s *secretPods) url() string {
	return fmt.Sprintf("http://captain:%s-password@%s/pods?token=%s-query", s.word, s.Listener.Addr(), s.word)
}

func (s *secretPods) header() string { return s.word + "-header" }

// shown is a node whose configuration is looked at, and has secrets.
type shown struct {
	*node.Node
	file settings
	dir  string
	// names are the pods in its manifest folder.
	names []string
}

// What an agent goes by can be seen, with where it comes from and without its secrets; a
// configuration that can't be taken in, whatever is wrong with it, leaves all as it is.
func TestConfigurationInForce(t *testing.T) {
	t.Parallel()
	server := serveSecretPods(t, hush+"-file")
	v := &shown{Node: node.New(t, binary, node.Options{}), file: settings{
		"staticPodURL": strconv.Quote(server.url()), "staticPodURLHeader": "{X-Token: [" + server.header() + "]}",
		"httpCheckFrequency": "1s", "imageGCHighThresholdPercent": "90", "eventRecordQPS": "7"}}
	v.dir = filepath.Join(v.Base, "config.d")
	if err := os.Mkdir(v.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	v.drop(t, "imageMaximumGCAge: 24h\nimageGCLowThresholdPercent: 70\n")
	v.Configure(v.file.String())
	v.AddFlags("-v", "6", "--config-dir", v.dir, "--image-gc-low-threshold=60", "--node-labels=a=b")
	for i := range 20 {
		name := fmt.Sprintf("p%d", i)
		v.names = append(v.names, name)
		v.Write(name+".yaml", pod(name))
	}
	v.Start()
	v.Await("the pods run", node.Ready(append(v.names, "remote")...))
	before := v.RunningIDs()

	v.origins(t)
	v.pages(t)
	v.notes(t)
	v.badFiles(t)
	v.burst(t)
	server.Close()
	v.Await("it is told that the URL can't be had", node.Problem("connection refused"))
	v.keepsSecrets(t, server)
	v.Await("all pods were left alone", append([]node.Condition{noRestarts}, node.Ready(v.names...))...)
	unchanged(t, before, v.RunningIDs())
	v.Stop()

	v.withoutAgent(t)
	v.byFlags(t)
}

// drop writes the drop-in.
func (v *shown) drop(t *testing.T, fields string) {
	t.Helper()
	put(t, filepath.Join(v.dir, "10-more.conf"), "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+fields)
}

// configure writes the file and has it read, with this result.
func (v *shown) configure(t *testing.T, text, result string) {
	t.Helper()
	put(t, v.ConfigFile(), text)
	reload(t, v.Node, result, func() { v.Signal(syscall.SIGHUP) })
}

// says is what a command says that has to succeed.
func (v *shown) says(t *testing.T, args ...string) string {
	t.Helper()
	out, code := v.Deckhand(args...)
	if code != 0 {
		t.Errorf("deckhand %s ended with %d and said %s", strings.Join(args, " "), code, out)
	}
	return out
}

// lineOf is where a field is in the configuration file.
func (v *shown) lineOf(t *testing.T, field string) int {
	t.Helper()
	text, err := os.ReadFile(v.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.HasPrefix(line, field+":") })
	if at < 0 {
		t.Fatalf("no %s in %s", field, text)
	}
	return at + 1
}

// origins looks at what `deckhand config view` says.
func (v *shown) origins(t *testing.T) {
	t.Helper()
	text := v.says(t, "config", "view")
	for _, want := range []string{
		fmt.Sprintf("imageGCHighThresholdPercent: 90  # from %s:%d\n", v.ConfigFile(), v.lineOf(t, "imageGCHighThresholdPercent")),
		fmt.Sprintf("imageMaximumGCAge: 24h0m0s  # from %s:3\n", filepath.Join(v.dir, "10-more.conf")),
		"imageGCLowThresholdPercent: 60  # from --image-gc-low-threshold\n", // before the drop-in
		fmt.Sprintf("staticPodPath: %s  # from --pod-manifest-path\n", v.Manifests),
		"  verbosity: 6  # from --v\n",
		"  X-Token:  # from " + v.ConfigFile(),
		"containerLogMaxFiles: 5\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("deckhand config view doesn't tell %q:\n%s", want, text)
		}
	}
	var fields struct {
		Kind                        string
		ImageGCHighThresholdPercent int
	}
	if out := v.says(t, "config", "view", "-o", "json"); json.Unmarshal([]byte(out), &fields) != nil || fields.Kind != "KubeletConfiguration" || fields.ImageGCHighThresholdPercent != 90 {
		t.Errorf("as JSON it is %s", out)
	}
	// It is a configuration again.
	again := filepath.Join(v.Base, "again.yaml")
	put(t, again, text)
	if out := v.says(t, "config", "check", again); !strings.HasPrefix(out, again+": fine\n") {
		t.Errorf("what is shown can't be used: %s", out)
	}
}

// fetch gets a page of the read-only port or, as curl --unix-socket does, of the local API.
func (v *shown) fetch(t *testing.T, local bool, path, accept string) (status int, kind, body string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if local {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(v.RootDir, "deckhand.sock"))
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.ReadOnlyURL(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := (&http.Client{Transport: transport, Timeout: node.Deadline}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header.Get("Content-Type"), string(text)
}

// pages looks at /configz, /flagz and /statusz, wherever they are served.
func (v *shown) pages(t *testing.T) {
	t.Helper()
	const asked = "application/json;v=v1beta1;g=config.k8s.io;as="
	for _, local := range []bool{false, true} {
		for _, c := range []struct{ path, accept, kind, words string }{
			{"configz", "", "application/json", `"imageGCHighThresholdPercent":90,`},
			{"flagz", "", "text/plain; charset=utf-8", "\nimage-gc-low-threshold=60\n"},
			{"flagz", asked + "Flagz", "application/json", `"root-dir":"` + v.RootDir + `"`},
			{"statusz", "*/*", "text/plain; charset=utf-8", "\nPaths: /configz "},
			{"statusz", asked + "Statusz", "application/json", `"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1"`},
		} {
			if status, kind, body := v.fetch(t, local, c.path, c.accept); status != http.StatusOK || kind != c.kind || !strings.Contains(body, c.words) {
				t.Errorf("/%s for %q (local: %v) is %d, %s and lacks %q:\n%s", c.path, c.accept, local, status, kind, c.words, body)
			}
		}
		for _, path := range []string{"flagz", "statusz"} {
			if status, _, body := v.fetch(t, local, path, "application/yaml"); status != http.StatusNotAcceptable || !strings.Contains(body, "g=config.k8s.io") {
				t.Errorf("/%s as YAML (local: %v) is %d: %s", path, local, status, body)
			}
		}
	}
	for _, path := range []string{"configz", "flagz", "statusz"} {
		if _, status, err := get(v.HealthURL(path)); status != http.StatusNotFound {
			t.Errorf("/%s of the health port is %d: %v", path, status, err)
		}
	}
}

// notes looks at what was told at the start of what is set in vain or deprecated, and
// that a reload only adds what is new.
func (v *shown) notes(t *testing.T) {
	t.Helper()
	v.file["kubeAPIQPS"] = "77"
	v.configure(t, v.ConfigText(v.file.String()), "applied")
	v.configure(t, v.ConfigText(v.file.String()), "unchanged")
	log := v.Logged()
	for what, want := range map[string]int{
		`"A setting has no effect in this build" setting="eventRecordQPS: `:     1,
		`"A setting has no effect in this build" setting="--node-labels: `:      1,
		`"A setting has no effect in this build" setting="kubeAPIQPS: `:         1,
		`"A setting is deprecated" setting="--pod-manifest-path: `:              1,
		`"A setting is deprecated" setting="--image-gc-low-threshold: `:         1,
		`"A setting has no effect in this build" setting="imageGCHighThreshold`: 0,
		`"Configuration reloaded" changed=["kubeAPIQPS"]`:                       1,
	} {
		if got := strings.Count(log, what); got != want {
			t.Errorf("%s is in the log %d times, want %d", what, got, want)
		}
	}
}

// badConfigs are files that can't be used, by what is told of them. What is wrong with some is a secret.
func (v *shown) badConfigs() map[string]string {
	whole := func(line string) string { return v.ConfigText(line) }
	return map[string]string{
		"staticPodURLHeader[X-Token]: the value is not a list":    whole("staticPodURLHeader: {X-Token: hush-1}"),
		"staticPodURLHeader: a list is not a mapping":             whole("staticPodURLHeader: [hush-2]"),
		"staticPodURL: Invalid value":                             whole("staticPodURL: ftp://captain:hush-3@host/"),
		"staticPodURL: a list is not":                             whole("staticPodURL: ['http://captain:hush-4@host/']"),
		"there is no such field; did you mean staticPodURL":       whole("staticPodUrl: http://captain:hush-5@host/"),
		"staticPodURLHeader[X-Token]: Invalid value":              whole("staticPodURLHeader: {X-Token: [\"hush-6\\n\"]}"),
		"it is given twice":                                       whole("staticPodURL: http://captain:hush-7@host/\nstaticPodURL: http://captain:hush-8@host/"),
		"it can't be read as YAML: found unexpected end of":       whole("staticPodURLHeader: {X-Token: ['hush-9]}"),
		"it can't be read as YAML: ":                              whole("staticPodURLHeader: {X-Token: [*hush-10]}"),
		"it can't be read as YAML: found character that":          whole("staticPodURLHeader: {X-Token: [@hush-11]}"),
		"staticPodURLHeader[X-Token][0]: ":                        whole("staticPodURLHeader: {X-Token: [!hush-12 hush-13]}"),
		"it can't be read as YAML: did not find expected ',' or ": whole("staticPodURLHeader: {X-Token: [\"hush\"-14]}"),
		"imageGCLowThresholdPercent: Invalid value: 91: must be":  whole("imageGCLowThresholdPercent: 91"),
		"apiVersion: it is missing":                               "kind: KubeletConfiguration\n",
		"it is empty":                                             "",
	}
}

// badFiles has the agent read files that it can't use, one that it can't take in live, and none.
func (v *shown) badFiles(t *testing.T) {
	t.Helper()
	good := v.ConfigText(v.file.String())
	where := regexp.MustCompile(`: ` + regexp.QuoteMeta(v.ConfigFile()) + `(:\d+)?: |: --image-gc-low-threshold: `)
	for want, text := range v.badConfigs() {
		mark := len(v.Logged())
		v.configure(t, text, "invalid")
		told := v.Logged()[mark:]
		if !strings.Contains(told, strings.ReplaceAll(want, `"`, `\"`)) || !where.MatchString(told) {
			t.Errorf("%q isn't told, or not where, of\n%s\n%s", want, text, told)
		}
	}
	v.AwaitNodeEvent("ConfigurationNotReloaded", "the one before stays in force", v.ConfigFile())
	for _, path := range []string{v.ConfigFile(), v.dir} {
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		mark := len(v.Logged())
		reload(t, v.Node, "invalid", func() { v.Signal(syscall.SIGHUP) })
		if told := v.Logged()[mark:]; !strings.Contains(told, path) || !strings.Contains(told, "no such file or directory") {
			t.Errorf("it isn't told that %s is gone: %s", path, told)
		}
		if err := os.Rename(path+".away", path); err != nil {
			t.Fatal(err)
		}
	}
	other := v.file.String() + "podPidsLimit: 99\n"
	other = strings.Replace(strings.ReplaceAll(other, "file-", "other-"), "imageGCHighThresholdPercent: 90", "imageGCHighThresholdPercent: 95", 1)
	mark := len(v.Logged())
	v.configure(t, v.ConfigText(other), "refused")
	const want = "podPidsLimit, staticPodURL, staticPodURLHeader[X-Token] can't change while the agent runs: restart it (until then, 1 other changes aren't in force either)"
	if told := v.Logged()[mark:]; !strings.Contains(told, want) {
		t.Errorf("the fields that need a restart aren't told: %s", told)
	}
	if got := configured(t, v.Node, "imageGCHighThresholdPercent", "podPidsLimit"); got["imageGCHighThresholdPercent"] != "90" || got["podPidsLimit"] != "-1" {
		t.Errorf("some of what was refused is in force: %v", got)
	}
	v.configure(t, good, "unchanged")
	v.configure(t, strings.Replace(good, "Percent: 90", "Percent: 91", 1), "applied")
	v.AwaitNodeEvent("ConfigurationReloaded", "imageGCHighThresholdPercent")
	if got := configured(t, v.Node, "imageGCHighThresholdPercent"); got["imageGCHighThresholdPercent"] != "91" {
		t.Errorf("what was applied isn't in force: %v", got)
	}
}

// burst changes the file and asks for reloads as quickly as it can.
func (v *shown) burst(t *testing.T) {
	t.Helper()
	before := v.costs(t)
	had, err := reloads(v.Node)
	if err != nil {
		t.Fatal(err)
	}
	const times = 50
	for i := range times {
		v.file["imageGCHighThresholdPercent"] = strconv.Itoa(81 + i%10)
		v.file["registryBurst"] = strconv.Itoa(100 + i)
		put(t, v.ConfigFile(), v.ConfigText(v.file.String()))
		v.Signal(syscall.SIGHUP)
	}
	v.Eventually("what was written last is in force", func() error {
		if got := configured(t, v.Node, "registryBurst", "imageGCHighThresholdPercent"); got["registryBurst"] != "149" || got["imageGCHighThresholdPercent"] != "90" {
			return fmt.Errorf("in force is %v", got)
		}
		return nil
	})
	now, err := reloads(v.Node)
	if err != nil || now["refused"] != had["refused"] || now["invalid"] != had["invalid"] || now["success"] != 1 {
		t.Errorf("not all reloads went well: %v; before: %v (%v)", now, had, err)
	}
	v.Eventually("the agent has no more to carry than before", func() error {
		after := v.costs(t)
		for what, n := range after {
			if n > before[what]+5 {
				return fmt.Errorf("it has %v, before: %v", after, before)
			}
		}
		return nil
	})
	v.Eventually("it is healthy", answers(v.HealthURL("healthz"), "ok"))
}

// costs are how many goroutines and open files the agent has.
func (v *shown) costs(t *testing.T) map[string]int {
	t.Helper()
	body, _, err := get(v.ReadOnlyURL("metrics"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^(go_goroutines|process_open_fds) (\d+)$`).FindAllStringSubmatch(body, -1) {
		out[m[1]], _ = strconv.Atoi(m[2]) // the expression lets nothing else through
	}
	if len(out) != 2 {
		t.Fatalf("there is no telling from %s", body)
	}
	return out
}

// keepsSecrets looks for secrets wherever the agent tells something, and in what it wrote down.
func (v *shown) keepsSecrets(t *testing.T, server *secretPods) {
	t.Helper()
	told := map[string]string{"the log": v.Logged()}
	for _, command := range []string{"config view", "config view -o json", "events -o json", "events -o wide", "pods -o json", "pods -o yaml", "why remote", "why remote -o json", "journal remote"} {
		told["deckhand "+command] = v.says(t, strings.Fields(command)...)
	}
	for _, path := range []string{"configz", "flagz", "statusz", "metrics", "pods", "v1/config", "v1/snapshot", "v1/events"} {
		for _, local := range []bool{false, true} {
			_, _, told[fmt.Sprintf("/%s (local: %v)", path, local)] = v.fetch(t, local, path, "")
		}
	}
	for _, dir := range []string{"journal", "checkpoints", "footprint.json", "pods"} {
		err := filepath.WalkDir(filepath.Join(v.RootDir, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			told[path] = string(text)
			return err
		})
		if err != nil {
			t.Errorf("can't look into what the agent wrote down: %v", err)
		}
	}
	for where, text := range told {
		for _, word := range []string{hush, server.auth} {
			if at := strings.Index(text, word); at >= 0 {
				t.Errorf("a secret is in %s: …%s…", where, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
	if view := told["deckhand config view"]; !strings.Contains(view, "captain:<masked>@"+server.Listener.Addr().String()+"/pods?token=<masked>") {
		t.Errorf("of the URL nothing is left: %s", view)
	}
}

// withoutAgent looks at what `deckhand config` says while no agent runs.
func (v *shown) withoutAgent(t *testing.T) {
	t.Helper()
	if out, code := v.Deckhand("config", "view"); code == 0 || !strings.Contains(out, "config view --config FILE") {
		t.Errorf("without an agent, deckhand config view ended with %d and said %s", code, out)
	}
	out := v.says(t, "config", "view", "--config", v.ConfigFile(), "--config-dir", v.dir, "--max-pods", "33", "--manifest-url", "http://captain:hush-flag@host/")
	for _, want := range []string{"maxPods: 33  # from --max-pods\n", "imageMaximumGCAge: 24h0m0s  # from " + v.dir, "staticPodURL: http://captain:<masked>@host/  # from --manifest-url\n"} {
		if !strings.Contains(out, want) || strings.Contains(out, hush) {
			t.Errorf("what flags make isn't told, or too much: no %q, or a secret, in\n%s", want, out)
		}
	}
	var bad []string
	for _, text := range v.badConfigs() {
		bad = append(bad, filepath.Join(v.Base, fmt.Sprintf("bad%d.yaml", len(bad))))
		put(t, bad[len(bad)-1], text)
	}
	if out, code := v.Deckhand(append([]string{"config", "check"}, bad...)...); code != 1 || strings.Contains(out, hush) || strings.Contains(out, ": fine") {
		t.Errorf("deckhand config check ended with %d, or lets something pass, or tells a secret: %s", code, out)
	}
	out, code := v.Deckhand("config", "view", "--manifest-url-header", "hush-header", "--manifest-url", "captain:hush@host", "--node-labels", "?")
	if code == 0 || !strings.Contains(out, "--manifest-url") || strings.Contains(out, hush) {
		t.Errorf("bad flags: it ended with %d, or told a secret: %s", code, out)
	}
}

// byFlags has the secrets on the command line.
func (v *shown) byFlags(t *testing.T) {
	t.Helper()
	server := serveSecretPods(t, hush+"-flag")
	delete(v.file, "staticPodURL")
	delete(v.file, "staticPodURLHeader")
	v.Configure(v.file.String())
	v.AddFlags("--manifest-url", server.url(), "--manifest-url-header", "X-Token:"+server.header())
	v.Start()
	v.Await("the pods run, that from the URL too", agentIs(v.Node), noRestarts, node.Ready(append(v.names, "remote")...))
	v.configure(t, v.ConfigText(v.file.String()+"registryPullQPS: -1"), "invalid")
	v.configure(t, v.ConfigText(v.file.String()), "unchanged")
	if out := v.says(t, "config", "view"); !strings.Contains(out, "  # from --manifest-url\n") || !strings.Contains(out, "  X-Token:  # from --manifest-url-header\n") {
		t.Errorf("it isn't told that these are from flags: %s", out)
	}
	v.keepsSecrets(t, server)
}
