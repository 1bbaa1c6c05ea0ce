package document_test

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/paths"
)

// kubeadm is a file as kubeadm writes it.
const kubeadm = head + `authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
containerRuntimeEndpoint: ""
crashLoopBackOff: {}
imageMaximumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json: {infoBufferSize: "0"}
  verbosity: 0
memorySwap: {}
registerWithTaints:
- {key: node-role.kubernetes.io/control-plane, effect: NoSchedule}
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
`

// FuzzLayers reads any bytes as a file and as a drop-in to it. Where both are
// good, the result must be that of a JSON merge patch.
func FuzzLayers(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data, []byte(head+"maxPods: 3\n"))
	}
	f.Add([]byte(head+"evictionHard: {a: \"1\", b: null}\ntracing: {}\nregisterWithTaints: [{key: a}, null]\n"),
		[]byte(head+"evictionHard: {a: null, c: \"1\"}\ntracing: {endpoint: x}\nlogging: null\n"))
	f.Add([]byte(head+"logging: {verbosity: 1, options: {text: {infoBufferSize: 1k}}}\nclusterDNS: [a, b]\n"),
		[]byte(head+"logging: {options: {text: {splitStream: yes}}}\nclusterDNS: []\n"))
	f.Add([]byte(kubeadm), []byte(head+"evictionHard: {memory.available: 5%}\nauthentication: {webhook: {enabled: false}}\n"))
	f.Add([]byte(head+"clusterDNS: &l [a]\nallowedUnsafeSysctls: *l\n"), []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":1e2,"resolvConf":"\/"}`))
	f.Fuzz(func(t *testing.T, base, dropIn []byte) {
		low, lowErrs := document.Decode(base)
		high, highErrs := document.Decode(dropIn)
		for _, e := range lowErrs {
			checkPlace(t, e, base)
		}
		for _, e := range highErrs {
			checkPlace(t, e, dropIn)
		}
		m := document.NewMerged()
		m.Lay(document.File, "base", low)
		m.Lay(document.DropIn, "drop-in", high)
		checkOrigins(t, m, low, high)
		if len(lowErrs)+len(highErrs) > 0 || strings.Contains(string(base)+string(dropIn), "!") {
			return // the common reader makes other things of explicit tags
		}
		want, ok := patched(t, base, dropIn)
		if diff := cmp.Diff(want, m.Config()); ok && diff != "" {
			t.Errorf("(-merge patch +Lay):\n%s", diff)
		}
	})
}

// lineBreak is what ends a line in YAML 1.1.
var lineBreak = regexp.MustCompile("\r\n|\r|\n|\u0085|\u2028|\u2029")

func checkPlace(t *testing.T, e document.Error, text []byte) {
	if lines := len(lineBreak.FindAll(text, -1)) + 1; e.Message == "" || e.Line < 0 || e.Line > lines {
		t.Fatalf("an error nobody can act on, in %d lines: %#v", lines, e)
	}
	if e.Path == "" && e.Line == 0 && !strings.HasPrefix(e.Message, "it ") {
		t.Fatalf("an error without a place: %#v", e)
	}
}

// checkOrigins makes sure that every setting that says something is known to come
// from one of the layers that give it.
func checkOrigins(t *testing.T, m *document.Merged, low, high *document.Document) {
	for path, value := range paths.Leaves(m.Config()) {
		name := m.Origin(path).Name
		if name == "base" && !low.Given(path) || name == "drop-in" && !high.Given(path) {
			t.Fatalf("%s is from %s, which doesn't give it", path, name)
		}
		if text, ok := value.(string); ok && text != "" && name == "" {
			t.Fatalf("%s is %q, from nowhere", path, text)
		}
	}
}

// patched merges as RFC 7386 says, with the common reader. A null counts as not
// given everywhere but as an element of a list. False if that reader doesn't
// read the texts, or not the same way as JSON is read.
func patched(t *testing.T, base, dropIn []byte) (*v1beta1.KubeletConfiguration, bool) {
	low, errLow := plain(base)
	high, errHigh := plain(dropIn)
	if err := errors.Join(errLow, errHigh); err != nil {
		t.Logf("the common reader: %v", err)
		return nil, false
	}
	text, err := json.Marshal(patch(patch(map[string]any{}, low), high))
	if err != nil {
		t.Fatal(err)
	}
	var c v1beta1.KubeletConfiguration
	if strict, err := kjson.UnmarshalStrict(text, &c); len(strict) > 0 || err != nil {
		t.Logf("the common reader: %v %v", strict, err)
		return nil, false
	}
	return &c, true
}

// plain is a file without types, but with numbers as exact as they are written.
func plain(text []byte) (value map[string]any, err error) {
	text, err = yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	return value, kjson.UnmarshalCaseSensitivePreserveInts(text, &value)
}

func patch(over, with any) any {
	switch with := with.(type) {
	case []any:
		list := make([]any, len(with))
		for i, item := range with {
			list[i] = patch(nil, item)
		}
		return list
	case map[string]any:
		merged := map[string]any{}
		if under, ok := over.(map[string]any); ok {
			maps.Copy(merged, under)
		}
		for name, value := range with {
			if value == nil {
				delete(merged, name)
				continue
			}
			merged[name] = patch(merged[name], value)
		}
		return merged
	}
	return with
}
