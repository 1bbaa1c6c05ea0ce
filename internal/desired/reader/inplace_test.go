package reader_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod/manifest"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

var rules = reader.EditRules{SetDefaults: spec.SetDefaults, QOSClass: spec.QOSClass}

// base is a pod with something of everything that edits are about.
const base = `apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  labels: {app: web}
  annotations: {note: hello}
spec:
  nodeSelector: {disk: ssd}
  initContainers:
  - name: prepare
    image: prepare:1
    resources: {requests: {cpu: 10m}, limits: {memory: 10Mi}}
  - name: proxy
    image: proxy:1
    restartPolicy: Always
    resources: {requests: {cpu: 20m, memory: 20Mi}}
  containers:
  - name: main
    image: app:1
    args: [serve, --port=8080]
    env: [{name: MODE, value: production}]
    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
    resources:
      requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 1Gi}
      limits: {memory: 128Mi, ephemeral-storage: 2Gi}
  - name: helper
    image: helper:1
  ephemeralContainers:
  - name: debug
    image: debug:1
    targetContainerName: main
`

func read(t *testing.T, text string) *v1.Pod {
	t.Helper()
	docs := manifest.Decode([]byte(text))
	if len(docs) != 1 || docs[0].Pod == nil || len(docs[0].Errors) > 0 {
		t.Fatalf("the manifest can't be read: %+v\n%s", docs, text)
	}
	return docs[0].Pod
}

// check edits text: replacements are pairs of old and new. why is what stands in
// the way of applying it in place, or empty.
func check(t *testing.T, text, why string, replacements ...string) {
	t.Helper()
	edited := text
	for i := 0; i < len(replacements); i += 2 {
		if strings.Count(edited, replacements[i]) != 1 {
			t.Fatalf("%q isn't there once in\n%s", replacements[i], edited)
		}
		edited = strings.Replace(edited, replacements[i], replacements[i+1], 1)
	}
	old, new := read(t, text), read(t, edited)
	oldCopy, newCopy := old.DeepCopy(), new.DeepCopy()
	ok, got := reader.InPlace(old, new, rules)
	if got != why || ok != (why == "") {
		t.Errorf("in place: %v, why %q, want %q", ok, got, why)
	}
	if !equality.Semantic.DeepEqual(old, oldCopy) || !equality.Semantic.DeepEqual(new, newCopy) {
		t.Error("a pod was changed")
	}
}

func TestInPlace(t *testing.T) {
	tests := map[string][]string{
		"nothing":                       {},
		"a label":                       {"{app: web}", "{app: web, tier: front}"},
		"no labels":                     {"  labels: {app: web}\n", ""},
		"an annotation":                 {"hello", "bye"},
		"an image":                      {"app:1", "app:2"},
		"an image and its pull policy":  {"app:1", "app:latest"},
		"a digest":                      {"app:1", "app@sha256:" + strings.Repeat("a", 64)},
		"a sidecar's image":             {"proxy:1", "proxy:2"},
		"an init container's image":     {"prepare:1", "prepare:2"},
		"a default that is written out": {"image: helper:1", "image: helper:1\n    imagePullPolicy: IfNotPresent\n    resources: {}"},
		"a pod's default":               {"spec:\n  node", "spec:\n  restartPolicy: Always\n  dnsPolicy: ClusterFirst\n  node"},
		"the order of labels' keys":     {"{app: web}", "{\"app\": \"web\"}"},
		"the same amount":               {"memory: 64Mi", "memory: 65536Ki"},
		"a CPU request":                 {"cpu: 100m", "cpu: 1"},
		"a memory limit, up":            {"memory: 128Mi", "memory: 1Gi"},
		"a memory limit, down":          {"memory: 128Mi", "memory: 64Mi"},
		"a limit that is new":           {"limits: {memory: 128Mi", "limits: {cpu: 1, memory: 128Mi"},
		"resources where none were":     {"image: helper:1", "image: helper:1\n    resources: {requests: {cpu: 1}}"},
		"a request that a limit gives":  {"cpu: 100m, memory: 64Mi", "cpu: 100m"},
		"a sidecar's resources":         {"cpu: 20m", "cpu: 200m"},
		"an ephemeral container":        {"  ephemeralContainers:\n", "  ephemeralContainers:\n  - {name: shell, image: shell}\n"},
		"the pod's resources, new":      {"spec:\n  node", "spec:\n  resources: {requests: {cpu: 2}}\n  node"},
		"all of it at once":             {"hello", "bye", "app:1", "app:2", "cpu: 100m", "cpu: 1", "  - name: debug", "  - {name: shell, image: shell}\n  - name: debug"},
	}
	for name, replacements := range tests {
		t.Run(name, func(t *testing.T) { check(t, base, "", replacements...) })
	}
}

