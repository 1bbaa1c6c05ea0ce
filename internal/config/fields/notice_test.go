package fields_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/fields"
)

// notices are those about a file, a line for each field; gates are those that are on.
func notices(t *testing.T, text string, gates ...string) []fields.Notice {
	t.Helper()
	doc, errs := document.Decode([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + text))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return fields.NotActedOn(&doc.Config, false, doc.Given, func(gate string) bool { return slices.Contains(gates, gate) })
}

func lines(all []fields.Notice) string {
	var b strings.Builder
	for _, x := range all {
		b.WriteString(x.Path + ": " + x.Why + "\n")
	}
	return b.String()
}

// kubeadm is what kubeadm 1.36 writes to /var/lib/kubelet/config.yaml, with containerd
// and systemd-resolved on the host.
const kubeadm = `authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
resolvConf: /run/systemd/resolve/resolv.conf
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`

func TestKubeadmGetsNoList(t *testing.T) {
	if got := fields.Lines(notices(t, kubeadm)); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestNotActedOn(t *testing.T) {
	for _, c := range []struct{ name, text, gates, want string }{
		{name: "nothing", text: "", want: ""},
		{name: "all of it acted on", text: "imageMinimumGCAge: 5m\nclusterDNS: [10.0.0.10]", want: ""},
		{name: "empty values", text: "evictionSoft: {}\ncpuManagerReconcilePeriod: 0s\nregisterWithTaints: []\nproviderID: \"\"\ntracing: {}\nrotateCertificates: false\nlogging: {options: {json: {infoBufferSize: \"0\"}}}", want: ""},
		{name: "what is done anyway", text: "registerNode: false\ncgroupsPerQOS: true\nenforceNodeAllocatable: [none]\nhairpinMode: hairpin-veth\ncpuManagerPolicy: none\nmemoryManagerPolicy: None\ncgroupDriver: cgroupfs", want: ""},
		{name: "and what isn't", text: "cgroupsPerQOS: false\nenforceNodeAllocatable: [pods]\nmemoryManagerPolicy: Static",
			want: `cgroupsPerQOS: this build always makes a control group for each QoS class and each pod
memoryManagerPolicy: this build doesn't assign memory to containers
`},
		{name: "a zero that is meant", text: "eventRecordQPS: 0\nmaxOpenFiles: 0", want: ""},
		{name: "in part", text: "maxPods: 250\ncpuManagerPolicy: static\nkubeReserved: {cpu: 100m}",
			want: `cpuManagerPolicy: a CPU that is taken offline isn't replaced before the agent starts again
`},
		{name: "a gate that is off", text: "memoryThrottlingFactor: 0.5\nlogging: {options: {json: {splitStream: true, infoBufferSize: 1Ki}}}", gates: "LoggingAlphaOptions",
			want: "memoryThrottlingFactor: it needs the feature gate MemoryQoS\n"},
		{name: "a gate that is on", text: "memoryThrottlingFactor: 0.5", gates: "MemoryQoS", want: ""},
		{name: "no effect whatever the gate", text: "shutdownGracePeriod: 30s", want: "shutdownGracePeriod: this build doesn't hold up the node's shutdown\n"},
		{name: "memory for QoS classes", text: "qosReserved: {memory: 50%}", want: "qosReserved: it needs the feature gate QOSReserved\n"},
		{name: "network of the embedded runtime", text: "podCIDR: 10.1.0.0/16", want: ""},
		{name: "network of another runtime", text: "podCIDR: 10.1.0.0/16\ncontainerRuntimeEndpoint: unix:///run/c.sock",
			want: "podCIDR: with a runtime of its own (containerRuntimeEndpoint) the node has that runtime's network, which this build doesn't configure\n"},
		{name: "below a pointer", text: "tracing: {samplingRatePerMillion: 100}\nuserNamespaces: {idsPerPod: 131072}", want: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, lines(notices(t, c.text, strings.Fields(c.gates)...))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A value that somebody didn't give is a default's business.
func TestOnlyWhatIsGiven(t *testing.T) {
	var c v1beta1.KubeletConfiguration
	config.SetDefaults(&c)
	none := func(string) bool { return false }
	if got := fields.NotActedOn(&c, false, none, none); len(got) > 0 {
		t.Errorf("notices about defaults: %s", lines(got))
	}
	given := func(path string) bool { return path == "registerNode" }
	if got := lines(fields.NotActedOn(&c, true, given, none)); got != "registerNode: without --kubeconfig there is no API server\n" {
		t.Errorf("a flag that says so: %q", got)
	}
}

func TestOneLineForEachReason(t *testing.T) {
	got := fields.Lines([]fields.Notice{{"a", "x"}, {"b", "y"}, {"c", "x"}})
	if diff := cmp.Diff([]string{"a, c: x", "b: y"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
