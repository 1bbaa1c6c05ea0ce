package dns

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
)

const nodeFile = "nameserver 10.0.0.1\nnameserver 10.0.0.2\nsearch corp.example. lab.example\noptions ndots:2 edns0\n"

// rig is a configurer with a node's file, and what it told of the node.
type rig struct {
	*Configurer
	file string
	told []pod.Event
}

func newRig(t *testing.T, file string, change func(*Config)) *rig {
	t.Helper()
	r := &rig{file: filepath.Join(t.TempDir(), "resolv.conf")}
	r.write(t, file)
	cfg := Config{ResolvConf: r.file, NodeEvent: func(e pod.Event) { r.told = append(r.told, e) }, Log: logr.Discard()}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.Configurer, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func withCluster(c *Config) { c.ClusterDNS, c.ClusterDomain = []string{"10.96.0.10"}, "cluster.local" }

func podWith(policy v1.DNSPolicy, c *v1.PodDNSConfig) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1.PodSpec{DNSPolicy: policy, DNSConfig: c}}
}

func onHost(p *v1.Pod) *v1.Pod {
	p.Spec.HostNetwork = true
	return p
}

// text is the configuration as a runtime writes it into resolv.conf.
func text(c *runtimeapi.DNSConfig) string {
	return strings.Join([]string{strings.Join(c.Servers, " "), strings.Join(c.Searches, " "), strings.Join(c.Options, " ")}, " | ")
}

func TestPolicies(t *testing.T) {
	const (
		node    = "10.0.0.1 10.0.0.2 | corp.example lab.example | ndots:2 edns0"
		cluster = "10.96.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local corp.example lab.example | ndots:5"
		nothing = "127.0.0.1 | . | "
	)
	own := &v1.PodDNSConfig{
		Nameservers: []string{"1.1.1.1", "10.0.0.1"},
		Searches:    []string{"lab.example", "own.example"},
		Options:     []v1.PodDNSConfigOption{{Name: "edns0"}, {Name: "ndots", Value: ptr.To("3")}, {Name: "timeout", Value: ptr.To("1")}, {Name: "ndots", Value: ptr.To("4")}, {Name: "rotate", Value: ptr.To("")}},
	}
	noNode := func(c *Config) { c.ResolvConf = "" }
	both := func(c *Config) { withCluster(c); noNode(c) }
	noDomain := func(c *Config) { withCluster(c); c.ClusterDomain = "" }
	dotted := func(c *Config) { withCluster(c); c.ClusterDomain += "." }
	for name, tt := range map[string]struct {
		pod    *v1.Pod
		config func(*Config)
		want   string
		events string
	}{
		"Default":                                   {podWith(v1.DNSDefault, nil), withCluster, node, ""},
		"Default, own too":                          {podWith(v1.DNSDefault, own), withCluster, "10.0.0.1 10.0.0.2 1.1.1.1 | corp.example lab.example own.example | ndots:4 edns0 timeout:1 rotate", ""},
		"Default without a node's":                  {podWith(v1.DNSDefault, nil), both, nothing, ""},
		"Default on the host":                       {onHost(podWith(v1.DNSDefault, nil)), withCluster, node, ""},
		"ClusterFirst":                              {podWith(v1.DNSClusterFirst, nil), withCluster, cluster, ""},
		"ClusterFirst, own too":                     {podWith(v1.DNSClusterFirst, own), withCluster, "10.96.0.10 1.1.1.1 10.0.0.1 | shop.svc.cluster.local svc.cluster.local cluster.local corp.example lab.example own.example | ndots:4 edns0 timeout:1 rotate", ""},
		"ClusterFirst without a node's":             {podWith(v1.DNSClusterFirst, nil), both, "10.96.0.10 | shop.svc.cluster.local svc.cluster.local cluster.local | ndots:5", ""},
		"ClusterFirst without a domain":             {podWith(v1.DNSClusterFirst, nil), noDomain, "10.96.0.10 | corp.example lab.example | ndots:5", ""},
		"ClusterFirst, domain with a dot":           {podWith(v1.DNSClusterFirst, nil), dotted, cluster, ""},
		"ClusterFirst on the host":                  {onHost(podWith(v1.DNSClusterFirst, nil)), withCluster, node, ""},
		"ClusterFirst without a cluster":            {podWith(v1.DNSClusterFirst, nil), nil, node, ""},
		"ClusterFirst without anything":             {podWith(v1.DNSClusterFirst, nil), noNode, nothing, ""},
		"ClusterFirstWithHostNet on the host":       {onHost(podWith(v1.DNSClusterFirstWithHostNet, nil)), withCluster, cluster, ""},
		"ClusterFirstWithHostNet":                   {podWith(v1.DNSClusterFirstWithHostNet, nil), withCluster, cluster, ""},
		"ClusterFirstWithHostNet without a cluster": {onHost(podWith(v1.DNSClusterFirstWithHostNet, nil)), nil, node, "MissingClusterDNS"},
		"None":                   {podWith(v1.DNSNone, own), withCluster, "1.1.1.1 10.0.0.1 | lab.example own.example | edns0 ndots:4 timeout:1 rotate", ""},
		"None without a node's":  {podWith(v1.DNSNone, own), noNode, "1.1.1.1 10.0.0.1 | lab.example own.example | edns0 ndots:4 timeout:1 rotate", ""},
		"None with nothing else": {podWith(v1.DNSNone, &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}}), withCluster, "1.1.1.1 |  | ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nodeFile, tt.config)
			for range 2 { // the first pod mustn't change what the second gets
				got, events, err := r.For(tt.pod)
				if err != nil {
					t.Fatal(err)
				}
				if text(got) != tt.want {
					t.Errorf("got  %s\nwant %s", text(got), tt.want)
				}
				if reasons(events) != tt.events {
					t.Errorf("events %v, want %q", events, tt.events)
				}
			}
			if len(r.told) > 0 {
				t.Errorf("told of a good node: %v", r.told)
			}
		})
	}
}

