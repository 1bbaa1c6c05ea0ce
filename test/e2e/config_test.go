package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
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

// shown is a node whose configuration is looked at, and has secrets.
type shown struct {
	*node.Node
	file settings
	dir  string
	// names are the pods in its manifest directory.
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
	v.AddFlags("-v", "6", "--config-dir", v.dir, "--image-gc-low-threshold=60", "--provider-id=a")
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
	costs := v.costs(t)
	v.notes(t)
	v.badFiles(t)
	v.needsRestart(t)
	v.burst(t)
	v.Eventually("the agent has no more to carry than before", func() error {
		after := v.costs(t)
		for what, n := range after {
			if n > costs[what]+5 {
				return fmt.Errorf("it has %v, before: %v", after, costs)
			}
		}
		return nil
	})
	server.moved.Store(true)
	v.Await("it is reported that the URL can't be had", node.Problem("connection refused"))
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
func (v *shown) configure(t *testing.T, file settings, result string) {
	t.Helper()
	put(t, v.ConfigFile(), v.ConfigText(file.String()))
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

// origins looks at what `deckhand config view` says.
func (v *shown) origins(t *testing.T) {
	t.Helper()
	text := v.says(t, "config", "view")
	for _, want := range []string{
		fmt.Sprintf("imageGCHighThresholdPercent: 90  # from %s:%d\n", v.ConfigFile(), lineOf(v.ConfigText(v.file.String()), "imageGCHighThresholdPercent")),
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
				t.Errorf("/%s for %q (local: %v) is %d, %s and doesn't have %q:\n%s", c.path, c.accept, local, status, kind, c.words, body)
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

// notes looks at what was logged at the start of what is set in vain or deprecated, and
// that a reload only adds what is new.
func (v *shown) notes(t *testing.T) {
	t.Helper()
	v.file["kubeAPIQPS"] = "77"
	v.configure(t, v.file, "applied")
	v.configure(t, v.file, "unchanged")
	log := v.Logged()
	for what, want := range map[string]int{
		`"A setting has no effect in this build" setting="eventRecordQPS, providerID: `: 1,
		`eventRecordQPS`: 1,
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

// withoutAgent looks at what `deckhand config` says while no agent runs.
func (v *shown) withoutAgent(t *testing.T) {
	t.Helper()
	if out, code := v.Deckhand("config", "view"); code == 0 || !strings.Contains(out, "config view --config FILE") {
		t.Errorf("without an agent, deckhand config view ended with %d and said %s", code, out)
	}
	out := v.says(t, "config", "view", "--config", v.ConfigFile(), "--config-dir", v.dir, "--max-pods", "33", "--manifest-url", "http://captain:hush-flag@host/")
	for _, want := range []string{"maxPods: 33  # from --max-pods\n", "imageMaximumGCAge: 24h0m0s  # from " + v.dir, "staticPodURL: http://captain:<masked>@host/  # from --manifest-url\n"} {
		if !strings.Contains(out, want) || strings.Contains(out, hush) {
			t.Errorf("what flags make isn't reported, or too much: no %q, or a secret, in\n%s", want, out)
		}
	}
	check := []string{"config", "check"}
	for i, bad := range v.badConfigs() {
		check = append(check, filepath.Join(v.Base, fmt.Sprintf("bad%d.yaml", i)))
		put(t, check[len(check)-1], bad.text)
	}
	if out, code := v.Deckhand(check...); code != 1 || strings.Contains(out, hush) || strings.Contains(out, ": fine") {
		t.Errorf("deckhand config check ended with %d, or lets something pass, or shows a secret: %s", code, out)
	}
	out, code := v.Deckhand("config", "view", "--manifest-url-header", "hush-header", "--manifest-url", "captain:hush@host", "--node-labels", "?")
	if code == 0 || !strings.Contains(out, "--manifest-url") || strings.Contains(out, hush) {
		t.Errorf("bad flags: it ended with %d, or showed a secret: %s", code, out)
	}
}
