package handler

import (
	"errors"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// endpoint is the address of a server that a probe or hook connects to.
type endpoint struct {
	host string
	port int
}

// endpoint returns the host and port of a handler. The default host is the pod's address. If both are empty,
// endpoint fails, because an empty host would mean this node.
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

// port returns the number of a port, which is given as a number or as the name of a container port.
func (t *Target) port(p intstr.IntOrString) (int, error) {
	number := p.IntValue() // for a string: its numeric value, or 0
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

// grpcEndpoint is the address for a gRPC probe: always the pod's, with the port number of the action.
func (t *Target) grpcEndpoint(action *v1.GRPCAction) (endpoint, error) {
	return t.endpoint("", intstr.FromInt32(action.Port))
}
