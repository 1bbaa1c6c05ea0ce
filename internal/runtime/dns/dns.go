// Package dns knows how the containers of a pod resolve names: by the pod's
// dnsPolicy and dnsConfig, the cluster's name servers and the node's resolv.conf, as
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/ has it.
package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// clusterOptions are the resolver's options with the cluster's name servers: so many
// dots that "service.namespace.svc" is looked for in the searched domains first. The
// node's options don't count then: they are for the node's servers.
var clusterOptions = []string{"ndots:5"}

// Config is what a Configurer is built from.
type Config struct {
	// ClusterDNS are the addresses of the cluster's name servers; there may be none.
	ClusterDNS []string
	// ClusterDomain is the cluster's domain, which may be empty.
	ClusterDomain string
	// ResolvConf is the path of the node's resolver configuration. Empty disables DNS
	// lookups in pods that don't use the cluster's name servers (KubeletConfiguration's resolvConf).
	ResolvConf string
	// NodeEvent takes in what is wrong with the node's resolver configuration: each thing
	// once for as long as it stays so. Its Container is empty.
	NodeEvent func(pod.Event)
	Log       logr.Logger
}

// Configurer makes the DNS configuration of pods. It may be used by any number of goroutines.
type Configurer struct {
	cfg     Config
	missing sync.Once

	mu sync.Mutex
	// reported is the last message reported about the node, by reason.
	reported map[pod.Reason]string
}

// New constructs a configurer. It refuses a cluster name server that is no IP address.
func New(cfg Config) (*Configurer, error) {
	for i, s := range cfg.ClusterDNS {
		if _, err := netip.ParseAddr(s); err != nil {
			return nil, fmt.Errorf("clusterDNS[%d]: %q is not an IP address: give the address that the cluster's DNS "+
				"service has", i, s)
		}
	}
	cfg.ClusterDomain = strings.TrimSuffix(cfg.ClusterDomain, ".")
	return &Configurer{cfg: cfg, reported: map[pod.Reason]string{}}, nil
}

// For makes the pod's DNS configuration, never nil without an error, and what is to
// be reported when the pod starts. The node's resolver configuration is read each
// time, since it changes with the networks that a node joins. A pod that needs it
// fails if it can't be read.
func (c *Configurer) For(p *v1.Pod) (*runtimeapi.DNSConfig, []pod.Event, error) {
	from, events, err := c.origin(p)
	if err != nil {
		return nil, nil, err
	}
	base, err := c.base(p, from)
	if err != nil {
		return nil, nil, fmt.Errorf("pod %s/%s: can't tell how it resolves names: %w", p.Namespace, p.Name, err)
	}
	all := merge(base, p.Spec.DNSConfig)
	if from == fromNode && !p.Spec.HostNetwork && c.cfg.ResolvConf != "" {
		c.checkReach(base, all)
	}
	all, limited := limit(all)
	return &runtimeapi.DNSConfig{Servers: all.servers, Searches: all.searches, Options: all.options},
		append(events, limited...), nil
}

// origin is where a pod's DNS configuration comes from, before its own dnsConfig.
type origin int

const (
	fromNowhere origin = iota
	fromNode
	fromCluster
)

func (c *Configurer) origin(p *v1.Pod) (origin, []pod.Event, error) {
	policy := p.Spec.DNSPolicy
	switch policy {
	case v1.DNSNone:
		return fromNowhere, nil, nil
	case v1.DNSDefault:
		return fromNode, nil, nil
	case v1.DNSClusterFirst:
		if p.Spec.HostNetwork {
			return fromNode, nil, nil
		}
		if len(c.cfg.ClusterDNS) > 0 {
			return fromCluster, nil, nil
		}
		// It is what a pod has that names no policy: without a cluster that is nobody's mistake, and reported once.
		c.missing.Do(func() {
			c.cfg.Log.V(2).Info("No clusterDNS is configured: pods use the node's name servers", "pod", klog.KObj(p),
				"dnsPolicy", policy)
		})
		return fromNode, nil, nil
	case v1.DNSClusterFirstWithHostNet:
		if len(c.cfg.ClusterDNS) > 0 {
			return fromCluster, nil, nil
		}
		return fromNode, []pod.Event{
			{Type: v1.EventTypeWarning, Reason: pod.ReasonMissingClusterDNS, Message: missingClusterDNS(policy)}}, nil
	default:
		return 0, nil, fmt.Errorf("pod %s/%s: no such dnsPolicy: %q", p.Namespace, p.Name, policy)
	}
}

// missingClusterDNS says it in the kubelet's words, for who looks for them.
func missingClusterDNS(policy v1.DNSPolicy) string {
	return fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. "+
		"Falling back to %q policy.", policy, v1.DNSDefault)
}

func (c *Configurer) base(p *v1.Pod, from origin) (resolver, error) {
	if from == fromNowhere {
		return resolver{}, nil
	}
	node, err := c.node()
	if err != nil || from == fromNode {
		return node, err
	}
	searches := node.searches
	if c.cfg.ResolvConf == "" {
		searches = nil
	}
	return resolver{servers: c.cfg.ClusterDNS, searches: append(c.clusterSearches(p.Namespace), searches...),
		options: clusterOptions}, nil
}

func (c *Configurer) clusterSearches(namespace string) []string {
	d := c.cfg.ClusterDomain
	if d == "" {
		return nil
	}
	return []string{namespace + ".svc." + d, "svc." + d, d}
}

// node reads how the node resolves names. Without a file nothing is to be
// resolved: an empty configuration wouldn't do, since a resolver without a server
// tries the loopback address with the host name's domain.
func (c *Configurer) node() (resolver, error) {
	if c.cfg.ResolvConf == "" {
		return resolver{servers: []string{"127.0.0.1"}, searches: []string{"."}}, nil
	}
	node, err := read(c.cfg.ResolvConf)
	if err != nil {
		return resolver{}, err
	}
	c.checkLimits(node)
	return node, nil
}
