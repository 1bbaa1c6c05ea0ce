package spec

import (
	"fmt"
	"math"
	"net/netip"

	v1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	specvalidation "github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// serviceDefaults sets the same defaults as an API server, but allocates nothing: missing addresses, node ports and IP
// families stay missing.
func serviceDefaults(s *v1.ServiceSpec) {
	orDefault(&s.Type, v1.ServiceTypeClusterIP)
	orDefault(&s.SessionAffinity, v1.ServiceAffinityNone)
	switch s.SessionAffinity {
	case v1.ServiceAffinityNone:
		s.SessionAffinityConfig = nil
	case v1.ServiceAffinityClientIP:
		if s.SessionAffinityConfig == nil || s.SessionAffinityConfig.ClientIP == nil ||
			s.SessionAffinityConfig.ClientIP.TimeoutSeconds == nil {
			s.SessionAffinityConfig = &v1.SessionAffinityConfig{
				ClientIP: &v1.ClientIPConfig{TimeoutSeconds: ptr.To(v1.DefaultClientIPServiceAffinitySeconds)}}
		}
	}
	for i := range s.Ports {
		portDefaults(&s.Ports[i])
	}
	if s.ClusterIP != "" && len(s.ClusterIPs) == 0 {
		s.ClusterIPs = []string{s.ClusterIP}
	}
	if s.Type == v1.ServiceTypeExternalName {
		return
	}
	orPointer(&s.InternalTrafficPolicy, v1.ServiceInternalTrafficPolicyCluster)
	if external(s) && s.ExternalTrafficPolicy == "" {
		s.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyCluster
	}
	if s.Type == v1.ServiceTypeLoadBalancer && s.AllocateLoadBalancerNodePorts == nil {
		s.AllocateLoadBalancerNodePorts = ptr.To(true)
	}
}

func portDefaults(p *v1.ServicePort) {
	orDefault(&p.Protocol, v1.ProtocolTCP)
	if p.TargetPort.IntVal == 0 && p.TargetPort.StrVal == "" {
		p.TargetPort = intstr.FromInt32(p.Port)
	}
}

// external reports whether clients outside of the cluster reach the service through a port of the node.
func external(s *v1.ServiceSpec) bool {
	return s.Type == v1.ServiceTypeNodePort || s.Type == v1.ServiceTypeLoadBalancer
}

func headless(s *v1.ServiceSpec) bool {
	return s.ClusterIP == v1.ClusterIPNone
}

func service(s *v1.ServiceSpec, at *field.Path) field.ErrorList {
	errs := specvalidation.OneOf(at.Child("type"), s.Type, v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort,
		v1.ServiceTypeLoadBalancer, v1.ServiceTypeExternalName)
	if s.Type == v1.ServiceTypeExternalName {
		errs = append(errs, specvalidation.Subdomain(at.Child("externalName"), s.ExternalName)...)
	}
	if external(s) && headless(s) {
		errs = append(errs, field.Invalid(at.Child("clusterIP"), s.ClusterIP,
			"may not be None for a service of type "+string(s.Type)))
	}
	errs = append(errs, servicePorts(s, at.Child("ports"))...)
	errs = append(errs, metavalidation.ValidateLabels(s.Selector, at.Child("selector"))...)
	errs = append(errs, sessionAffinity(s, at)...)
	errs = append(errs, clusterIPs(s, at)...)
	errs = append(errs, outside(s, at)...)
	return append(errs, traffic(s, at)...)
}

func sessionAffinity(s *v1.ServiceSpec, at *field.Path) field.ErrorList {
	errs := specvalidation.OneOf(at.Child("sessionAffinity"), s.SessionAffinity, v1.ServiceAffinityClientIP,
		v1.ServiceAffinityNone)
	c := s.SessionAffinityConfig
	if s.SessionAffinity != v1.ServiceAffinityClientIP || c == nil || c.ClientIP == nil ||
		c.ClientIP.TimeoutSeconds == nil {
		return errs
	}
	const day = 24 * 60 * 60
	return append(errs, specvalidation.Range(at.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"),
		*c.ClientIP.TimeoutSeconds, 1, day)...)
}

// clusterIPs checks the cluster addresses of a service: none, one, or one of each IP family.
func clusterIPs(s *v1.ServiceSpec, at *field.Path) field.ErrorList {
	list := at.Child("clusterIPs")
	if s.Type == v1.ServiceTypeExternalName {
		if s.ClusterIP != "" || len(s.ClusterIPs) > 0 {
			return field.ErrorList{field.Forbidden(list, "may not be set for a service of type ExternalName")}
		}
		return nil
	}
	var errs field.ErrorList
	if len(s.ClusterIPs) > 0 && s.ClusterIPs[0] != s.ClusterIP {
		errs = append(errs, field.Invalid(list, s.ClusterIPs, "the first must be the same as clusterIP"))
	}
	if len(s.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(list, s.ClusterIPs, "may hold at most one address of each family"))
	}
	families := map[bool]bool{}
	for i, ip := range s.ClusterIPs {
		if ip == v1.ClusterIPNone && len(s.ClusterIPs) == 1 {
			continue
		}
		wrong := validation.IsValidIP(list.Index(i), ip)
		errs = append(errs, wrong...)
		address, err := netip.ParseAddr(ip)
		if len(wrong) > 0 || err != nil {
			continue
		}
		if families[address.Is4()] {
			errs = append(errs, field.Invalid(list, s.ClusterIPs, "may hold at most one address of each family"))
		}
		families[address.Is4()] = true
	}
	for i, family := range s.IPFamilies {
		errs = append(errs, specvalidation.OneOf(at.Child("ipFamilies").Index(i), family, v1.IPv4Protocol,
			v1.IPv6Protocol)...)
	}
	return append(errs, specvalidation.OptionalOneOf(at.Child("ipFamilyPolicy"), s.IPFamilyPolicy,
		v1.IPFamilyPolicySingleStack, v1.IPFamilyPolicyPreferDualStack, v1.IPFamilyPolicyRequireDualStack)...)
}