func TestAnotherPod(t *testing.T) {
	const c0, i0 = "spec.containers[0]", "spec.initContainers[0]"
	tests := map[string][]string{ // why first
		"the name":                  {"metadata.name changed", "name: web", "name: site"},
		"the namespace":             {"metadata.namespace changed", "namespace: shop", "namespace: other"},
		"a UID":                     {"metadata.uid changed", "  name: web\n", "  name: web\n  uid: u\n"},
		"finalizers":                {"metadata.finalizers was added", "  name: web\n", "  name: web\n  finalizers: [a/b]\n"},
		"an argument":               {c0 + ".args[1] changed", "8080", "9090"},
		"one argument less":         {c0 + ".args[1] was removed", "serve, --port=8080", "serve"},
		"a command":                 {c0 + ".command was added", "    args:", "    command: [x]\n    args:"},
		"a variable":                {c0 + ".env[0].value changed", "production", "test"},
		"a resize policy":           {c0 + ".resizePolicy[0].restartPolicy changed", "RestartContainer", "NotRequired"},
		"a probe":                   {c0 + ".livenessProbe was added", "    args:", "    livenessProbe: {tcpSocket: {port: 80}}\n    args:"},
		"a pull policy":             {c0 + ".imagePullPolicy changed", "    args:", "    imagePullPolicy: Always\n    args:"},
		"a pull policy with image":  {c0 + ".imagePullPolicy changed", "app:1", "app:2\n    imagePullPolicy: Never"},
		"a container's name":        {"spec.containers[1].name changed", "name: helper", "name: helpless"},
		"one container less":        {"spec.containers[1] was removed", "  - name: helper\n    image: helper:1\n", ""},
		"one container more":        {"spec.containers[2] was added", "  - name: helper\n", "  - {name: more, image: more}\n  - name: helper\n", "  - {name: more, image: more}\n  - name: helper\n    image: helper:1\n", "  - name: helper\n    image: helper:1\n  - {name: more, image: more}\n"},
		"an init container's CPU":   {i0 + ".resources.requests[cpu] changed", "cpu: 10m", "cpu: 11m"},
		"becoming a sidecar":        {i0 + ".restartPolicy was added", "image: prepare:1", "image: prepare:1\n    restartPolicy: Always"},
		"storage":                   {c0 + ".resources.limits[ephemeral-storage] changed", "ephemeral-storage: 2Gi", "ephemeral-storage: 3Gi"},
		"a device":                  {c0 + ".resources.limits[example.com/gpu] was added", "limits: {memory: 128Mi", "limits: {example.com/gpu: 1, memory: 128Mi"},
		"a memory limit taken away": {c0 + ".resources.limits[memory] was removed", "limits: {memory: 128Mi, ", "limits: {"},
		"a CPU request taken away":  {c0 + ".resources.requests[cpu] was removed", "cpu: 100m, ", ""},
		"an ephemeral container's":  {"spec.ephemeralContainers[0].image changed", "debug:1", "debug:2"},
		"no ephemeral container":    {"spec.ephemeralContainers was removed", "  ephemeralContainers:\n  - name: debug\n    image: debug:1\n    targetContainerName: main\n", ""},
		"another ephemeral one":     {"spec.ephemeralContainers[1] was removed", "name: debug", "name: shell"},
		"a selector":                {"spec.nodeSelector[disk] changed", "ssd", "hdd"},
		"another selector":          {"spec.nodeSelector[disk] was removed", "disk: ssd", "zone: a"},
		"the grace":                 {"spec.terminationGracePeriodSeconds changed", "spec:\n  node", "spec:\n  terminationGracePeriodSeconds: 1\n  node"},
		"a volume":                  {"spec.volumes was added", "spec:\n  node", "spec:\n  volumes: [{name: v, emptyDir: {}}]\n  node"},
		"the pod's huge pages":      {"spec.resources.limits[hugepages-2Mi] was added", "spec:\n  node", "spec:\n  resources: {limits: {hugepages-2Mi: 2Mi, memory: 1Gi, cpu: 1}}\n  node"},
		"the operating system":      {"spec.os was added", "spec:\n  node", "spec:\n  os: {name: linux}\n  node"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			check(t, base, test[0], test[1:]...)
		})
	}
}

