package pod

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// DownwardResource is the value of a limit or a request of a container in units of the divisor, rounded up
// (https://kubernetes.io/docs/concepts/workloads/pods/downward-api/#downwardapi-resourceFieldRef). The container is
// the one that ref names, or else the argument container. If neither the container nor the pod sets a limit, the
// result is the node's allocatable amount. A request that isn't set is 0.
func DownwardResource(p *v1.Pod, ref *v1.ResourceFieldSelector, container string,
	allocatable v1.ResourceList) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	if container == "" {
		return "", errors.New("resourceFieldRef names no container: set containerName")
	}
	c := ContainerNamed(p, container)
	if c == nil {
		return "", fmt.Errorf("resourceFieldRef names container %q, which the pod doesn't have", container)
	}
	side, rest, _ := strings.Cut(ref.Resource, ".")
	name := v1.ResourceName(rest)
	var q resource.Quantity
	switch {
	case side == "limits" && selectable(name):
		q = limit(p, c, name, allocatable)
	case side == "requests" && selectable(name):
		q = c.Resources.Requests[name]
	default:
		return "", fmt.Errorf("resourceFieldRef can't select %q: use limits or requests of cpu, memory, "+
			"ephemeral-storage or hugepages-SIZE", ref.Resource)
	}
	inUnits := (*resource.Quantity).Value
	if name == v1.ResourceCPU {
		inUnits = (*resource.Quantity).MilliValue
	}
	divisor := ref.Divisor // 0 means the default, which is 1
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	unit := inUnits(&divisor)
	if unit <= 0 {
		return "", fmt.Errorf("resourceFieldRef has the divisor %s, which can't be a divisor: use 1", divisor.String())
	}
	return strconv.FormatInt(divideUp(inUnits(&q), unit), 10), nil
}

func selectable(name v1.ResourceName) bool {
	switch name {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		return true
	}
	return IsHugePages(name)
}

// IsHugePages reports whether a resource is huge pages of some size.
func IsHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// limit is the largest amount of a resource that a container can use: its own limit, else the pod's limit
// (kubernetes/kubernetes#132605), else the node's allocatable amount. Containers can't use huge pages without a
// limit, so for these the node's amount doesn't count.
func limit(p *v1.Pod, c *v1.Container, name v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	if q := c.Resources.Limits[name]; !q.IsZero() {
		return q
	}
	if p.Spec.Resources != nil {
		if q := p.Spec.Resources.Limits[name]; !q.IsZero() {
			return q
		}
	}
	if IsHugePages(name) {
		return resource.Quantity{}
	}
	return allocatable[name]
}

func divideUp(a, b int64) int64 {
	n := a / b
	if a%b > 0 {
		n++
	}
	return n
}
