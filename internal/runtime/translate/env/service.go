package env

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// theAPI is the name of the API server's service. Pods get its variables even with enableServiceLinks false
// (kubernetes/kubernetes#120953).
const theAPI = "kubernetes"

// addServices adds the variables of services, in the order of their names.
func (r *resolver) addServices(ctx context.Context) error {
	services, err := r.services(ctx)
	if err != nil {
		return err
	}
	for _, s := range services {
		if err := r.addService(s); err != nil {
			return r.failure("variables of service "+s.Namespace+"/"+s.Name, pod.Object{}, err)
		}
	}
	return nil
}

// services returns the services whose variables the pod gets: all services of its namespace, unless
// enableServiceLinks is false; and the API server's service, unless a service of the same name is among them.
func (r *resolver) services(ctx context.Context) ([]*v1.Service, error) {
	inDefault, err := r.servicesIn(ctx, v1.NamespaceDefault)
	if err != nil {
		return nil, err
	}
	isAPI := func(s *v1.Service) bool { return s.Name == theAPI }
	var services []*v1.Service
	switch links := r.pod.Spec.EnableServiceLinks; {
	case links != nil && !*links:
	case r.pod.Namespace == v1.NamespaceDefault:
		services = inDefault
	default:
		if services, err = r.servicesIn(ctx, r.pod.Namespace); err != nil {
			return nil, err
		}
	}
	if i := slices.IndexFunc(inDefault, isAPI); i >= 0 && !slices.ContainsFunc(services, isAPI) {
		services = append(services, inDefault[i])
	}
	slices.SortFunc(services, func(a, b *v1.Service) int { return cmp.Compare(a.Name, b.Name) })
	return services, nil
}

// servicesIn returns the services of a namespace that have a cluster IP.
func (r *resolver) servicesIn(ctx context.Context, namespace string) ([]*v1.Service, error) {
	list, err := r.from.Objects.Services(ctx, namespace)
	if err != nil {
		return nil, r.failure("service variables", pod.Object{Kind: "Service", Namespace: namespace},
			fmt.Errorf("can't list the services of namespace %s: %w", namespace, err))
	}
	var services []*v1.Service
	for _, s := range list {
		if s.Spec.Type != v1.ServiceTypeExternalName && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone {
			services = append(services, s)
		}
	}
	return services, nil
}

// addService adds one service's variables according to
// https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables: its address and ports,
// and the variables of Docker's links, where the first port represents the service.
func (r *resolver) addService(s *v1.Service) error {
	prefix, ip := variablePart(s.Name), s.Spec.ClusterIP
	vars := [][2]string{{prefix + "_SERVICE_HOST", ip}}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		number := strconv.Itoa(int(port.Port))
		protocol := cmp.Or(string(port.Protocol), string(v1.ProtocolTCP))
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, number)
		if i == 0 {
			vars = append(vars, [2]string{prefix + "_SERVICE_PORT", number}, [2]string{prefix + "_PORT", url})
		}
		if port.Name != "" {
			vars = append(vars, [2]string{prefix + "_SERVICE_PORT_" + variablePart(port.Name), number})
		}
		link := prefix + "_PORT_" + number + "_" + strings.ToUpper(protocol)
		vars = append(vars, [2]string{link, url}, [2]string{link + "_PROTO", strings.ToLower(protocol)},
			[2]string{link + "_PORT", number}, [2]string{link + "_ADDR", ip})
	}
	for _, v := range vars {
		if err := r.vars.set(v[0], v[1]); err != nil {
			return err
		}
	}
	return nil
}

// variablePart converts the name of a service or port to the form that is used in names of variables.
func variablePart(name string) string {
	return strings.ReplaceAll(strings.ToUpper(name), "-", "_")
}
