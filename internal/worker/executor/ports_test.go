package executor

import (
	"net/netip"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// listening are sockets of one process, which kernel.Listeners finds on a host.
type listening struct {
	sockets []kernel.Listener
	by      *kernel.Process
}

func (l listening) Listeners() ([]kernel.Listener, error) { return l.sockets, nil }

func (l listening) Owner(kernel.Listener) (kernel.Process, bool) {
	if l.by == nil {
		return kernel.Process{}, false
	}
	return *l.by, true
}

func TestHostPortsThatAreTaken(t *testing.T) {
	nginx := &kernel.Process{PID: 7, Name: "nginx", Cgroups: "0::/system.slice/nginx.service\n"}
	own := &kernel.Process{PID: 8, Name: "web", Cgroups: "0::/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-x.scope\n"}
	at := func(address string, protocol v1.Protocol) []kernel.Listener {
		return []kernel.Listener{{Protocol: protocol, Address: netip.MustParseAddr(address), Port: 80}}
	}
	for name, c := range map[string]struct {
		port        v1.ContainerPort
		hostNetwork bool
		there       listening
		want        string
	}{
		"free":                          {v1.ContainerPort{HostPort: 81}, false, listening{at("0.0.0.0", v1.ProtocolTCP), nginx}, ""},
		"no host port":                  {v1.ContainerPort{ContainerPort: 80}, false, listening{at("0.0.0.0", v1.ProtocolTCP), nginx}, ""},
		"taken":                         {v1.ContainerPort{HostPort: 80}, false, listening{at("0.0.0.0", v1.ProtocolTCP), nginx}, "in use by nginx (process 7), which listens on 0.0.0.0:80: connections to that port now go"},
		"by nobody that is seen":        {v1.ContainerPort{HostPort: 80}, false, listening{at("::", v1.ProtocolTCP), nil}, "in use by another program, which listens on [::]:80"},
		"another protocol":              {v1.ContainerPort{HostPort: 80, Protocol: v1.ProtocolUDP}, false, listening{at("0.0.0.0", v1.ProtocolTCP), nginx}, ""},
		"one address of all":            {v1.ContainerPort{HostPort: 80}, false, listening{at("127.0.0.53", v1.ProtocolTCP), nginx}, "127.0.0.53:80"},
		"another address":               {v1.ContainerPort{HostPort: 80, HostIP: "10.0.0.1"}, false, listening{at("127.0.0.53", v1.ProtocolTCP), nginx}, ""},
		"all addresses for one":         {v1.ContainerPort{HostPort: 80, HostIP: "10.0.0.1"}, false, listening{at("::", v1.ProtocolTCP), nginx}, "Port 80/TCP"},
		"host's network":                {v1.ContainerPort{HostPort: 80}, true, listening{at("0.0.0.0", v1.ProtocolTCP), nginx}, "with hostNetwork the container can't listen on it"},
		"host's network, maybe another": {v1.ContainerPort{HostPort: 80}, true, listening{at("127.0.0.53", v1.ProtocolTCP), nginx}, ""},
		"the pod's own":                 {v1.ContainerPort{HostPort: 80}, true, listening{at("0.0.0.0", v1.ProtocolTCP), own}, ""},
	} {
		w := &sandboxWorld{}
		e := w.runner()
		e.cfg.Ports = c.there
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1-2"}, Spec: v1.PodSpec{HostNetwork: c.hostNetwork, Containers: []v1.Container{{Name: "main", Ports: []v1.ContainerPort{c.port}}}}}
		events := e.takenPorts(p, pod.LongRunning(p)...)
		if c.want == "" && len(events) == 0 {
			continue
		}
		if len(events) != 1 || c.want == "" || events[0].Reason != pod.ReasonHostPortConflict || events[0].Container != "main" || !strings.Contains(events[0].Message, c.want) {
			t.Errorf("%s: told %+v, want %q", name, events, c.want)
		}
		if c.hostNetwork {
			continue
		}
		// It is told once the pod has a sandbox.
		if r := e.Do(t.Context(), &pod.Desired{Pod: p}, nil, p.UID, pod.Action{Kind: pod.CreateSandbox}); r.Failure != nil || len(w.events) != 2 || w.events[1].Reason != pod.ReasonHostPortConflict {
			t.Errorf("%s: %+v, and the events are %+v", name, r.Failure, w.events)
		}
	}
}
