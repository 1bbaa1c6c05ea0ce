package paths_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config/configtest"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/paths"
)

const file = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodURL: https://me:hunter2@host/pods?token=hunter2
staticPodURLHeader:
  Authorization: [Bearer hunter2, x]
  X-Key: []
readOnlyPort: 0
registerWithTaints:
- key: a
  effect: NoSchedule
clusterDNS: [10.0.0.10, "fd00::10"]
enforceNodeAllocatable: []
evictionHard:
  memory.available: 5%
evictionSoft: {}
failSwapOn: no
clusterDomain: "yes"
providerID: "a\nb\e[2J\u202e#"
memorySwap: {}
tracing: {}
logging: {flushFrequency: 5000000000, options: {json: {infoBufferSize: 1024Mi}}}
reservedMemory:
- limits: {memory: 1024Mi}
  numaNode: 0
syncFrequency: 90s
`

func decode(t *testing.T, text []byte) *document.Document {
	t.Helper()
	doc, errs := document.Decode(text)
	if len(errs) > 0 {
		t.Fatalf("%v in:\n%s", errs, text)
	}
	return doc
}

// A person sees each setting with where it comes from, and nothing secret.
func TestYAML(t *testing.T) {
	doc := decode(t, []byte(file))
	m := document.NewMerged()
	m.Lay(document.File, "/k.yaml", doc)
	got := paths.YAML(paths.Masked(m.Config()), func(path string) string {
		if !m.Given(path) {
			return ""
		}
		return m.Origin(path).String()
	})
	const want = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
syncFrequency: 1m30s  # from /k.yaml:25
fileCheckFrequency: 0s
httpCheckFrequency: 0s
staticPodURL: https://me:<masked>@host/pods?token=<masked>  # from /k.yaml:3
staticPodURLHeader:
  Authorization:  # from /k.yaml:5
  - <masked>
  X-Key:  # from /k.yaml:6
  - <masked>
readOnlyPort: 0  # from /k.yaml:7
authentication:
  webhook:
    cacheTTL: 0s
authorization:
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
clusterDomain: "yes"  # from /k.yaml:17
clusterDNS:  # from /k.yaml:11
- 10.0.0.10
- fd00::10
`
	if text := string(got); !strings.HasPrefix(text, want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, text[:min(len(want), len(text))]))
	}
	for _, want := range []string{
		"evictionHard:\n  memory.available: 5%  # from /k.yaml:14\nevictionSoft: {}  # from /k.yaml:15\n",
		"failSwapOn: false  # from /k.yaml:16\n",
		"enforceNodeAllocatable: []  # from /k.yaml:12\n",
		`providerID: "a\nb\e[2J\u202e#"  # from /k.yaml:18` + "\n",
		"logging:\n  flushFrequency: 5s  # from /k.yaml:21\n  verbosity: 0\n  options:\n    text:\n      infoBufferSize: \"0\"\n    json:\n      infoBufferSize: 1Gi  # from /k.yaml:21\n",
		"reservedMemory:  # from /k.yaml:22\n- numaNode: 0\n  limits:\n    memory: 1Gi\n",
		"registerWithTaints:  # from /k.yaml:8\n- key: a\n  effect: NoSchedule\n",
		"tracing: {}  # from /k.yaml:20\ncontainerRuntimeEndpoint: \"\"\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("nothing says\n%s", want)
		}
	}
	for _, none := range []string{"hunter2", "memorySwap", "maxPods", "\x1b", "\u202e"} {
		if strings.Contains(string(got), none) {
			t.Errorf("it says %q", none)
		}
	}
	decode(t, got)
	if t.Failed() {
		t.Logf("the whole:\n%s", got)
	}
}

func TestNotesStayOnTheirLine(t *testing.T) {
	c := &v1beta1.KubeletConfiguration{MaxPods: 3}
	got := string(paths.YAML(c, func(path string) string {
		if path == "maxPods" {
			return "/a\nport: 4\x1b[2J"
		}
		return ""
	}))
	if want := "maxPods: 3  # from /a port: 4\ufffd[2J\n"; !strings.Contains(got, want) {
		t.Errorf("nothing says %q in:\n%s", want, got)
	}
}

