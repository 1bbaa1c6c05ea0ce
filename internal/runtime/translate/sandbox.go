package translate

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// SandboxInput is the input of SandboxConfig for one sandbox.
type SandboxInput struct {
	Pod *v1.Pod
	// Attempt counts the pod's sandboxes from 0.
	Attempt uint32
	// DNS becomes the pod's resolv.conf; nil leaves it to the runtime.
	DNS *runtimeapi.DNSConfig
	// CgroupParent is the pod's cgroup in cgroupfs or systemd notation, depending on the runtime's configuration.
	CgroupParent string
	// Users is the range of the host's IDs for the pod's user namespace. It is required if hostUsers is false, and
	// otherwise nil.
	Users *userns.Range
	// Unthrottled says that the pod as a whole has no CPU limit.
	Unthrottled bool
}

// SandboxConfig returns the CRI configuration of a pod sandbox. It fails only if the pod's host name or users are
// invalid.
func SandboxConfig(s *Settings, in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	p := in.Pod
	security, err := sandboxSecurity(p, in.Users)
	if err != nil {
		return nil, err
	}
	labels := podLabels(p)
	addOthers(labels, p.Labels)
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Uid: string(p.UID), Namespace: p.Namespace,
			Attempt: in.Attempt},
		LogDirectory: layout.PodDir(s.PodLogsDir, identityOf(p)),
		DnsConfig:    in.DNS,
		Labels:       labels,
		Annotations:  maps.Clone(p.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    in.CgroupParent,
			SecurityContext: security,
			Sysctls:         sysctls(p),
		},
	}
	cfg.Linux.Overhead, cfg.Linux.Resources = SandboxResources(s, p, in.Unthrottled)
	if p.Spec.HostNetwork {
		return cfg, nil
	}
	cfg.PortMappings = portMappings(p)
	name, err := Hostname(p, s.ClusterDomain)
	if err != nil {
		return nil, err
	}
	cfg.Hostname = name
	return cfg, nil
}

// Hostname returns the host name inside a pod, according to the API comments of setHostnameAsFQDN and of the fields
// that pod.HostNames uses.
func Hostname(p *v1.Pod, clusterDomain string) (string, error) {
	host, fqdn := pod.HostNames(p, clusterDomain)
	if p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN || fqdn == "" {
		return host, nil
	}
	if len(fqdn) > pod.MaxHostname {
		// The message begins like the kubelet's, for which users and Kubernetes' end-to-end tests search in events.
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s has %d bytes, "+
			"and with setHostnameAsFQDN Linux takes %d: shorten hostname, subdomain or namespace",
			fqdn, len(fqdn), pod.MaxHostname)
	}
	return fqdn, nil
}

// portMappings lists the containers' ports that the runtime forwards from addresses of the node (hostPort).
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for _, c := range pod.LongRunning(p) {
		for i := range c.Ports {
			port := &c.Ports[i]
			if port.HostPort <= 0 {
				continue
			}
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      protocol(port.Protocol),
				ContainerPort: port.ContainerPort,
				HostPort:      port.HostPort,
				HostIp:        port.HostIP,
			})
		}
	}
	return out
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}

// sysctls returns the pod's sysctls with dots in their names.
func sysctls(p *v1.Pod) map[string]string {
	sc := p.Spec.SecurityContext
	if sc == nil || len(sc.Sysctls) == 0 {
		return nil
	}
	out := make(map[string]string, len(sc.Sysctls))
	for _, s := range sc.Sysctls {
		out[sysctl.NormalizeName(s.Name)] = s.Value
	}
	return out
}
