package spec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestMetadata(t *testing.T) {
	const apparmor = v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix
	for _, tc := range []struct {
		name, want string
		change     func(*v1.Pod)
	}{
		{"good", "", func(*v1.Pod) {}},
		{"no name", "Required metadata.name", func(p *v1.Pod) { p.Name = "" }},
		{"bad name", "Invalid metadata.name", func(p *v1.Pod) { p.Name = "A_b" }},
		{"no namespace", "Required metadata.namespace", func(p *v1.Pod) { p.Namespace = "" }},
		{"bad namespace", "Invalid metadata.namespace", func(p *v1.Pod) { p.Namespace = "a.b" }},
		{"bad label", "Invalid metadata.labels", func(p *v1.Pod) { p.Labels = map[string]string{"a": "b c"} }},
		{"bad annotation key", "Invalid metadata.annotations", func(p *v1.Pod) { p.Annotations = map[string]string{"a b": ""} }},
		{"huge annotations", "TooLong metadata.annotations", func(p *v1.Pod) {
			p.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10)}
		}},
		{"deletion cost", "Invalid metadata.annotations[controller.kubernetes.io/pod-deletion-cost]", func(p *v1.Pod) {
			p.Annotations = map[string]string{v1.PodDeletionCost: "much"}
		}},
		{"AppArmor annotation, good", "", func(p *v1.Pod) {
			p.Annotations = map[string]string{apparmor + "c": "localhost/x"}
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: "Localhost", LocalhostProfile: new("x")}}
		}},
		{"AppArmor annotation, beside another field", "", func(p *v1.Pod) {
			p.Annotations = map[string]string{apparmor + "c": "runtime/default", "other": "x"}
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: new(true)}
		}},
		{"AppArmor annotation, no such container and value",
			"Invalid metadata.annotations[" + apparmor + "d]\nInvalid metadata.annotations[" + apparmor + "d]",
			func(p *v1.Pod) { p.Annotations = map[string]string{apparmor + "d": "x"} }},
		{"AppArmor annotation against the field", "Forbidden metadata.annotations[" + apparmor + "c]", func(p *v1.Pod) {
			p.Annotations = map[string]string{apparmor + "c": "unconfined"}
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: "RuntimeDefault"}}
		}},
	} {
		p := podOf(t, "{}")
		tc.change(p)
		if errs := Validate(p); describe(errs) != tc.want {
			t.Errorf("%s: got\n%v\nwant\n%s", tc.name, errs.ToAggregate(), tc.want)
		}
	}
}

func TestPodRules(t *testing.T) {
	runRules(t, []ruleCase{
		{"{}", ""},
		{"{containers: []}", "Required spec.containers"},
		{"{restartPolicy: Sometimes}", "NotSupported spec.restartPolicy"},
		{"{terminationGracePeriodSeconds: -1}", "Invalid spec.terminationGracePeriodSeconds"},
		{"{terminationGracePeriodSeconds: 0}", ""},
		{"{activeDeadlineSeconds: 0}", "Invalid spec.activeDeadlineSeconds"},
		{"{activeDeadlineSeconds: 2147483648}", "Invalid spec.activeDeadlineSeconds"},
		{"{readinessGates: [{conditionType: a/b}, {conditionType: ''}, {conditionType: 'a b'}]}",
			"Required spec.readinessGates[1].conditionType\nInvalid spec.readinessGates[2].conditionType"},
		{"{serviceAccountName: A}", "Invalid spec.serviceAccountName"},
		{"{nodeName: A}", "Invalid spec.nodeName"},
		{"{runtimeClassName: A}", "Invalid spec.runtimeClassName"},
		{"{imagePullSecrets: [{name: a}, {}]}", "Required spec.imagePullSecrets[1].name"},
		{"{hostname: a.b}", "Invalid spec.hostname"},
		{"{subdomain: A}", "Invalid spec.subdomain"},
		{"{hostnameOverride: A}", "Invalid spec.hostnameOverride"},
		{"{hostnameOverride: ''}", "Required spec.hostnameOverride"},
		{"{hostnameOverride: " + strings.Repeat("a", 65) + "}", "TooLong spec.hostnameOverride"},
		{"{hostnameOverride: a.b, hostNetwork: true}", "Forbidden spec.hostnameOverride"},
		{"{hostnameOverride: a.b, setHostnameAsFQDN: true}", "Forbidden spec.setHostnameAsFQDN"},
		{"{hostnameOverride: a.b, setHostnameAsFQDN: false}", ""},
		{"{hostAliases: [{ip: 10.0.0.1, hostnames: [a, b.c, A]}, {ip: x}, {ip: ''}]}",
			"Invalid spec.hostAliases[0].hostnames[2]\nInvalid spec.hostAliases[1].ip\nInvalid spec.hostAliases[2].ip"},
		{"{ephemeralContainers: [{name: e, image: i}]}", ""},
		{"{overhead: {cpu: -1}}", "Invalid spec.overhead[cpu]"},
	})
}

func TestDNSRules(t *testing.T) {
	runRules(t, []ruleCase{
		{"{dnsPolicy: x}", "NotSupported spec.dnsPolicy"},
		{"{dnsPolicy: None}", "Required spec.dnsConfig"},
		{"{dnsPolicy: None, dnsConfig: {}}", "Required spec.dnsConfig.nameservers"},
		{"{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1, '::1'], searches: [., a_b.c., x], options: [{name: ndots, value: '2'}]}}", ""},
		{"{dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, x]}}", "TooMany spec.dnsConfig.nameservers\nInvalid spec.dnsConfig.nameservers[3]"},
		{"{dnsConfig: {searches: " + repeat("a", 33) + "}}", "TooMany spec.dnsConfig.searches"},
		{"{dnsConfig: {searches: " + repeat(strings.Repeat("a", 63)+"."+strings.Repeat("b", 40), 20) + "}}", "TooLong spec.dnsConfig.searches"},
		{"{dnsConfig: {searches: ['a b']}}", "Invalid spec.dnsConfig.searches[0]"},
		{"{dnsConfig: {options: [{value: x}]}}", "Required spec.dnsConfig.options[0].name"},
	})
}
