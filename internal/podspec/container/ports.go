package container

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
			errs = append(errs, field.Required(item.Child("containerPort"), ""))
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

// hostPorts refuses a port of the host that is taken twice.
func hostPorts(containers []v1.Container, at func(int) *field.Path) field.ErrorList {
	var errs field.ErrorList
	taken := rule.Unique{}
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort != 0 {
				key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
				errs = append(errs, taken.Check(at(i).Child("ports").Index(j).Child("hostPort"), key)...)
			}
		}
	}
	return errs
}
