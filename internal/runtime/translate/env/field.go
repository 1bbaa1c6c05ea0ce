package env

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
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
