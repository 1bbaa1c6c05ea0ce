package document_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/config/document"
)

// lay merges files, the first as the file and the others as drop-ins.
func lay(t *testing.T, texts ...string) *document.Merged {
	t.Helper()
	m := document.NewMerged()
	for i, text := range texts {
		kind, name := document.File, "/c.yaml"
		if i > 0 {
			kind, name = document.DropIn, "/c.d/"+string(rune('0'+i))+".conf"
		}
		m.Lay(kind, name, decode(t, head+text))
	}
	return m
}

// The documentation's examples, and what follows from them:
// https://kubernetes.io/docs/reference/node/kubelet-config-directory-merging/
func TestLay(t *testing.T) {
	for name, test := range map[string]struct{ base, dropIn, want string }{
		"structs": {
			"port: 20250\nauthorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 5m, cacheUnauthorizedTTL: 30s}}\nserializeImagePulls: false\naddress: 192.168.0.1\n",
			"authorization: {mode: AlwaysAllow, webhook: {cacheAuthorizedTTL: 8m}}\naddress: 192.168.0.8\n",
			"port: 20250\nauthorization: {mode: AlwaysAllow, webhook: {cacheAuthorizedTTL: 8m, cacheUnauthorizedTTL: 30s}}\nserializeImagePulls: false\naddress: 192.168.0.8\n",
		},
		"lists": {
			"clusterDNS: [192.168.0.9, 192.168.0.8]\nport: 1\n",
			"clusterDNS: [192.168.0.2]\n",
			"clusterDNS: [192.168.0.2]\nport: 1\n",
		},
		"maps": {
			"featureGates: {AllAlpha: false, MemoryQoS: true}\nstaticPodURLHeader: {a: [\"1\", \"2\"], b: [\"3\", \"4\"]}\n",
			"featureGates: {MemoryQoS: false, KubeletTracing: true}\nstaticPodURLHeader: {b: [\"5\"]}\n",
			"featureGates: {AllAlpha: false, MemoryQoS: false, KubeletTracing: true}\nstaticPodURLHeader: {a: [\"1\", \"2\"], b: [\"5\"]}\n",
		},
		"structs by pointer": {
			"tracing: {endpoint: a, samplingRatePerMillion: 3}\n",
			"tracing: {endpoint: b}\nuserNamespaces: {}\n",
			"tracing: {endpoint: b, samplingRatePerMillion: 3}\nuserNamespaces: {}\n",
		},
		"lists of structs": {
			"registerWithTaints: [{key: a, value: b, effect: NoSchedule}, {key: c, effect: NoSchedule}]\nreservedMemory: [{numaNode: 1, limits: {memory: 1Gi}}]\n",
			"registerWithTaints: [{key: a, effect: NoExecute}]\nreservedMemory: [{limits: {hugepages-2Mi: 2Mi}}]\n",
			"registerWithTaints: [{key: a, effect: NoExecute}]\nreservedMemory: [{limits: {hugepages-2Mi: 2Mi}}]\n",
		},
		"zeros are values": {
			"maxPods: 3\nfailSwapOn: true\nresolvConf: /x\nsyncFrequency: 1m\n",
			"maxPods: 0\nfailSwapOn: false\nresolvConf: ''\nsyncFrequency: 0s\n",
			"maxPods: 0\nfailSwapOn: false\nresolvConf: ''\nsyncFrequency: 0s\n",
		},
		"empty lists replace, empty maps and structs add nothing": {
			"clusterDNS: [a]\nevictionHard: {a: \"1\"}\nmemorySwap: {swapBehavior: NoSwap}\n",
			"clusterDNS: []\nevictionHard: {}\nmemorySwap: {}\nevictionSoft: {}\n",
			"clusterDNS: []\nevictionHard: {a: \"1\"}\nmemorySwap: {swapBehavior: NoSwap}\nevictionSoft: {}\n",
		},
		// Seen in the kubelet 1.36.3, which makes a JSON merge patch of a drop-in.
		"null takes back": {
			"maxPods: 3\noomScoreAdj: 5\nclusterDNS: [a]\nevictionHard: {a: \"1\", b: \"2\"}\ntracing: {endpoint: a}\nlogging: {verbosity: 3}\nfeatureGates: {A: true}\n",
			"maxPods: null\noomScoreAdj: null\nclusterDNS: null\nevictionHard: {a: null}\ntracing: null\nlogging: {verbosity: null}\nfeatureGates: null\n",
			"evictionHard: {b: \"2\"}\n",
		},
		"nothing": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := lay(t, test.base, test.dropIn)
			if diff := cmp.Diff(&decode(t, head+test.want).Config, got.Config()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOrigin(t *testing.T) {
	m := lay(t,
		"maxPods: 3\nport: 4\nclusterDNS:\n- a\n- b\nlogging:\n  verbosity: 3\nevictionHard:\n  memory.available: 5%\n  nodefs.available: 5%\n",
		"maxPods: 5\nclusterDNS: [c]\nevictionHard:\n  memory.available: 7%\nregisterWithTaints:\n- key: a\n  effect: NoSchedule\n",
		"healthzPort: 1\nsyncFrequency: 1m\nfeatureGates: {A: true, B: true}\n",
		"healthzPort: null\nfeatureGates: {A: null}\n",
	)
	flag := document.Origin{Kind: document.Flag, Name: "--port"}
	m.Mark("port", flag)
	m.Mark("systemReserved", flag)
	m.Mark("featureGates[C]", flag)
	for path, want := range map[string]string{
		"kind":                           "/c.d/3.conf:2",
		"maxPods":                        "/c.d/1.conf:3",
		"port":                           "--port",
		"clusterDNS":                     "/c.d/1.conf:4",
		"clusterDNS[0]":                  "/c.d/1.conf:4",
		"clusterDNS[1]":                  "/c.d/1.conf:4", // the element of the file is gone
		"logging":                        "/c.yaml:8",
		"logging.verbosity":              "/c.yaml:9",
		"logging.format":                 "default",
		"logging.options.text":           "default",
		"evictionHard":                   "/c.d/1.conf:5",
		"evictionHard[memory.available]": "/c.d/1.conf:6",
		"evictionHard[nodefs.available]": "/c.yaml:12",
		"evictionHard[imagefs.inodes]":   "default",
		"registerWithTaints":             "/c.d/1.conf:7",
		"registerWithTaints[0]":          "/c.d/1.conf:8",
		"registerWithTaints[0].effect":   "/c.d/1.conf:9",
		"registerWithTaints[0].value":    "/c.d/1.conf:8",
		"syncFrequency":                  "/c.d/2.conf:4",
		"healthzPort":                    "default",
		"featureGates[A]":                "default",
		"featureGates[B]":                "/c.d/2.conf:5",
		"featureGates[C]":                "--port",
		"featureGates":                   "--port",
		"systemReserved[cpu]":            "--port",
		"nonsense":                       "default",
		"":                               "default",
	} {
		if got := m.Origin(path); got.String() != want {
			t.Errorf("Origin(%s) is %s, want %s", path, got, want)
		}
		if got := m.Given(path); got != (want != "default") {
			t.Errorf("Given(%s) is %v, though it comes from: %s", path, got, want)
		}
	}
	if got := m.Nearest("logging.format").String(); got != "/c.yaml:8" {
		t.Errorf("nearest to logging.format is %s", got)
	}
	if got := m.Nearest("staticPodPath"); got != (document.Origin{}) {
		t.Errorf("nearest to what nobody gave is %s", got)
	}
}

func TestMarkCoversWhatIsBelow(t *testing.T) {
	m := lay(t, "evictionHard: {a: \"1\"}\n")
	m.Mark("evictionHard", document.Origin{Kind: document.Flag, Name: "--eviction-hard"})
	if got := m.Origin("evictionHard[a]").String(); got != "--eviction-hard" {
		t.Errorf("the flag replaced the map, but its key comes from %s", got)
	}
}

// Laying again over long maps and lists must not take forever.
func TestLayIsQuick(t *testing.T) {
	var b strings.Builder
	b.WriteString(head + "staticPodURLHeader:\n")
	for i := range 6000 {
		fmt.Fprintf(&b, "  h%d: [a, b]\n", i)
	}
	doc := decode(t, b.String())
	start := time.Now()
	m := document.NewMerged()
	for range 4 {
		m.Lay(document.DropIn, "d", doc)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if got := m.Origin("staticPodURLHeader[h5999][1]").String(); got != "d:6003" {
		t.Errorf("the last element comes from %s", got)
	}
}

func TestOriginString(t *testing.T) {
	for want, o := range map[string]document.Origin{
		"default":         {},
		"/etc/k.yaml:12":  {Kind: document.File, Name: "/etc/k.yaml", Line: 12},
		"/etc/k.d/a.conf": {Kind: document.DropIn, Name: "/etc/k.d/a.conf"},
		"--max-pods":      {Kind: document.Flag, Name: "--max-pods"},
		"host":            {Kind: document.Host},
		"systemd":         {Kind: document.Host, Name: "systemd"},
	} {
		if o.String() != want {
			t.Errorf("%#v is %q, want %q", o, o, want)
		}
	}
}

// Whoever changes the merged configuration, or lays another document over it,
// changes nothing that others hold.
func TestNothingIsShared(t *testing.T) {
	doc := decode(t, head+"evictionHard: {a: \"1\"}\nclusterDNS: [a]\ntracing: {endpoint: x}\nfailSwapOn: true\n")
	before := doc.Config.DeepCopy()
	m := document.NewMerged()
	m.Lay(document.File, "f", doc)
	c := m.Config()
	c.EvictionHard["b"], c.ClusterDNS[0], *c.Tracing.Endpoint, *c.FailSwapOn = "2", "b", "y", false
	if diff := cmp.Diff(before, &doc.Config); diff != "" {
		t.Errorf("the document changed (-before +after):\n%s", diff)
	}
	c.EvictionHard = map[string]string{"z": "9"}
	tracing := c.Tracing
	m.Lay(document.DropIn, "d", decode(t, head+"evictionHard: {c: \"3\"}\ntracing: {endpoint: z}\n"))
	if *tracing.Endpoint != "y" {
		t.Errorf("what was laid over changed for others: %s", *tracing.Endpoint)
	}
	if len(c.EvictionHard) != 2 || *c.Tracing.Endpoint != "z" {
		t.Errorf("the drop-in came to %v, %s", c.EvictionHard, *c.Tracing.Endpoint)
	}
}

// A thousand drop-ins that each add to one map must not copy it a thousand times.
func TestLayingOverALargeMapIsCheap(t *testing.T) {
	m := document.NewMerged()
	m.Config().EvictionHard = map[string]string{}
	for i := range 10_000 {
		m.Config().EvictionHard[strconv.Itoa(i)] = "1"
	}
	doc := decode(t, head+"evictionHard: {a: \"1\"}\n")
	const most = 200 // a copy takes more than one for each key
	if n := testing.AllocsPerRun(10, func() { m.Lay(document.DropIn, "d", doc) }); n > most {
		t.Errorf("%v allocations, want %d at most", n, most)
	}
}

func TestLayOfNothing(t *testing.T) {
	m := document.NewMerged()
	m.Lay(document.File, "f", nil)
	unreadable, errs := document.Decode([]byte("a: ["))
	if len(errs) == 0 {
		t.Fatal("no error")
	}
	m.Lay(document.File, "f", unreadable)
	if diff := cmp.Diff(document.NewMerged().Config(), m.Config()); diff != "" || m.Given("kind") {
		t.Errorf("nothing was laid, but (-want +got):\n%s", diff)
	}
}
