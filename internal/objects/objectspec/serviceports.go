package objectspec

import (
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

func servicePorts(s *v1.ServiceSpec, at *field.Path) field.ErrorList {
	if len(s.Ports) == 0 && s.Type != v1.ServiceTypeExternalName && !headless(s) {
		return field.ErrorList{field.Required(at, "a service has at least one port, unless it is headless (clusterIP: None)")}
	}
	var errs field.ErrorList
	names, numbers, nodePorts := rule.Unique{}, rule.Unique{}, rule.Unique{}
	for i := range s.Ports {
		p, item := &s.Ports[i], at.Index(i)
		switch {
		case p.Name != "":
			errs = append(errs, rule.Label(item.Child("name"), p.Name)...)
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
		errs = append(errs, rule.Range(item.Child("nodePort"), p.NodePort, 1, math.MaxUint16)...)
		errs = append(errs, nodePorts.Check(item.Child("nodePort"), fmt.Sprintf("%s %d", p.Protocol, p.NodePort))...)
	}
	return errs
}

func servicePort(p *v1.ServicePort, at *field.Path) field.ErrorList {
	errs := rule.Port(at.Child("port"), p.Port)
	errs = append(errs, rule.OneOf(at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
	if p.AppProtocol != nil {
		errs = append(errs, rule.QualifiedName(at.Child("appProtocol"), *p.AppProtocol)...)
	}
	return append(errs, rule.PortOrName(at.Child("targetPort"), p.TargetPort)...)
}
