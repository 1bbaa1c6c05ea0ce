package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const good = `apiVersion: v1
kind: Pod
metadata:
  name: web
  labels:
    app.kubernetes.io/name: web
spec:
  containers:
  - name: web
    image: web:1
    ports:
    - containerPort: 80
      hostPort: 8080
    resources:
      limits: {cpu: 0.5, memory: 64Mi}
`

// summary is a document as the tests write it down.
func summary(d Document) string {
	var b strings.Builder
	if d.Kind == "" {
		fmt.Fprintf(&b, "%d line %d name=%q pod=%t", d.Index, d.Line, d.Name, d.Pod != nil)
	} else {
		fmt.Fprintf(&b, "%d line %d %s=%q object=%t", d.Index, d.Line, d.Kind, d.Name, d.Object != nil)
	}
	for _, e := range d.Errors {
		b.WriteString("\n  " + e.Error())
	}
	return b.String()
}

func summaries(docs []Document) string {
	lines := make([]string, 0, len(docs))
	for _, d := range docs {
		lines = append(lines, summary(d))
	}
	return strings.Join(lines, "\n")
}

func pod(metadata, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: " + metadata + "\nspec:\n" + spec
}

type decodeCase struct{ name, text, want string }

var decodeCases = []decodeCase{
	{"empty", "", ""},
	{"blank", " \n\t\n", ""},
	{"comments and separators", "# a\n---\n# b\n--- # c\n...\n%YAML 1.2\n---\n", ""},
	{"one", good, `1 line 1 name="default/web" pod=true`},
	{"BOM", "\xEF\xBB\xBF" + good, `1 line 1 name="default/web" pod=true`},
	{"CRLF", strings.ReplaceAll(good, "\n", "\r\n"), `1 line 1 name="default/web" pod=true`},
	{"two, with comments before", "# hi\n\n" + good + "---\n" + strings.ReplaceAll(good, "name: web", "name: api"),
		"1 line 3 name=\"default/web\" pod=true\n2 line 19 name=\"default/api\" pod=true"},
	{"two with CRLF", strings.ReplaceAll(good+"---\n"+good, "\n", "\r\n"),
		"1 line 1 name=\"default/web\" pod=true\n2 line 17 name=\"default/web\" pod=true"},
	{"two with lone CR", strings.ReplaceAll(good+"---\n"+good, "\n", "\r"),
		"1 line 1 name=\"default/web\" pod=true\n2 line 17 name=\"default/web\" pod=true"},
	{"directive", "%YAML 1.1\n---\n" + good, `1 line 3 name="default/web" pod=true`},
	{"document end", good + "...\n" + good,
		"1 line 1 name=\"default/web\" pod=true\n2 line 17 name=\"default/web\" pod=true"},
	{"separator inside a block text", pod("{name: a}", "  containers:\n  - name: c\n    args:\n    - |\n      ---\n      x\n"),
		`1 line 1 name="default/a" pod=true`},
	{"JSON", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","annotations":{"x":"\ud83d\ude00"}}}`,
		`1 line 1 name="b/a" pod=true`},
	{"JSON stream", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"b\"}}",
		"1 line 1 name=\"default/a\" pod=true\n2 line 2 name=\"default/b\" pod=true"},
	{"flow YAML", `{apiVersion: v1, kind: Pod, metadata: {name: a}}`, `1 line 1 name="default/a" pod=true`},
	{"scalar", "hello", "1 line 1 name=\"\" pod=false\n  line 1: the document is a string, but must be an object, such as a Pod"},
	{"list at the top", "- a\n", "1 line 1 name=\"\" pod=false\n  line 1: the document is a list, but must be an object, such as a Pod"},
	{"no kind", "metadata: {name: a}\n", "1 line 1 name=\"default/a\" pod=false\n  line 1: kind: kind is missing: the manifest of a pod begins with \"apiVersion: v1\" and \"kind: Pod\""},
	{"other kind, others go on", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\n" + good,
		"1 line 1 name=\"default/d\" pod=false\n  line 2: kind: kind Deployment (apiVersion apps/v1) can't be used: " + supported + "\n2 line 5 name=\"default/web\" pod=true"},
	{"other version", "apiVersion: v2\nkind: Pod\n", "1 line 1 name=\"\" pod=false\n  line 1: apiVersion: apiVersion is v2, but must be v1 for a Pod"},
	{"unknown fields keep the pod", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  contianers: []\n  zzzqqq: 1\n",
		"1 line 1 name=\"default/a\" pod=true\n  line 5: spec.contianers: unknown field; did you mean \"containers\"?\n  line 6: spec.zzzqqq: unknown field"},
	{"wrong case is unknown", pod("{name: a}", "  hostnetwork: true\n"),
		"1 line 1 name=\"default/a\" pod=true\n  line 5: spec.hostnetwork: unknown field; did you mean \"hostNetwork\"?"},
	{"twice", pod("{name: a}", "  hostNetwork: true\n  hostPID: true\n  hostNetwork: false\n"),
		"1 line 1 name=\"default/a\" pod=true\n  line 7: spec.hostNetwork: is given twice (first on line 5)"},
	{"JSON twice and unknown", "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\n\"metadata\":{\"name\":\"a\",\n\"name\":\"b\"},\n\"spek\":{}}",
		"1 line 1 name=\"default/a\" pod=true\n  line 3: metadata.name: is given twice (first on line 2)\n  line 4: spek: unknown field; did you mean \"spec\"?"},
	{"all wrong types at once", pod("{name: a, labels: {num: 1}}", `  hostNetwork: "yes"
  containers:
  - name: 5
    env: {A: B}
    command: run
    ports: [{containerPort: http}, {containerPort: 99999999999}, {containerPort: 1.5}]
    resources: {limits: {cpu: lots, memory: [1]}}
  - justaword
`),
		`1 line 1 name="default/a" pod=false
  line 3: metadata.labels[num]: is a number ("1"), but must be a string: put it in quotes if that is the value meant
  line 5: spec.hostNetwork: is a string ("yes"), but must be true or false
  line 7: spec.containers[0].name: is a number ("5"), but must be a string: put it in quotes if that is the value meant
  line 8: spec.containers[0].env: is an object, but must be a list
  line 9: spec.containers[0].command: is a string ("run"), but must be a list
  line 10: spec.containers[0].ports[0].containerPort: is a string ("http"), but must be an integer
  line 10: spec.containers[0].ports[1].containerPort: "99999999999" is too large for this field (32 bits)
  line 10: spec.containers[0].ports[2].containerPort: "1.5" is not an integer
  line 11: spec.containers[0].resources.limits[cpu]: "lots" is not a valid quantity (such as "500m" or "64Mi"): quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
  line 11: spec.containers[0].resources.limits[memory]: a list is not a valid quantity (such as "500m" or "64Mi"): quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
  line 12: spec.containers[1]: is a string ("justaword"), but must be an object`},
	{"YAML 1.1 booleans are no strings", pod("{name: a, labels: {x: yes, on: y}}", "  hostNetwork: on\n"),
		`1 line 1 name="default/a" pod=false
  line 3: metadata.labels[x]: is a boolean (yes), but must be a string: put it in quotes if that is the value meant
  line 3: metadata.labels: the field's name on is a boolean (on): put it in quotes`},
	{"not a number", pod("{name: a}", "  priority: .nan\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 5: spec.priority: \".nan\" is not a number"},
	{"strange tag", pod("{name: a}", "  hostname: !mine x\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 5: spec.hostname: is of the YAML type !mine, but must be a string: put it in quotes if that is the value meant"},
	{"bad time", pod("{name: a, creationTimestamp: never}", "  hostname: x\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 3: metadata.creationTimestamp: \"never\" is not a valid time (such as \"2026-01-02T15:04:05Z\"): parsing time \"never\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"never\" as \"2006\""},
	{"object as a key", pod("{name: a}", "  ? {a: b}\n  : c\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 5: spec: a field's name is an object, but must be a string"},
	{"broken between good ones", good + "---\nkind: Pod\nmetadata:\n  labels:\n    name: wrong\n  name: torn\n  namespace: ns\nspec:\n  containers: [\n---\n" + good,
		"1 line 1 name=\"default/web\" pod=true\n2 line 17 name=\"ns/torn\" pod=false\n" +
			"  line 24: a value is expected here: is a bracket left open?\n3 line 26 name=\"default/web\" pod=true"},
	{"half-written JSON", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"torn","namespace":"ns"},"spec":{"cont`,
		"1 line 1 name=\"ns/torn\" pod=false\n  line 1: a quoted string that begins here isn't closed"},
	{"NUL", "apiVersion: v1\nkind: P\x00d\n", "1 line 1 name=\"\" pod=false\n  line 2: it holds a NUL byte: this is not a text file"},
	{"not UTF-8", "kind: Pod\nmetadata:\n  name: x\nspec: \xff\n", "1 line 1 name=\"default/x\" pod=false\n  line 4: it holds bytes that are not UTF-8 text"},
	{"UTF-16", "\xFF\xFEa\x00", "1 line 1 name=\"\" pod=false\n  line 1: the file is UTF-16: save it as UTF-8"},
	{"a tab", good + "---\nkind: Pod\nmetadata:\n\tname: x\n",
		"1 line 1 name=\"default/web\" pod=true\n2 line 17 name=\"default/x\" pod=false\n  line 19: indented with a tab, which YAML doesn't allow: use spaces"},
	{"unknown alias", "a: *b\n", "1 line 1 name=\"\" pod=false\n  line 1: a value that begins with \"*\" stands for another, and there is none of that name: put it in quotes if it is meant as a string"},
	{"merge", pod("{name: a}", "  containers:\n  - &c {name: a, image: i}\n  - {<<: *c, name: b}\n  - {<<: [{name: c}, *c]}\n"),
		`1 line 1 name="default/a" pod=true`},
	{"merge of a word", pod("{name: a}", "  <<: x\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 5: spec: \"<<\" wants an object to merge, but has a string (\"x\")"},
	{"merge that contains itself", pod("{name: a}", "  containers: &c\n  - &d {name: a, <<: *d}\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 6: spec.containers[0]: alias *d contains itself"},
	{"alias that contains itself", pod("{name: a}", "  containers: &c\n  - command: *c\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 6: spec.containers[0].command[0]: is an object, but must be a string"},
	{"managed fields that contain themselves", pod("{name: a, managedFields: [{fieldsV1: &f {a: *f}}]}", "  hostname: x\n"),
		"1 line 1 name=\"default/a\" pod=false\n  line 3: metadata.managedFields[0].fieldsV1.a.a: alias *f contains itself"},
	{"List", "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n  spec: {hostnam: x}\n- kind: Service\n  apiVersion: v1\n- word\n- {}\n",
		`1 line 5 name="default/a" pod=true
  line 8: spec.hostnam: unknown field; did you mean "hostname"?
2 line 9 Service="" object=true
3 line 11 name="" pod=false
  line 11: is a string, but must be an object, such as a Pod
4 line 12 name="" pod=false
  line 12: kind: kind is missing: the manifest of a pod begins with "apiVersion: v1" and "kind: Pod"`},
	{"PodList", "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n- {kind: Service}\n",
		`1 line 4 name="default/a" pod=true
2 line 5 name="default/b" pod=true
3 line 6 Service="" object=false
  line 6: apiVersion: apiVersion is missing, but must be v1 for a Service`},
	{"empty PodList", "apiVersion: v1\nkind: PodList\nitems: []\n", ""},
	{"List with mistakes", "apiVersion: v1\nkind: List\nitem: []\nitems: 5\nitems: []\n",
		"1 line 1 name=\"\" pod=false\n  line 3: item: unknown field; did you mean \"items\"?\n  line 4: items: is a number, but must be a list\n  line 5: items: is given twice (first on line 4)"},
}

func TestDecode(t *testing.T) {
	for _, tc := range append(slices.Clone(decodeCases), objectCases...) {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, summaries(Decode([]byte(tc.text)))); diff != "" {
				t.Errorf("wrong documents (-want +got):\n%s", diff)
			}
		})
	}
}

// The values a pod gets must be those Kubernetes reads from the same text.
func TestDecodeValues(t *testing.T) {
	docs := Decode([]byte(pod("{name: a, labels: {1: '2', d: 2001-01-01}}", `  hostNetwork: yes
  hostPID: Off
  terminationGracePeriodSeconds: 1e2
  containers:
  - &c
    name: c
    resources: {limits: {cpu: 0.5, memory: 1e9}}
    livenessProbe: {httpGet: {port: http}, periodSeconds: 0x10}
    readinessProbe: {tcpSocket: {port: 80}}
    stdin: null
  - {<<: *c, name: d}
  ephemeralContainers:
  - {<<: *c, name: e, targetContainerName: c}
  volumes:
  - {name: v, configMap: {defaultMode: 0644, items: [{mode: 0o600}]}}
`)))
	if len(docs) != 1 || docs[0].Pod == nil || len(docs[0].Errors) > 0 {
		t.Fatalf("want one pod without errors, got:\n%s", summaries(docs))
	}
	p := docs[0].Pod
	c := p.Spec.Containers[0]
	got := []any{
		p.Kind, p.APIVersion, p.Labels["1"], p.Labels["d"], p.Spec.HostNetwork, p.Spec.HostPID, *p.Spec.TerminationGracePeriodSeconds,
		c.Resources.Limits.Cpu().String(), c.Resources.Limits.Memory().String(),
		c.LivenessProbe.HTTPGet.Port.String(), c.LivenessProbe.PeriodSeconds, c.ReadinessProbe.TCPSocket.Port.IntValue(),
		*p.Spec.Volumes[0].ConfigMap.DefaultMode, *p.Spec.Volumes[0].ConfigMap.Items[0].Mode,
		p.Spec.Containers[1].Name, p.Spec.Containers[1].LivenessProbe.PeriodSeconds,
		p.Spec.EphemeralContainers[0].Name, p.Spec.EphemeralContainers[0].TargetContainerName, p.Spec.EphemeralContainers[0].LivenessProbe.PeriodSeconds,
		p.Spec.RestartPolicy,
	}
	want := []any{
		"Pod", "v1", "2", "2001-01-01", true, false, int64(100), "500m", "1G", "http", int32(16), 80,
		int32(0o644), int32(0o600), "d", int32(16), "e", "c", int32(16), v1.RestartPolicy(""),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong values (-want +got):\n%s", diff)
	}
}

func TestLineOf(t *testing.T) {
	yamlText := "# first\n" + good
	jsonText := "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\n\"metadata\":{\n\"name\":\"web\",\"labels\":{\n\"app.kubernetes.io/name\":\"web\"}},\n\"spec\":{\n\"containers\":[{\n\"name\":\"web\",\"image\":\"x\",\n\"ports\":[{\n\"containerPort\":80,\n\"hostPort\":8080}]}]}}"
	for _, tc := range []struct {
		path       string
		yaml, json int
	}{
		{"", 2, 1},
		{"kind", 3, 1},
		{"metadata", 4, 2},
		{"metadata.name", 5, 3},
		{"metadata.namespace", 4, 2},
		{"metadata.labels[app.kubernetes.io/name]", 7, 4},
		{"metadata.labels[other]", 6, 3},
		{"spec.containers[0]", 10, 6},
		{"spec.containers[0].ports[0].hostPort", 14, 10},
		{"spec.containers[0].ports[0].hostIP", 13, 8},
		{"spec.containers[0].ports[7].hostIP", 12, 8},
		{"spec.containers[x", 9, 6},
		{"spec.containers.image", 9, 6},
		{"status", 2, 1},
		{"[", 2, 1},
		{"...", 2, 1},
	} {
		if got := Decode([]byte(yamlText))[0].LineOf(tc.path); got != tc.yaml {
			t.Errorf("YAML: LineOf(%q) = %d, want %d", tc.path, got, tc.yaml)
		}
		if got := Decode([]byte(jsonText))[0].LineOf(tc.path); got != tc.json {
			t.Errorf("JSON: LineOf(%q) = %d, want %d", tc.path, got, tc.json)
		}
	}
	second := Decode([]byte("a: [\n---\n" + good + "---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {}\n"))
	if got := second[0].LineOf("spec"); got != 1 {
		t.Errorf("in a broken document LineOf = %d, want its first line, 1", got)
	}
	if got := second[1].LineOf("metadata.name"); got != 6 {
		t.Errorf("in the second document LineOf = %d, want 6", got)
	}
	if got := second[2].LineOf("metadata.name"); got != 24 {
		t.Errorf("in a List's item LineOf = %d, want 24", got)
	}
}

// hostile texts are small, and would take much memory or never end if followed
// blindly. The latter runs into go test's own time limit.
func hostile() map[string]string {
	laughs := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: bomb\n  managedFields:\n  - fieldsV1:\n      a0: &a0 [lol]\n"
	for i := 1; i < 30; i++ {
		laughs += fmt.Sprintf("      a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	merges := pod("{name: bomb}", "  nodeSelector: &m0 {k: v}\n")
	for i := 1; i < 30; i++ {
		merges += fmt.Sprintf("  x%d: &m%d {<<: [%s*m%d]}\n", i, i, strings.Repeat(fmt.Sprintf("*m%d,", i-1), 9), i-1)
	}
	return map[string]string{
		"billion laughs":   laughs,
		"long text often":  pod("{name: bomb}", "  hostname: &h "+strings.Repeat("x", 1<<20)+"\n  x: &l ["+strings.Repeat("*h,", 2000)+"]\n  imagePullSecrets: [{name: *h}"+strings.Repeat(",{name: *h}", 2000)+"]\n"),
		"merges of merges": merges + "  containers: [{<<: *m29}]\n",
		"deep flow":        strings.Repeat("[", 200_000),
		"deep JSON":        strings.Repeat(`{"a":`, 200_000),
		"deep closed JSON": strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000),
		"deep in a pod":    pod("{name: a, managedFields: [{fieldsV1: "+strings.Repeat("{a: ", 500)+"1"+strings.Repeat("}", 500)+"}]}", "  hostname: x\n"),
		"deep block":       strings.Repeat("- ", 100_000) + "a",
		"many elements":    "[" + strings.Repeat("a,", 3<<20) + "]",
		"many lines":       strings.Repeat("a\n", 3<<20),
		"many documents":   strings.Repeat("---\na\n", 1<<20),
		"many items":       "apiVersion: v1\nkind: List\nitems: [" + strings.Repeat("{},", 300_000) + "]",
		"many errors":      pod("{name: a}", "  hostnam: 1\n"+strings.Repeat("  hostnam: 1\n", 100_000)),
		"huge exponent":    pod("{name: a}", "  overhead: {cpu: 1e999999999, memory: '1e-999999999', a: 1e99999999999999999999, b: 9e9999999E}\n"),
		"long number":      pod("{name: a}", "  overhead: {cpu: '"+strings.Repeat("9", 1<<20)+"'}\n"),
		"long key often":   pod("{name: bomb}", "  hostname: &k "+strings.Repeat("x", 1<<20)+"\n  containers: ["+strings.Repeat("{resources: {limits: {*k : 1}}},", 2000)+"]\n"),
		"long path often":  `{"apiVersion": "v1", "kind": "Pod", "wrong": 1, "metadata": {"name": "bomb", "managedFields": [{"fieldsV1": {"` + strings.Repeat("x", 1<<20) + `": [1` + strings.Repeat(",1", 10_000) + `]}}]}}`,
		"long pod often":   "apiVersion: v1\nkind: List\nitems:\n- &p {apiVersion: v1, kind: Pod, metadata: {name: bomb, annotations: {a: " + strings.Repeat("x", 1<<20) + "}}}\n" + strings.Repeat("- *p\n", 2000),
		"garbage":          strings.Repeat("\x01\x02}{][%&*!\n", 100_000),
	}
}

func TestHostileTextIsCheap(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			docs := Decode([]byte(text))
			runtime.ReadMemStats(&after)
			if len(docs) == 0 || len(docs[len(docs)-1].Errors) == 0 {
				t.Errorf("it was read without an error")
			}
			if len(docs) > maxDocuments+1 {
				t.Errorf("%d documents", len(docs))
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 1000 {
				t.Errorf("it took %d MiB", used)
			}
		})
	}
}

func TestErrorsAreCapped(t *testing.T) {
	doc := Decode([]byte(hostile()["many errors"]))[0]
	if len(doc.Errors) != maxErrors+1 {
		t.Fatalf("%d errors, want %d", len(doc.Errors), maxErrors+1)
	}
	for _, e := range doc.Errors {
		if strings.Contains(e.Message, "there is more wrong") {
			return
		}
	}
	t.Error("no error says that there are more")
}

// What kubectl and Helm write must be readable: a full pod from an API server.
func TestDecodeDirectory(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.IsDir() {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range Decode(data) {
			if d.Pod == nil && d.Object == nil || len(d.Errors) > 0 {
				t.Errorf("%s: %s", f, summary(d))
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, tc := range append(slices.Clone(decodeCases), objectCases...) {
		f.Add([]byte(tc.text))
	}
	for _, text := range hostile() {
		if len(text) < 1<<16 {
			f.Add([]byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for i, d := range Decode(data) {
			if d.Index != i+1 {
				t.Errorf("document %d has index %d", i+1, d.Index)
			}
			if d.Pod == nil && d.Object == nil && len(d.Errors) == 0 {
				t.Error("neither a pod, nor an object, nor an error")
			}
			if d.Line < 1 {
				t.Errorf("document %d begins on line %d", i+1, d.Line)
			}
			for _, e := range d.Errors {
				if e.Message == "" || e.Error() == "" {
					t.Errorf("an error without words: %#v", e)
				}
			}
			d.LineOf("spec.containers[0].ports[1].hostPort")
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if docs := Decode([]byte(good)); docs[0].Pod == nil {
			b.Fatal(docs[0].Errors)
		}
	}
}
