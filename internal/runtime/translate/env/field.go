package env

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

var errNoAddress = errors.New("the pod has no address: its network isn't up")

// field returns the value of a fieldRef, according to the API comment of EnvVarSource.
func field(p *v1.Pod, path string, facts *Facts) (string, error) {
	switch path {
	case "spec.nodeName":
		return p.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName, nil
	case "status.podIP":
		return addresses(facts.PodIPs[:min(1, len(facts.PodIPs))])
	case "status.podIPs":
		return addresses(facts.PodIPs)
	case "status.hostIP":
		return addresses(facts.HostIPs[:min(1, len(facts.HostIPs))])
	case "status.hostIPs":
		return addresses(facts.HostIPs)
	case "metadata.labels", "metadata.annotations": // only volumes may have all labels or annotations at once
	default:
		if text, err := pod.DownwardField(p, path); !errors.Is(err, pod.ErrUnknownField) {
			return text, err
		}
	}
	return "", fmt.Errorf("fieldRef can't select %q: use metadata.name, metadata.namespace, metadata.uid, "+
		"metadata.labels['KEY'], metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.podIP, "+
		"status.podIPs, status.hostIP or status.hostIPs", path)
}

func addresses(ips []string) (string, error) {
	if len(ips) == 0 {
		return "", errNoAddress
	}
	return strings.Join(ips, ","), nil
}
