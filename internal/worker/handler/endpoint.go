package handler

import (
	"errors"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// endpoint is where to connect to.
type endpoint struct {
	host string
	port int
}

// endpoint finds the host and port that a handler names. Without a host it is the
// pod's address, and without that nothing: an empty host would be this node.
func (t *Target) endpoint(host string, port intstr.IntOrString) (endpoint, error) {
	if host == "" {
		host = t.PodIP
	}
	if host == "" {
		return endpoint{}, errors.New("the pod has no address yet")
	}
	number, err := t.port(port)
	return endpoint{host, number}, err
}

// port is a number as it is, or that of the container's port with this name.
func (t *Target) port(p intstr.IntOrString) (int, error) {
	number := p.IntValue() // of a string: the number that it spells, or 0
	if p.Type == intstr.String {
		if named, ok := t.named(p.StrVal); ok {
			number = named
		} else if number == 0 {
			return 0, fmt.Errorf("the container has no port named %q: name it in ports, or give the number", p.StrVal)
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("port %s isn't in the range 1 to 65535", strconv.Quote(p.String()))
	}
	return number, nil
}

func (t *Target) named(name string) (int, bool) {
	ports := t.Ports
	if t.Container != nil {
		ports = t.Container.Ports
	}
	for i := range ports {
		if ports[i].Name == name {
			return int(ports[i].ContainerPort), true
		}
	}
	return 0, false
}

// grpcEndpoint is where a gRPC probe connects to: always the pod, by number.
func (t *Target) grpcEndpoint(action *v1.GRPCAction) (endpoint, error) {
	return t.endpoint("", intstr.FromInt32(action.Port))
}