// outside checks the fields about access from outside of the cluster, such as load balancers and external addresses.
func outside(s *v1.ServiceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, ip := range s.ExternalIPs {
		errs = append(errs, validation.IsValidIP(at.Child("externalIPs").Index(i), ip)...)
	}
	balancer := s.Type == v1.ServiceTypeLoadBalancer
	for i, cidr := range s.LoadBalancerSourceRanges {
		errs = append(errs, validation.IsValidCIDR(at.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	if len(s.LoadBalancerSourceRanges) > 0 && !balancer {
		errs = append(errs, onlyFor(at.Child("loadBalancerSourceRanges"), "LoadBalancer"))
	}
	if s.AllocateLoadBalancerNodePorts != nil && !balancer {
		errs = append(errs, onlyFor(at.Child("allocateLoadBalancerNodePorts"), "LoadBalancer"))
	}
	if class := s.LoadBalancerClass; class != nil {
		if !balancer {
			errs = append(errs, onlyFor(at.Child("loadBalancerClass"), "LoadBalancer"))
		}
		errs = append(errs, specvalidation.QualifiedName(at.Child("loadBalancerClass"), *class)...)
	}
	if s.HealthCheckNodePort != 0 {
		errs = append(errs, specvalidation.Range(at.Child("healthCheckNodePort"), s.HealthCheckNodePort, 1,
			math.MaxUint16)...)
		if !balancer || s.ExternalTrafficPolicy != v1.ServiceExternalTrafficPolicyLocal {
			errs = append(errs, field.Forbidden(at.Child("healthCheckNodePort"),
				"may only be set for type LoadBalancer with externalTrafficPolicy Local"))
		}
	}
	return errs
}

func onlyFor(at *field.Path, types string) *field.Error {
	return field.Forbidden(at, "may only be set for a service of type "+types)
}

// traffic checks the traffic policies and the traffic distribution, which determine the endpoints that get the
// traffic.
func traffic(s *v1.ServiceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	policy := at.Child("externalTrafficPolicy")
	switch {
	case external(s) || len(s.ExternalIPs) > 0 && s.ExternalTrafficPolicy != "":
		errs = append(errs, specvalidation.OneOf(policy, s.ExternalTrafficPolicy,
			v1.ServiceExternalTrafficPolicyCluster, v1.ServiceExternalTrafficPolicyLocal)...)
	case s.ExternalTrafficPolicy != "":
		errs = append(errs, field.Invalid(policy, s.ExternalTrafficPolicy,
			"may only be set for services that are reached from outside"))
	}
	errs = append(errs, specvalidation.OptionalOneOf(at.Child("internalTrafficPolicy"), s.InternalTrafficPolicy,
		v1.ServiceInternalTrafficPolicyCluster, v1.ServiceInternalTrafficPolicyLocal)...)
	return append(errs, specvalidation.OptionalOneOf(at.Child("trafficDistribution"), s.TrafficDistribution,
		v1.ServiceTrafficDistributionPreferClose, v1.ServiceTrafficDistributionPreferSameZone,
		v1.ServiceTrafficDistributionPreferSameNode)...)
}

func servicePorts(s *v1.ServiceSpec, at *field.Path) field.ErrorList {
	if len(s.Ports) == 0 && s.Type != v1.ServiceTypeExternalName && !headless(s) {
		return field.ErrorList{field.Required(at,
			"a service has at least one port, unless it is headless (clusterIP: None)")}
	}
	var errs field.ErrorList
	names, numbers, nodePorts := specvalidation.Unique{}, specvalidation.Unique{}, specvalidation.Unique{}
	for i := range s.Ports {
		p, item := &s.Ports[i], at.Index(i)
		switch {
		case p.Name != "":
			errs = append(errs, specvalidation.Label(item.Child("name"), p.Name)...)
			errs = append(errs, names.Check(item.Child("name"), p.Name)...)
		case len(s.Ports) > 1:
			errs = append(errs, field.Required(item.Child("name"), "must be set where a service has several ports"))
		}
		errs = append(errs, servicePort(p, item)...)
		errs = append(errs, numbers.Check(item, fmt.Sprintf("%s %d", p.Protocol, p.Port))...)
		if p.NodePort == 0 {
			continue
		}
		if !external(s) {
			errs = append(errs, onlyFor(item.Child("nodePort"), "NodePort or LoadBalancer"))
		}
		errs = append(errs, specvalidation.Range(item.Child("nodePort"), p.NodePort, 1, math.MaxUint16)...)
		errs = append(errs, nodePorts.Check(item.Child("nodePort"), fmt.Sprintf("%s %d", p.Protocol, p.NodePort))...)
	}
	return errs
}

func servicePort(p *v1.ServicePort, at *field.Path) field.ErrorList {
	errs := specvalidation.Port(at.Child("port"), p.Port)
	errs = append(errs, specvalidation.OneOf(at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP,
		v1.ProtocolSCTP)...)
	if p.AppProtocol != nil {
		errs = append(errs, specvalidation.QualifiedName(at.Child("appProtocol"), *p.AppProtocol)...)
	}
	return append(errs, specvalidation.PortOrName(at.Child("targetPort"), p.TargetPort)...)
}
