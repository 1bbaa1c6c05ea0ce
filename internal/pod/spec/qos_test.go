package spec

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestQOSClass(t *testing.T) {
	const (
		nothing = "{}"
		exact   = "{requests: {cpu: 500m, memory: 64Mi}, limits: {cpu: 500m, memory: 64Mi}}"
		loose   = "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 1, memory: 64Mi}}"
	)
	pod := func(containers, init []string, own string) *v1.Pod {
		text := "spec: {containers: ["
		for i, r := range containers {
			text += fmt.Sprintf("{name: c%d, resources: %s}, ", i, r)
		}
		text += "], initContainers: ["
		for i, r := range init {
			text += fmt.Sprintf("{name: i%d, resources: %s}, ", i, r)
		}
		text += "]"
		if own != "" {
			text += ", resources: " + own
		}
		p := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(text+"}"), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	of := func(containers ...string) *v1.Pod { return pod(containers, nil, "") }
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want v1.PodQOSClass
	}{
		"nothing requested":                 {of(nothing, nothing), v1.PodQOSBestEffort},
		"zero is nothing":                   {of("{requests: {cpu: 0, memory: 0}, limits: {cpu: 0, memory: 0}}"), v1.PodQOSBestEffort},
		"exact":                             {of(exact, exact), v1.PodQOSGuaranteed},
		"limits only":                       {of("{limits: {cpu: 1, memory: 1Gi}}"), v1.PodQOSGuaranteed},
		"equal amounts written differently": {of("{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1000m, memory: 1024Mi}}"), v1.PodQOSGuaranteed},
		"one container requests less than its limit": {of(exact, loose), v1.PodQOSBurstable},
		"one container requests nothing":             {of(exact, nothing), v1.PodQOSBurstable},
		"no memory limit":                            {of("{requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1}}"), v1.PodQOSBurstable},
		"memory only":                                {of("{requests: {memory: 1Gi}, limits: {memory: 1Gi}}"), v1.PodQOSBurstable},
		"an init container counts":                   {pod([]string{exact}, []string{nothing}, ""), v1.PodQOSBurstable},
		"init container alone":                       {pod([]string{nothing}, []string{"{requests: {cpu: 1}}"}, ""), v1.PodQOSBurstable},
		"the pod's own come first":                   {pod([]string{nothing, loose}, nil, exact), v1.PodQOSGuaranteed},
		"the pod's own, loose":                       {pod([]string{exact}, nil, loose), v1.PodQOSBurstable},
		"the pod's own, empty":                       {pod([]string{exact}, nil, nothing), v1.PodQOSGuaranteed},
	} {
		if got := QOSClass(c.pod); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
