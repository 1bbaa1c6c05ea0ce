package validation

import (
	"fmt"
	"math"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// serving checks addresses and ports.
func (k *check) serving() {
	k.address("address", k.Address)
	k.address("healthzBindAddress", k.HealthzBindAddress)
	if k.Port < 1 || k.Port > math.MaxUint16 {
		k.invalid(at("port"), k.Port, "must be a port from 1 to 65535; enableServer: false turns the server off")
	}
	k.optionalPort("readOnlyPort", k.ReadOnlyPort)
	k.optionalPort("healthzPort", *k.HealthzPort)
	k.sharedPorts()
	if *k.EnableSystemLogQuery && !*k.EnableSystemLogHandler {
		k.forbidden(at("enableSystemLogQuery"), "needs enableSystemLogHandler: true")
	}
}

func (k *check) address(name, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		k.invalid(at(name), value, `must be an IP address such as "127.0.0.1" or "::"`)
	}
}

func (k *check) optionalPort(name string, value int32) {
	if value < 0 || value > math.MaxUint16 {
		k.invalid(at(name), value, "must be a port from 1 to 65535, or 0 to disable it")
	}
}

// listener is a port that the configuration opens: the name of the port's field, and the address.
type listener struct {
	name, address string
	port          int32
}

// sharedPorts rejects listeners with the same port on overlapping addresses.
func (k *check) sharedPorts() {
	var all []listener
	add := func(name, address string, port int32, wanted bool) {
		if !wanted || port <= 0 || port > math.MaxUint16 {
			return
		}
		for _, other := range all {
			if other.port == port && overlap(other.address, address) {
				k.addBeside(at(other.name),
					field.Invalid(at(name), port,
						fmt.Sprintf("is the number of %s too, on %s; each needs one of its own", other.name,
							other.address)))
			}
		}
		all = append(all, listener{name, address, port})
	}
	add("port", k.Address, k.Port, *k.EnableServer)
	add("healthzPort", k.HealthzBindAddress, *k.HealthzPort, true)
	add("readOnlyPort", k.Address, k.ReadOnlyPort, true)
}

// access checks authentication and authorization of the server.
func (k *check) access() {
	k.file(at("authentication", "x509", "clientCAFile"), k.Authentication.X509.ClientCAFile)
	k.notNegative(at("authentication", "webhook", "cacheTTL"), k.Authentication.Webhook.CacheTTL.Duration)
	oneOf(k, at("authorization", "mode"), k.Authorization.Mode, v1beta1.KubeletAuthorizationModeAlwaysAllow,
		v1beta1.KubeletAuthorizationModeWebhook)
	k.notNegative(at("authorization", "webhook", "cacheAuthorizedTTL"),
		k.Authorization.Webhook.CacheAuthorizedTTL.Duration)
	k.notNegative(at("authorization", "webhook", "cacheUnauthorizedTTL"),
		k.Authorization.Webhook.CacheUnauthorizedTTL.Duration)
}
