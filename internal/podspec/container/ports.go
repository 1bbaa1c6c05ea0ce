package container

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

func ports(list []v1.ContainerPort, hostNetwork bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := rule.Unique{}
	for i := range list {
		p, item := &list[i], at.Index(i)
		if p.Name != "" {
			errs = append(errs, rule.Invalid(item.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			errs = append(errs, names.Check(item.Child("name"), p.Name)...)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(item.Child("containerPort"), "must be between 1 and 65535, inclusive"))
		} else {
			errs = append(errs, rule.Port(item.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, rule.Port(item.Child("hostPort"), p.HostPort)...)
		}
		if hostNetwork && p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(item.Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
		}
		errs = append(errs, rule.OneOf(item.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
		if p.HostIP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(item.Child("hostIP"), p.HostIP, false, nil)...)
		}
	}
	return errs
}

// hostPorts refuses a port of the host that is taken twice by containers that
// run at the same time: regular ones and sidecars. Other init containers run one
// after the other, before them, so their ports meet nobody's.
func (p Pod) hostPorts(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	together := hostPorts{}
	for i := range p.Spec.InitContainers {
		c, item := &p.Spec.InitContainers[i], at.Child("initContainers").Index(i)
		if pod.IsSidecar(c) {
			errs = append(errs, together.take(c, item)...)
		} else {
			errs = append(errs, hostPorts{}.take(c, item)...)
		}
	}
	for i := range p.Spec.Containers {
		errs = append(errs, together.take(&p.Spec.Containers[i], at.Child("containers").Index(i))...)
	}
	return errs
}

// hostPorts are ports of the host, as "protocol/address/port".
type hostPorts rule.Unique

func (h hostPorts) take(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for j, p := range c.Ports {
		if p.HostPort != 0 {
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			errs = append(errs, rule.Unique(h).CheckKey(at.Child("ports").Index(j).Child("hostPort"), key, p.HostPort)...)
		}
	}
	return errs
}