func small(spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: " + spec
}

func TestQOSClassStays(t *testing.T) {
	one := func(r string) string {
		return small("{containers: [{name: main, image: app, resources: {" + r + "}}]}")
	}
	for name, test := range map[string]struct{ from, to, why string }{
		"guaranteed, larger":         {one("limits: {cpu: 1, memory: 1Gi}"), one("limits: {cpu: 2, memory: 2Gi}"), ""},
		"guaranteed, request lower":  {one("limits: {cpu: 1, memory: 1Gi}"), one("limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}"), "spec.containers[0].resources.requests[cpu] changed, which would change the pod's QoS class from Guaranteed to Burstable"},
		"burstable to guaranteed":    {one("limits: {cpu: 1}"), one("limits: {cpu: 1, memory: 1Gi}"), "spec.containers[0].resources.limits[memory] was added, which would change the pod's QoS class from Burstable to Guaranteed"},
		"best effort to burstable":   {one(""), one("requests: {cpu: 1}"), "spec.containers[0].resources.requests[cpu] was added, which would change the pod's QoS class from BestEffort to Burstable"},
		"nothing, and zero":          {one(""), one("requests: {cpu: 0}"), ""},
		"the pod's own, larger":      {small("{resources: {limits: {cpu: 1}}, containers: [{name: main, image: app}]}"), small("{resources: {limits: {cpu: 2}}, containers: [{name: main, image: app}]}"), ""},
		"the pod's own, new class":   {small("{resources: {limits: {cpu: 1}}, containers: [{name: main, image: app}]}"), small("{resources: {limits: {cpu: 1, memory: 1Gi}}, containers: [{name: main, image: app}]}"), "spec.resources.limits[memory] was added, which would change the pod's QoS class from Burstable to Guaranteed"},
		"the pod's own, taken away":  {small("{resources: {limits: {cpu: 1}}, containers: [{name: main, image: app}]}"), small("{containers: [{name: main, image: app}]}"), "spec.resources.limits[cpu] was removed"},
		"on Windows, no resizing":    {small("{os: {name: windows}, containers: [{name: main, image: app, resources: {limits: {cpu: 1}}}]}"), small("{os: {name: windows}, containers: [{name: main, image: app, resources: {limits: {cpu: 2}}}]}"), "spec.containers[0].resources.limits[cpu] changed"},
		"on Windows, the pod's own":  {small("{os: {name: windows}, resources: {limits: {cpu: 1}}, containers: [{name: main, image: app}]}"), small("{os: {name: windows}, resources: {limits: {cpu: 2}}, containers: [{name: main, image: app}]}"), "spec.resources.limits[cpu] changed"},
		"on Windows, another image":  {small("{os: {name: windows}, containers: [{name: main, image: app}]}"), small("{os: {name: windows}, containers: [{name: main, image: app:2}]}"), ""},
		"claims of devices are kept": {one("claims: [{name: a}]"), one("claims: [{name: b}]"), "spec.containers[0].resources.claims[0].name changed"},
	} {
		t.Run(name, func(t *testing.T) {
			ok, why := reader.InPlace(read(t, test.from), read(t, test.to), rules)
			if ok != (test.why == "") || why != test.why {
				t.Errorf("in place: %v, why %q, want %q", ok, why, test.why)
			}
		})
	}
}
