package env_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

func theAPI(w *world) {
	w.service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP})
}

var ofTheAPI = map[string]string{
	"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
	"KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
	"KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
}

func TestServiceVariables(t *testing.T) {
	for name, tc := range map[string]struct {
		service string
		ip      string
		ports   []v1.ServicePort
		want    map[string]string
	}{
		"the documentation's example": {"redis-primary", "10.0.0.11", []v1.ServicePort{{Port: 6379, Protocol: v1.ProtocolTCP}}, map[string]string{
			"REDIS_PRIMARY_SERVICE_HOST": "10.0.0.11", "REDIS_PRIMARY_SERVICE_PORT": "6379", "REDIS_PRIMARY_PORT": "tcp://10.0.0.11:6379",
			"REDIS_PRIMARY_PORT_6379_TCP": "tcp://10.0.0.11:6379", "REDIS_PRIMARY_PORT_6379_TCP_PROTO": "tcp",
			"REDIS_PRIMARY_PORT_6379_TCP_PORT": "6379", "REDIS_PRIMARY_PORT_6379_TCP_ADDR": "10.0.0.11",
		}},
		"several ports": {"dns", "10.0.0.2", []v1.ServicePort{{Name: "dns-udp", Port: 53, Protocol: v1.ProtocolUDP}, {Name: "m", Port: 9153}, {Name: "s", Port: 7, Protocol: v1.ProtocolSCTP}}, map[string]string{
			"DNS_SERVICE_HOST": "10.0.0.2", "DNS_SERVICE_PORT": "53", "DNS_SERVICE_PORT_DNS_UDP": "53", "DNS_SERVICE_PORT_M": "9153", "DNS_SERVICE_PORT_S": "7",
			"DNS_PORT": "udp://10.0.0.2:53", "DNS_PORT_53_UDP": "udp://10.0.0.2:53", "DNS_PORT_53_UDP_PROTO": "udp", "DNS_PORT_53_UDP_PORT": "53", "DNS_PORT_53_UDP_ADDR": "10.0.0.2",
			"DNS_PORT_9153_TCP": "tcp://10.0.0.2:9153", "DNS_PORT_9153_TCP_PROTO": "tcp", "DNS_PORT_9153_TCP_PORT": "9153", "DNS_PORT_9153_TCP_ADDR": "10.0.0.2",
			"DNS_PORT_7_SCTP": "sctp://10.0.0.2:7", "DNS_PORT_7_SCTP_PROTO": "sctp", "DNS_PORT_7_SCTP_PORT": "7", "DNS_PORT_7_SCTP_ADDR": "10.0.0.2",
		}},
		"IPv6": {"a", "fd00::a", []v1.ServicePort{{Port: 1}}, map[string]string{
			"A_SERVICE_HOST": "fd00::a", "A_SERVICE_PORT": "1", "A_PORT": "tcp://[fd00::a]:1", "A_PORT_1_TCP": "tcp://[fd00::a]:1", "A_PORT_1_TCP_PROTO": "tcp",
			"A_PORT_1_TCP_PORT": "1", "A_PORT_1_TCP_ADDR": "fd00::a",
		}},
		"no ports":     {"a", "10.0.0.2", nil, map[string]string{"A_SERVICE_HOST": "10.0.0.2"}},
		"headless":     {"a", "None", []v1.ServicePort{{Port: 1}}, map[string]string{}},
		"no address":   {"a", "", []v1.ServicePort{{Port: 1}}, map[string]string{}},
		"ExternalName": {"external", "10.0.0.2", []v1.ServicePort{{Port: 1}}, map[string]string{}},
	} {
		w := newWorld()
		w.service("ns", tc.service, tc.ip, tc.ports...)
		if name == "ExternalName" {
			w.services["ns"][0].Spec.Type = v1.ServiceTypeExternalName
		}
		if got := w.with(t); got.err != nil || fmt.Sprint(got.vars) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Which services' variables a pod gets, by its namespace and what it wants.
func TestServiceLinks(t *testing.T) {
	for _, tc := range []struct {
		name, namespace string
		links           *bool
		ownAPI          string
		want            string // the hosts' variables
		asked           string
	}{
		{"by default", "ns", nil, "", "KUBERNETES=10.96.0.1 WEB=10.0.0.3", "services of default,services of ns"},
		{"wanted", "ns", ptr.To(true), "", "KUBERNETES=10.96.0.1 WEB=10.0.0.3", "services of default,services of ns"},
		{"not wanted", "ns", ptr.To(false), "", "KUBERNETES=10.96.0.1", "services of default"},
		{"in default", "default", nil, "", "KUBERNETES=10.96.0.1 OTHER=10.0.0.2", "services of default"},
		{"not wanted in default", "default", ptr.To(false), "", "KUBERNETES=10.96.0.1", "services of default"},
		{"one's own kubernetes", "ns", nil, "10.0.0.4", "KUBERNETES=10.0.0.4 WEB=10.0.0.3", "services of default,services of ns"},
		{"one's own kubernetes, not wanted", "ns", ptr.To(false), "10.0.0.4", "KUBERNETES=10.96.0.1", "services of default"},
		{"one's own kubernetes without address", "ns", nil, "None", "KUBERNETES=10.96.0.1 WEB=10.0.0.3", "services of default,services of ns"},
	} {
		w := newWorld()
		w.service("default", "other", "10.0.0.2")
		theAPI(w)
		w.service("ns", "web", "10.0.0.3")
		w.service("third", "third", "10.0.0.5")
		if tc.ownAPI != "" {
			w.service("ns", "kubernetes", tc.ownAPI)
		}
		p := thePod()
		p.Namespace, p.Spec.EnableServiceLinks = tc.namespace, tc.links
		got := w.resolve(t, p)
		var hosts []string
		for _, name := range got.order {
			if service, ok := strings.CutSuffix(name, "_SERVICE_HOST"); ok {
				hosts = append(hosts, service+"="+got.vars[name])
			}
		}
		if got.err != nil || strings.Join(hosts, " ") != tc.want || strings.Join(w.asked, ",") != tc.asked {
			t.Errorf("%s: %v, %v; asked %v", tc.name, hosts, got.err, w.asked)
		}
	}
}

func TestServicesAndTheSpec(t *testing.T) {
	w := newWorld()
	theAPI(w)
	w.configMap("conf", map[string]string{"KUBERNETES_PORT": "from a ConfigMap", "FROM": "conf"})
	p := thePod()
	p.Spec.EnableServiceLinks = ptr.To(false)
	c := &p.Spec.Containers[0]
	c.EnvFrom = []v1.EnvFromSource{allOf("conf", "", nil)}
	c.Env = []v1.EnvVar{
		literal("URL", "https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)/$(FROM)/$(KUBERNETES_PORT)"),
		literal("KUBERNETES_SERVICE_HOST", "mine, not $(KUBERNETES_SERVICE_HOST)"),
		literal("AFTER", "$(KUBERNETES_SERVICE_HOST)"),
	}
	got := w.resolve(t, p)
	want := map[string]string{
		"URL": "https://10.96.0.1:443/conf/from a ConfigMap", "KUBERNETES_PORT": "from a ConfigMap", "FROM": "conf",
		"KUBERNETES_SERVICE_HOST": "mine, not 10.96.0.1", "AFTER": "mine, not 10.96.0.1",
	}
	for name, value := range ofTheAPI {
		if _, ok := want[name]; !ok {
			want[name] = value
		}
	}
	if got.err != nil || fmt.Sprint(got.vars) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}

// The order in which services are listed doesn't matter, and the list is left as it was.
func TestServicesInAnyOrder(t *testing.T) {
	w := newWorld()
	theAPI(w)
	for _, name := range []string{"c", "a", "b", "a-port-1-tcp"} { // the last one's ports are named as a's are
		w.service("ns", name, "10.0.0."+fmt.Sprint(len(name)), v1.ServicePort{Port: 1})
	}
	first := w.with(t)
	slices.Reverse(w.services["ns"])
	listed := slices.Clone(w.services["ns"])
	second := w.with(t)
	if first.err != nil || !slices.Equal(first.order, second.order) || fmt.Sprint(first.vars) != fmt.Sprint(second.vars) {
		t.Errorf("%v\nand then %v", first, second)
	}
	if !slices.Equal(w.services["ns"], listed) {
		t.Error("the list was changed")
	}
}

func TestServicesThatCannotBeListed(t *testing.T) {
	failing := errors.New("not read yet")
	for _, asked := range []string{"services of default", "services of ns"} {
		w := newWorld()
		w.fails[asked] = failing
		got := w.with(t)
		var problem *env.Error
		if !errors.Is(got.err, failing) || !errors.As(got.err, &problem) ||
			got.err.Error() != "container main: service variables: can't list the services of namespace "+strings.TrimPrefix(asked, "services of ")+": not read yet" {
			t.Errorf("unexpected error: %v", got.err)
		}
	}
}

func TestTooManyServices(t *testing.T) {
	w := newWorld()
	ports := make([]v1.ServicePort, 1000)
	for i := range ports {
		ports[i].Port = int32(i + 1)
	}
	for i := range 100 {
		w.service("ns", fmt.Sprintf("s%d", i), "10.0.0.1", ports...)
	}
	if got := w.with(t); got.err == nil || !strings.Contains(got.err.Error(), "enableServiceLinks") {
		t.Errorf("unexpected error: %v", got.err)
	}
}
