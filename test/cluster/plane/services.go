package plane

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// ServiceDNS is the address of the cluster's DNS, ClusterDomain its domain.
const (
	ServiceDNS    = "10.96.0.10"
	ClusterDomain = "cluster.local"
)

// StartServices starts CoreDNS, which pods reach at ServiceDNS, and kube-proxy, which forwards the addresses of Services
// on this machine, the node of that name. Both end with the control plane, whose address pods have to reach.
func (p *Plane) StartServices(node string) {
	p.t.Helper()
	p.startDNS()
	proxy := p.Kubeconfig(p.Issue("kube-proxy", "system:kube-proxy"))
	ports := freePorts(p.t, 2)
	p.t.Cleanup(func() { // runs after kube-proxy has ended
		if out, err := exec.Command(p.path("kube-proxy"), "--cleanup").CombinedOutput(); err != nil {
			p.t.Logf("the rules of kube-proxy may be left: %v: %s", err, out)
		}
	})
	// Pods are on one bridge. Without --masquerade-all, a Service's pod answers a client there directly, from its own
	// address instead of the Service's. The kernel's settings for connections stay as they are.
	p.run("kube-proxy", "--kubeconfig="+proxy, "--hostname-override="+node, "--proxy-mode=nftables", "--masquerade-all",
		"--conntrack-max-per-core=0", "--conntrack-min=0",
		"--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		fmt.Sprintf("--healthz-bind-address=%s:%d", loopback, ports[0]),
		fmt.Sprintf("--metrics-bind-address=%s:%d", loopback, ports[1]))
	p.awaitURL("kube-proxy", url("http", ports[0])+"/healthz")
}

// startDNS starts CoreDNS, which answers for Services and forwards other queries to the machine's servers, if it has any.
func (p *Plane) startDNS() {
	p.t.Helper()
	const user = "system:coredns"
	ports := freePorts(p.t, 2)
	resources := fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules:
- {apiGroups: [""], resources: [services, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: %[2]s, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: [%[3]q]}]
ports: [{name: dns, port: %[4]d, protocol: UDP}, {name: dns-tcp, port: %[4]d}]
`, user, ServiceDNS, p.address, ports[0])
	if _, err := p.Kubectl(resources, "apply", "-f", "-"); err != nil {
		p.t.Fatal(err)
	}
	const resolver = "/etc/resolv.conf"
	forward := ""
	if text, err := os.ReadFile(resolver); err == nil && strings.Contains("\n"+string(text), "\nnameserver") {
		forward = "forward . " + resolver
	}
	file := p.path("Corefile")
	text := fmt.Sprintf(`.:%d {
  bind %s
  errors
  ready %s:%d
  kubernetes %s in-addr.arpa ip6.arpa {
    kubeconfig %s
    fallthrough in-addr.arpa ip6.arpa
  }
  %s
  cache 30
}
`, ports[0], p.address, loopback, ports[1], ClusterDomain, p.Kubeconfig(p.Issue("coredns", user)), forward)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.run("coredns", file)
	p.awaitURL("coredns", url("http", ports[1])+"/ready")
}
