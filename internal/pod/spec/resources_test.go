package spec

import "testing"

func TestContainerResourceRules(t *testing.T) {
	const r = "spec.containers[0].resources"
	res := func(fields string) string { return c("resources: {" + fields + "}") }
	runRules(t, []ruleCase{
		{res("limits: {cpu: 500m, memory: 64Mi, ephemeral-storage: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 2}, requests: {cpu: 1m}"), ""},
		{res("limits: {cpu: -1}, requests: {memory: -1}"), "Invalid " + r + ".limits[cpu]\nInvalid " + r + ".requests[cpu]\nInvalid " + r + ".requests[memory]"},
		{res("requests: {disk: 1}"), "Invalid " + r + ".requests[disk]\nRequired " + r + ".requests[disk]"},
		{res("limits: {storage: 1}, requests: {storage: 1}"), "Invalid " + r + ".limits[storage]\nInvalid " + r + ".requests[storage]"},
		{res("limits: {'a b': 1}"), "Invalid " + r + ".limits[a b]\nInvalid " + r + ".requests[a b]"},
		{res("limits: {kubernetes.io/x: 1}"), "Invalid " + r + ".limits[kubernetes.io/x]\nInvalid " + r + ".requests[kubernetes.io/x]"},
		{res("limits: {requests.x.com/x: 1}"), "Invalid " + r + ".limits[requests.x.com/x]\nInvalid " + r + ".requests[requests.x.com/x]"},
		{res("limits: {cpu: 1}, requests: {cpu: 2}"), "Invalid " + r + ".requests[cpu]"},
		{res("limits: {example.com/gpu: 1500m}"), "Invalid " + r + ".limits[example.com/gpu]\nInvalid " + r + ".requests[example.com/gpu]"},
		{res("limits: {example.com/gpu: 2}, requests: {example.com/gpu: 1}"), "Invalid " + r + ".requests[example.com/gpu]"},
		{res("requests: {example.com/gpu: 1}"), "Required " + r + ".requests[example.com/gpu]"},
		{res("limits: {hugepages-2Mi: 2Mi}"), "Forbidden " + r},
		{res("limits: {cpu: 1, hugepages-2Mi: 3Mi}"), "Invalid " + r + ".limits[hugepages-2Mi]\nInvalid " + r + ".requests[hugepages-2Mi]"},
		{res("limits: {cpu: 1, hugepages-2Mi: 4Mi}, requests: {hugepages-2Mi: 2Mi}"), "Invalid " + r + ".requests[hugepages-2Mi]"},
		{res("limits: {cpu: 1, hugepages-x: 2}"), "Invalid " + r + ".limits[hugepages-x]\nInvalid " + r + ".requests[hugepages-x]"},
		{res("limits: {cpu: 1, hugepages-0: 2}"), "Invalid " + r + ".limits[hugepages-0]\nInvalid " + r + ".requests[hugepages-0]"},
	})
}

func TestResizePolicyRules(t *testing.T) {
	const r = "spec.containers[0].resizePolicy"
	runRules(t, []ruleCase{
		{c("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: RestartContainer}]"), ""},
		{c("resizePolicy: [{resourceName: disk, restartPolicy: Maybe}, {}]"), "NotSupported " + r + "[0].resourceName\nNotSupported " + r + "[0].restartPolicy\nRequired " + r + "[1].resourceName\nRequired " + r + "[1].restartPolicy"},
		{c("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]"), "Duplicate " + r + "[1].resourceName"},
		{"{restartPolicy: Never, containers: [{name: c, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]}", "Invalid " + r + "[0].restartPolicy"},
	})
}

func TestClaimRules(t *testing.T) {
	const p, r = "spec.resourceClaims", "spec.containers[0].resources.claims"
	claims := func(refs string) string {
		return "{resourceClaims: [{name: a, resourceClaimName: x}, {name: b, resourceClaimTemplateName: y}], containers: [{name: c, image: i, resources: {claims: [" + refs + "]}}]}"
	}
	runRules(t, []ruleCase{
		{claims("{name: a}, {name: b, request: r}, {name: b, request: s}"), ""},
		{claims("{}"), "Required " + r + "[0].name"},
		{claims("{name: z}"), "NotFound " + r + "[0].name"},
		{claims("{name: a, request: A}"), "Invalid " + r + "[0].request"},
		{claims("{name: a}, {name: a}"), "Duplicate " + r + "[1]"},
		{claims("{name: a}, {name: a, request: r}"), "Duplicate " + r + "[1]"},
		{claims("{name: a, request: r}, {name: a}"), "Duplicate " + r + "[1]"},
		{"{resourceClaims: [{name: a}, {name: A, resourceClaimName: x, resourceClaimTemplateName: y}, {name: a, resourceClaimName: X}, {name: d, resourceClaimTemplateName: X}]}",
			"Required " + p + "[0]\nInvalid " + p + "[1].name\nInvalid " + p + "[1]\nDuplicate " + p + "[2].name\nInvalid " + p + "[2].resourceClaimName\nInvalid " + p + "[3].resourceClaimTemplateName"},
	})
}

func TestPodResourceRules(t *testing.T) {
	const r = "spec.resources"
	with := func(pod, container string) string {
		return "{resources: {" + pod + "}, containers: [{name: c, image: i, resources: {" + container + "}}]}"
	}
	runRules(t, []ruleCase{
		{with("limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}", "limits: {cpu: 1}"), ""},
		{with("limits: {ephemeral-storage: 1}", ""), "NotSupported " + r + ".limits[ephemeral-storage]"},
		{with("claims: [{name: a}]", ""), "Forbidden " + r + ".claims"},
		{with("limits: {cpu: 1}, requests: {cpu: 2}", ""), "Invalid " + r + ".requests[cpu]"},
		{with("requests: {cpu: 1}", "requests: {cpu: 2}"), "Invalid " + r + ".requests[cpu]"},
		{with("limits: {cpu: 1}", "limits: {cpu: 2}, requests: {cpu: 1}"), "Invalid spec.containers[0].resources.limits[cpu]"},
		{"{resources: {limits: {memory: 1Gi}}, initContainers: [{name: i, image: i, resources: {limits: {memory: 2Gi}, requests: {memory: 1Mi}}}]}", "Invalid spec.initContainers[0].resources.limits[memory]"},
		{with("limits: {hugepages-2Mi: 2Mi}", ""), "Forbidden " + r},
	})
}
