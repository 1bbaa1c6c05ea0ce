package env

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

var errNoAddress = errors.New("the address isn't known: the pod's network isn't up")

// field is the value of a fieldRef, by the API comment of EnvVarSource.
func field(p *v1.Pod, path string, facts *Facts) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.labels":
			return p.Labels[key], nil
		case "metadata.annotations":
			return p.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.podIP":
		return firstAddress(facts.PodIPs)
	case "status.podIPs":
		return addresses(facts.PodIPs)
	case "status.hostIP":
		return firstAddress(facts.HostIPs)
	case "status.hostIPs":
		return addresses(facts.HostIPs)
	}
	return "", fmt.Errorf("fieldRef can't select %q: use metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.podIP, status.podIPs, status.hostIP or status.hostIPs", path)
}

// subscript splits "name['key']".
func subscript(path string) (name, key string, ok bool) {
	name, rest, ok := strings.Cut(path, "['")
	if !ok {
		return "", "", false
	}
	key, ok = strings.CutSuffix(rest, "']")
	return name, key, ok
}

func firstAddress(ips []string) (string, error) {
	if len(ips) == 0 {
		return "", errNoAddress
	}
	return ips[0], nil
}

func addresses(ips []string) (string, error) {
	if len(ips) == 0 {
		return "", errNoAddress
	}
	return strings.Join(ips, ","), nil
}

// resourceField is the value of a resourceFieldRef in units of its divisor, rounded up.
func resourceField(p *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector, facts *Facts) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		if c = pod.ContainerNamed(p, ref.ContainerName); c == nil {
			return "", fmt.Errorf("resourceFieldRef names container %q, which the pod doesn't have", ref.ContainerName)
		}
	}
	side, name, _ := strings.Cut(ref.Resource, ".")
	if !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage:
		default:
			side = ""
		}
	}
	var q resource.Quantity
	switch side {
	case "limits":
		var ok bool
		if q, ok = c.Resources.Limits[v1.ResourceName(name)]; !ok || q.IsZero() {
			q = facts.Allocatable[v1.ResourceName(name)]
		}
	case "requests":
		q = c.Resources.Requests[v1.ResourceName(name)]
	default:
		return "", fmt.Errorf("resourceFieldRef can't select %q: use limits or requests of cpu, memory, ephemeral-storage or hugepages-SIZE", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if v1.ResourceName(name) == v1.ResourceCPU {
		return strconv.FormatInt(divideUp(q.MilliValue(), divisor.MilliValue()), 10), nil
	}
	return strconv.FormatInt(divideUp(q.Value(), divisor.Value()), 10), nil
}

func divideUp(a, b int64) int64 {
	n := a / b
	if a%b > 0 {
		n++
	}
	return n
}
