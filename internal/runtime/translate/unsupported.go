package translate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/capability"
	v1 "k8s.io/api/core/v1"
)

const notActedOn = "not acted on by this build"

// UnsupportedFields lists the fields of the pod that have no effect, each as "spec.path: not acted on by this
// build" or with another reason, in the order of the spec. It doesn't list unsupported volume types: the volume
// manager rejects them by name. noSELinux means that the runtime applies no SELinux labels, whatever the host
// supports.
func UnsupportedFields(p *v1.Pod, noSELinux bool) []string {
	l := &list{noSELinux: noSELinux}
	l.pod(&p.Spec)
	l.podSecurity(p.Spec.SecurityContext)
	for i := range p.Spec.InitContainers {
		l.container(fmt.Sprintf("spec.initContainers[%d]", i), &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		l.container(fmt.Sprintf("spec.containers[%d]", i), &p.Spec.Containers[i])
	}
	for i := range p.Spec.EphemeralContainers {
		c := v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		l.container(fmt.Sprintf("spec.ephemeralContainers[%d]", i), &c)
	}
	return l.fields
}

type list struct {
	noSELinux bool
	fields    []string
}

func (l *list) add(used bool, path string) {
	if used {
		l.fields = append(l.fields, path+": "+notActedOn)
	}
}

func (l *list) pod(s *v1.PodSpec) {
	l.add(len(s.ResourceClaims) > 0, "spec.resourceClaims")
	l.add(s.OS != nil && s.OS.Name != v1.Linux, "spec.os.name")
	if s.Resources != nil {
		l.claims("spec.resources", s.Resources)
	}
}

func (l *list) podSecurity(sc *v1.PodSecurityContext) {
	if sc == nil {
		return
	}
	l.add(sc.SELinuxOptions != nil && l.noSELinux, "spec.securityContext.seLinuxOptions")
	l.add(sc.WindowsOptions != nil, "spec.securityContext.windowsOptions")
}

func (l *list) container(at string, c *v1.Container) {
	l.add(len(c.VolumeDevices) > 0, at+".volumeDevices")
	l.claims(at+".resources", &c.Resources)
	if sc := c.SecurityContext; sc != nil {
		l.add(sc.SELinuxOptions != nil && l.noSELinux, at+".securityContext.seLinuxOptions")
		l.add(sc.WindowsOptions != nil, at+".securityContext.windowsOptions")
		if sc.Capabilities != nil {
			l.capabilities(at+".securityContext.capabilities.add", sc.Capabilities.Add)
			l.capabilities(at+".securityContext.capabilities.drop", sc.Capabilities.Drop)
		}
	}
}

// capabilities lists the names that aren't capabilities: runtimes ignore them.
func (l *list) capabilities(at string, names []v1.Capability) {
	for _, name := range names {
		wanted := capabilityName(name)
		known := wanted == "ALL" ||
			slices.ContainsFunc(capability.ListKnown(), func(c capability.Cap) bool {
				return strings.EqualFold(c.String(), wanted)
			})
		if !known {
			l.fields = append(l.fields,
				fmt.Sprintf("%s[%s]: there is no such capability, see capabilities(7)", at, name))
		}
	}
}

// claims lists resources without an effect on this node: DRA claims, and a request for ephemeral storage without a
// limit, because only limits are monitored and requests only matter to schedulers.
func (l *list) claims(at string, r *v1.ResourceRequirements) {
	l.add(len(r.Claims) > 0, at+".claims")
	_, requested := r.Requests[v1.ResourceEphemeralStorage]
	_, limited := r.Limits[v1.ResourceEphemeralStorage]
	l.add(requested && !limited, fmt.Sprintf("%s.requests[%s]", at, v1.ResourceEphemeralStorage))
}