func reasons(events []pod.Event) string {
	var out []string
	for _, e := range events {
		out = append(out, string(e.Reason))
	}
	return strings.Join(out, " ")
}

func TestUnknownPolicy(t *testing.T) {
	_, _, err := newRig(t, nodeFile, nil).For(podWith("Sideways", nil))
	if err == nil || err.Error() != `pod shop/web: no such dnsPolicy: "Sideways"` {
		t.Error(err)
	}
}

// Every pod that names no policy has ClusterFirst: without a cluster it is said once.
func TestMissingClusterIsSaidOnce(t *testing.T) {
	var lines []string
	r := newRig(t, nodeFile, func(c *Config) {
		c.Log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 2})
	})
	for range 3 {
		if _, events, err := r.For(podWith(v1.DNSClusterFirst, nil)); err != nil || len(events) > 0 {
			t.Fatal(events, err)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "No clusterDNS is configured") {
		t.Errorf("logged %q", lines)
	}
	_, events, err := r.For(podWith(v1.DNSClusterFirstWithHostNet, nil))
	want := []pod.Event{{Type: "Warning", Reason: "MissingClusterDNS",
		Message: `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirstWithHostNet" policy. Falling back to "Default" policy.`}}
	if err != nil || !reflect.DeepEqual(events, want) {
		t.Errorf("got %v, %v", events, err)
	}
}

func TestNewRefusesNames(t *testing.T) {
	_, err := New(Config{ClusterDNS: []string{"10.0.0.10", "kube-dns"}})
	if err == nil || !strings.Contains(err.Error(), `clusterDNS[1]: "kube-dns" is not an IP address`) {
		t.Error(err)
	}
}

// The file is read each time: a laptop's changes with its network.
func TestNodeChanges(t *testing.T) {
	r := newRig(t, "nameserver 10.0.0.1\n", nil)
	p := podWith(v1.DNSDefault, nil)
	for _, want := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		r.write(t, "nameserver "+want+"\n")
		got, _, err := r.For(p)
		if err != nil || len(got.Servers) != 1 || got.Servers[0] != want {
			t.Errorf("got %v, %v, want %s", got, err, want)
		}
	}
}

func TestUnreadable(t *testing.T) {
	r := newRig(t, "", withCluster)
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*v1.Pod{podWith(v1.DNSDefault, nil), podWith(v1.DNSClusterFirst, nil)} {
		got, _, err := r.For(p)
		if want := "pod shop/web: can't tell how it resolves names: the node's resolver configuration " + r.file + " doesn't exist: make it, or set resolvConf to the file that the node has"; got != nil || err == nil || err.Error() != want {
			t.Errorf("%s: got %v, %v", p.Spec.DNSPolicy, got, err)
		}
	}
	if _, _, err := r.For(podWith(v1.DNSNone, &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}})); err != nil {
		t.Errorf("a pod that doesn't need the node's: %v", err)
	}
}