func TestJSON(t *testing.T) {
	got := paths.JSON(paths.Masked(&decode(t, []byte(file)).Config))
	var fields map[string]any
	if err := json.Unmarshal(got, &fields); err != nil {
		t.Fatalf("%v in:\n%s", err, got)
	}
	for field, want := range map[string]any{
		"staticPodURLHeader":     map[string]any{"Authorization": []any{"<masked>"}, "X-Key": []any{"<masked>"}},
		"enforceNodeAllocatable": []any{}, "evictionSoft": map[string]any{}, "syncFrequency": "1m30s", "failSwapOn": false,
		"providerID": "a\nb\x1b[2J\u202e#",
	} {
		if diff := cmp.Diff(want, fields[field]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
	for _, want := range []string{"{\n  \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n  \"kind\": \"KubeletConfiguration\",\n", "me:<masked>@host", `\u202e`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("nothing says %q in:\n%s", want, got)
		}
	}
}

// What is written is read again as what it was, by this program and by the common
// reader of this API, whatever the values are.
func TestWrittenIsReadAgain(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := configtest.Draw(r, "config")
		noted := rapid.Bool().Draw(r, "noted")
		note := func(path string) string {
			if noted {
				return path
			}
			return ""
		}
		readAgain(r, c, paths.YAML(c, note), func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) })
		readAgain(r, c, paths.JSON(c), json.Unmarshal)
	})
}

func readAgain(r *rapid.T, c *v1beta1.KubeletConfiguration, text []byte, common func([]byte, any) error) {
	doc, errs := document.Decode(text)
	if len(errs) > 0 {
		r.Fatalf("%v in:\n%s", errs, text)
	}
	if diff := cmp.Diff(c, &doc.Config); diff != "" {
		r.Fatalf("(-written +read):\n%s\n%s", diff, text)
	}
	var got v1beta1.KubeletConfiguration
	if err := common(text, &got); err != nil {
		r.Fatalf("the common reader says %v of:\n%s", err, text)
	}
	if diff := cmp.Diff(c, &got); diff != "" {
		r.Fatalf("(-written +read by the common reader):\n%s\n%s", diff, text)
	}
}

func TestMasked(t *testing.T) {
	for url, want := range map[string]string{
		"":                                 "",
		"/var/lib":                         "/var/lib",
		"unix:///run/containerd.sock":      "unix:///run/containerd.sock",
		"https://host:1/a@b?":              "https://host:1/a@b?",
		"https://me:hunter2@host:1/a":      "https://me:<masked>@host:1/a",
		"https://hunter2@host/a":           "https://<masked>@host/a",
		"https://:hunter2@host/a":          "https://:<masked>@host/a",
		"https://me:hun@ter2@host/":        "https://me:<masked>@host/",
		"https://me:hunter2/x@host/a":      "https://me:<masked>@host/a",
		"https://me:hunter2%zz@host/a#b":   "https://me:<masked>@host/a#b",
		"https://host?X-Sig=hunter2&v=1#f": "https://host?X-Sig=<masked>&v=<masked>#f",
		"https://host?hunter2":             "https://host?<masked>",
		"dns://me:hunter2@host":            "dns://me:<masked>@host",
	} {
		c := &v1beta1.KubeletConfiguration{StaticPodURL: url, ClusterDNS: []string{url}, SystemReserved: map[string]string{"a": url}}
		m := paths.Masked(c)
		if m.StaticPodURL != want || m.ClusterDNS[0] != want || m.SystemReserved["a"] != want {
			t.Errorf("%q is shown as %q, %q and %q, want %q", url, m.StaticPodURL, m.ClusterDNS[0], m.SystemReserved["a"], want)
		}
		if c.StaticPodURL != url || c.ClusterDNS[0] != url || c.SystemReserved["a"] != url {
			t.Errorf("%q itself was changed", url)
		}
	}
	c := &v1beta1.KubeletConfiguration{StaticPodURLHeader: map[string][]string{"A": {"hunter2", "x"}}}
	if m := paths.Masked(c); len(m.StaticPodURLHeader["A"]) != 1 || m.StaticPodURLHeader["A"][0] != "<masked>" || c.StaticPodURLHeader["A"][0] != "hunter2" {
		t.Errorf("the headers are shown as %v, and are %v", m.StaticPodURLHeader, c.StaticPodURLHeader)
	}
}

func TestMaskedChangesNothingElse(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := configtest.Draw(r, "config")
		for _, path := range paths.Diff(c, paths.Masked(c)) {
			if !strings.HasPrefix(path, "staticPodURLHeader[") {
				r.Fatalf("%s is masked", path)
			}
		}
	})
}
