package validation

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func ports(list []v1.ContainerPort, hostNetwork bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := Unique{}
	for i := range list {
		p, item := &list[i], at.Index(i)
		if p.Name != "" {
			errs = append(errs, Invalid(item.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			errs = append(errs, names.Check(item.Child("name"), p.Name)...)
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(item.Child("containerPort"), "must be between 1 and 65535, inclusive"))
		} else {
			errs = append(errs, Port(item.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, Port(item.Child("hostPort"), p.HostPort)...)
		}
		if hostNetwork && p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(item.Child("hostPort"), p.HostPort,
				"must match `containerPort` when `hostNetwork` is true"))
		}
		errs = append(errs, OneOf(item.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP,
			v1.ProtocolSCTP)...)
		if p.HostIP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(item.Child("hostIP"), p.HostIP, false, nil)...)
		}
	}
	return errs
}

// hostPorts returns an error for each host port that is used by two containers that run at the same time: regular
// containers and sidecars. Other init containers run one after the other before the regular ones, so their ports can't
// conflict.
func (p podContainers) hostPorts(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	together := hostPorts{}
	for i := range p.spec.InitContainers {
		c, item := &p.spec.InitContainers[i], at.Child("initContainers").Index(i)
		if pod.IsSidecar(c) {
			errs = append(errs, together.check(c, item)...)
		} else {
			errs = append(errs, hostPorts{}.check(c, item)...)
		}
	}
	for i := range p.spec.Containers {
		errs = append(errs, together.check(&p.spec.Containers[i], at.Child("containers").Index(i))...)
	}
	return errs
}

// hostPorts detects duplicate ports of the host. The keys are "protocol/address/port".
type hostPorts Unique

func (h hostPorts) check(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for j, p := range c.Ports {
		if p.HostPort != 0 {
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			errs = append(errs, Unique(h).CheckKey(at.Child("ports").Index(j).Child("hostPort"), key, p.HostPort)...)
		}
	}
	return errs
}
