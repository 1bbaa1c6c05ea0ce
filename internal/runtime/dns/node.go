package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// checkLimits reports whether the node's configuration alone exceeds the limits of a pod's configuration.
func (c *Configurer) checkLimits(node resolver) {
	var tooMuch []string
	if n := len(node.servers); n > maxServers {
		tooMuch = append(tooMuch, fmt.Sprintf("%d name servers, of which pods get the first %d", n, maxServers))
	}
	var cluster []string
	if len(c.cfg.ClusterDNS) > 0 {
		cluster = c.clusterSearches("")
	}
	if n := len(node.searches); n > maxSearches-len(cluster) {
		tooMuch = append(tooMuch,
			fmt.Sprintf("%d search domains, of which pods get the first %d", n, maxSearches-len(cluster)))
	}
	if n := len(strings.Join(append(cluster, node.searches...), " ")); n > maxSearchBytes {
		tooMuch = append(tooMuch,
			fmt.Sprintf("a search list of %d characters (with the cluster's domains, if any), of which pods get at "+
				"most %d", n, maxSearchBytes))
	}
	message := ""
	if len(tooMuch) > 0 {
		message = c.cfg.ResolvConf + " has " + strings.Join(tooMuch, ", and ")
	}
	c.reportNode(pod.ReasonCheckLimitsForResolvConf, message)
}

// checkReach reports whether pods with the node's configuration have no reachable server. That is the case if the
// node uses a local server, such as systemd-resolved's on 127.0.0.53.
func (c *Configurer) checkReach(node, merged resolver) {
	if slices.ContainsFunc(node.servers, reachable) {
		c.reportNode(pod.ReasonUnreachableNameservers, "")
		return
	}
	if slices.ContainsFunc(merged.servers, reachable) {
		return // the pod's dnsConfig adds a reachable server
	}
	what := "names no server"
	if len(node.servers) > 0 {
		what = "names only servers on a loopback address (" + strings.Join(node.servers, " ") +
			"), which is another one inside a pod"
	}
	c.reportNode(pod.ReasonUnreachableNameservers,
		fmt.Sprintf("%s %s: pods that use it can't resolve names. Set resolvConf to a file with servers that pods "+
			"can reach; systemd-resolved keeps one in /run/systemd/resolve/resolv.conf",
			c.cfg.ResolvConf, what))
}

func reachable(server string) bool {
	addr, err := netip.ParseAddr(server)
	return err == nil && !addr.Unmap().IsLoopback() && !addr.IsUnspecified()
}

// reportNode records a message about the node once; an empty message means that the problem is gone.
func (c *Configurer) reportNode(reason pod.Reason, message string) {
	c.mu.Lock()
	changed := c.reported[reason] != message
	c.reported[reason] = message
	c.mu.Unlock()
	if changed && message != "" {
		c.cfg.NodeEvent(pod.Event{Type: v1.EventTypeWarning, Reason: reason, Message: message})
	}
}
