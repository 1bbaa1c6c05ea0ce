package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ephemeral checks the ephemeral containers of a pod, which are for debugging (KEP-277). At an API server, a
// subresource adds them to a running pod, and a new pod can't have any. A manifest has no subresource: the containers
// are in the manifest's list, and an edit of the manifest adds one to a running pod. Apart from that, the API's rules
// apply: such a container has no ports, resources, probes, hooks or restarts, and mounts whole volumes only.
//
// names has the names of the pod's other containers.
func (p podContainers) ephemeral(names Unique, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	targets := p.targets()
	for i := range p.spec.EphemeralContainers {
		e, item := &p.spec.EphemeralContainers[i], at.Index(i)
		// The API keeps the fields of the two types identical, so that this conversion is possible.
		c := (*v1.Container)(&e.EphemeralContainerCommon)
		errs = append(errs, names.Check(item.Child("name"), c.Name)...)
		errs = append(errs, p.common(c, item)...)
		errs = append(errs, notEphemeral(c, item)...)
		if e.TargetContainerName != "" {
			errs = append(errs, targets.Refer(item.Child("targetContainerName"), e.TargetContainerName,
				"must be one of the pod's containers or init containers")...)
		}
	}
	return errs
}

// targets returns the names of the containers that an ephemeral container can target, to share their namespaces.
func (p podContainers) targets() Names {
	var names Names
	for _, list := range [][]v1.Container{p.spec.InitContainers, p.spec.Containers} {
		for i := range list {
			names.Add(list[i].Name)
		}
	}
	return names
}

// notEphemeral returns errors for the fields that the comments of v1.EphemeralContainerCommon don't allow.
func notEphemeral(c *v1.Container, at *field.Path) field.ErrorList {
	f := forbidden{why: "may not be set for an ephemeral container: leave it out"}
	f.set(len(c.Ports) > 0, at.Child("ports"))
	f.set(len(c.Resources.Limits)+len(c.Resources.Requests)+len(c.Resources.Claims) > 0, at.Child("resources"))
	f.set(len(c.ResizePolicy) > 0, at.Child("resizePolicy"))
	f.set(c.RestartPolicy != nil, at.Child("restartPolicy"))
	f.set(len(c.RestartPolicyRules) > 0, at.Child("restartPolicyRules"))
	f.set(c.Lifecycle != nil, at.Child("lifecycle"))
	f.probes(c, at)
	for i, m := range c.VolumeMounts {
		f.set(m.SubPath != "", at.Child("volumeMounts").Index(i).Child("subPath"))
		f.set(m.SubPathExpr != "", at.Child("volumeMounts").Index(i).Child("subPathExpr"))
	}
	return f.errs
}
