// Package dns computes how the containers of a pod resolve names: from the pod's dnsPolicy and dnsConfig, the
// cluster's name servers and the node's resolv.conf, according to
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/.
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

// clusterOptions are the resolver's options for the cluster's name servers: with ndots:5, "service.namespace.svc"
// is looked up in the search domains first. The node's options aren't used, because they are for the node's
// servers.
var clusterOptions = []string{"ndots:5"}

// Config configures a Configurer.
type Config struct {
	// ClusterDNS has the addresses of the cluster's name servers; it may be empty.
	ClusterDNS []string
	// ClusterDomain is the cluster's domain, which may be empty.
	ClusterDomain string
	// ResolvConf is the path of the node's resolver configuration. Empty disables DNS
	// lookups in pods that don't use the cluster's name servers (KubeletConfiguration's resolvConf).
	ResolvConf string
	// NodeEvent receives problems with the node's resolver configuration, each once as long as it persists. The
	// events' Container is empty.
	NodeEvent func(pod.Event)
	Log       logr.Logger
}

// Configurer computes the DNS configuration of pods. It is safe for concurrent use.
type Configurer struct {
	cfg     Config
	missing sync.Once

	mu sync.Mutex
	// reported is the last reported message about the node, by reason.
	reported map[pod.Reason]string
}

// New returns a configurer. It fails if a cluster name server isn't an IP address.
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

// For returns the pod's DNS configuration, never nil without an error, and the events to record when the pod
// starts. The node's resolver configuration is read each time, because it changes with the node's networks. If it
// can't be read, pods that need it fail.
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

// origin is the source of a pod's DNS configuration, before its own dnsConfig is applied.
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
		// ClusterFirst is also the default of dnsPolicy. So it isn't a mistake without a cluster, and is logged
		// only once.
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

// missingClusterDNS returns the kubelet's message, for users who search for it.
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

// node returns the node's resolver configuration. Without a file, pods mustn't resolve any names: an empty
// configuration wouldn't achieve that, because a resolver without a server queries the loopback address with the
// host name's domain.
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
