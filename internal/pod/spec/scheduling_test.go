package spec

import "testing"

func TestSchedulingRules(t *testing.T) {
	runRules(t, []ruleCase{
		{"{nodeSelector: {'a b': x}}", "Invalid spec.nodeSelector"},
		{"{priorityClassName: A}", "Invalid spec.priorityClassName"},
		{"{preemptionPolicy: Maybe}", "NotSupported spec.preemptionPolicy"},
		{"{schedulingGates: [{name: a/b}, {}, {name: 'a b'}, {name: a/b}]}", "Required spec.schedulingGates[1].name\nInvalid spec.schedulingGates[2].name\nDuplicate spec.schedulingGates[3]"},
		{"{schedulingGates: [{name: a}], nodeName: n}", "Forbidden spec.nodeName"},
		{"{schedulingGroup: {}}", "Required spec.schedulingGroup"},
		{"{schedulingGroup: {podGroupName: A}}", "Invalid spec.schedulingGroup.podGroupName"},
		{"{schedulingGroup: {podGroupName: a}}", ""},
	})
}

func TestTolerationRules(t *testing.T) {
	const l = "spec.tolerations[0]"
	runRules(t, []ruleCase{
		{"{tolerations: [{operator: Exists}, {key: a, value: b, effect: NoSchedule}, {key: a, operator: Gt, value: '-5'}, {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]}", ""},
		{"{tolerations: [{key: 'a b'}]}", "Invalid " + l + ".key"},
		{"{tolerations: [{operator: Equal}]}", "Invalid " + l + ".operator"},
		{"{tolerations: [{key: a, operator: Is}]}", "NotSupported " + l + ".operator"},
		{"{tolerations: [{key: a, value: 'b c'}]}", "Invalid " + l + ".value"},
		{"{tolerations: [{key: a, operator: Exists, value: b}]}", "Invalid " + l + ".value"},
		{"{tolerations: [{key: a, operator: Lt, value: b}]}", "Invalid " + l + ".value"},
		{"{tolerations: [{key: a, effect: Never}]}", "NotSupported " + l + ".effect"},
		{"{tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 1}]}", "Invalid " + l + ".effect"},
	})
}

func TestNodeAffinityRules(t *testing.T) {
	const a = "spec.affinity.nodeAffinity."
	const required, preferred = a + "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", a + "preferredDuringSchedulingIgnoredDuringExecution"
	terms := func(terms string) string {
		return "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [" + terms + "]}}}}"
	}
	runRules(t, []ruleCase{
		{terms(""), "Required " + required},
		{terms("{matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: Exists}, {key: a, operator: Gt, values: ['1']}], matchFields: [{key: metadata.name, operator: In, values: [n]}]}"), ""},
		{terms("{matchExpressions: [{key: 'a b', operator: Is}]}"), "NotSupported " + required + "[0].matchExpressions[0].operator\nInvalid " + required + "[0].matchExpressions[0].key"},
		{terms("{matchExpressions: [{key: a, operator: In}, {key: a, operator: Exists, values: [b]}, {key: a, operator: Lt}, {key: a, operator: Lt, values: [b]}]}"),
			"Required " + required + "[0].matchExpressions[0].values\nForbidden " + required + "[0].matchExpressions[1].values\nRequired " + required + "[0].matchExpressions[2].values\nInvalid " + required + "[0].matchExpressions[3].values[0]"},
		{terms("{matchFields: [{key: metadata.name, operator: Exists}, {key: a, operator: In, values: [b]}, {key: metadata.name, operator: In, values: [A]}, {key: metadata.name, operator: NotIn}]}"),
			"NotSupported " + required + "[0].matchFields[0].operator\nNotSupported " + required + "[0].matchFields[1].key\nInvalid " + required + "[0].matchFields[2].values[0]\nRequired " + required + "[0].matchFields[3].values"},
		{"{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {matchExpressions: [{key: a, operator: In}]}}, {weight: 101, preference: {}}]}}}",
			"Invalid " + preferred + "[0].weight\nRequired " + preferred + "[0].preference.matchExpressions[0].values\nInvalid " + preferred + "[1].weight"},
	})
}

func TestPodAffinityRules(t *testing.T) {
	for _, kind := range []string{"podAffinity", "podAntiAffinity"} {
		required := "spec.affinity." + kind + ".requiredDuringSchedulingIgnoredDuringExecution"
		preferred := "spec.affinity." + kind + ".preferredDuringSchedulingIgnoredDuringExecution"
		term := func(t string) string {
			return "{affinity: {" + kind + ": {requiredDuringSchedulingIgnoredDuringExecution: [{" + t + "}]}}}"
		}
		runRules(t, []ruleCase{
			{term("topologyKey: zone, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [c], mismatchLabelKeys: [d], namespaces: [n], namespaceSelector: {}"), ""},
			{term(""), "Required " + required + "[0].topologyKey"},
			{term("topologyKey: 'a b'"), "Invalid " + required + "[0].topologyKey"},
			{term("topologyKey: z, labelSelector: {matchExpressions: [{key: a, operator: Is}]}"), "Invalid " + required + "[0].labelSelector.matchExpressions[0].operator"},
			{term("topologyKey: z, namespaceSelector: {matchLabels: {a: 'b c'}}"), "Invalid " + required + "[0].namespaceSelector.matchLabels"},
			{term("topologyKey: z, namespaces: [A]"), "Invalid " + required + "[0].namespaces[0]"},
			{term("topologyKey: z, matchLabelKeys: [a], mismatchLabelKeys: [b]"), "Forbidden " + required + "[0].matchLabelKeys\nForbidden " + required + "[0].mismatchLabelKeys"},
			{term("topologyKey: z, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [a, 'c d']"), "Invalid " + required + "[0].matchLabelKeys[0]\nInvalid " + required + "[0].matchLabelKeys[1]"},
			{term("topologyKey: z, labelSelector: {}, matchLabelKeys: [a], mismatchLabelKeys: [a]"), "Invalid " + required + "[0].matchLabelKeys[0]"},
			{"{affinity: {" + kind + ": {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {}}]}}}", "Invalid " + preferred + "[0].weight\nRequired " + preferred + "[0].podAffinityTerm.topologyKey"},
		})
	}
}

func TestTopologySpreadRules(t *testing.T) {
	const s = "spec.topologySpreadConstraints"
	const good = "maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule"
	spread := func(c string) string { return "{topologySpreadConstraints: [{" + c + "}]}" }
	runRules(t, []ruleCase{
		{spread(good + ", minDomains: 1, nodeAffinityPolicy: Honor, nodeTaintsPolicy: Ignore, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [c]"), ""},
		{spread(""), "Invalid " + s + "[0].maxSkew\nRequired " + s + "[0].topologyKey\nRequired " + s + "[0].whenUnsatisfiable"},
		{spread("maxSkew: 1, topologyKey: z, whenUnsatisfiable: Never"), "NotSupported " + s + "[0].whenUnsatisfiable"},
		{spread(good + "}, {" + good), "Duplicate " + s + "[1].{topologyKey, whenUnsatisfiable}"},
		{spread(good + ", minDomains: 0"), "Invalid " + s + "[0].minDomains"},
		{spread("maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway, minDomains: 1"), "Invalid " + s + "[0].minDomains"},
		{spread(good + ", nodeAffinityPolicy: x, nodeTaintsPolicy: x"), "NotSupported " + s + "[0].nodeAffinityPolicy\nNotSupported " + s + "[0].nodeTaintsPolicy"},
		{spread(good + ", labelSelector: {matchLabels: {a: 'b c'}}"), "Invalid " + s + "[0].labelSelector.matchLabels"},
		{spread(good + ", matchLabelKeys: [a]"), "Forbidden " + s + "[0].matchLabelKeys"},
		{spread(good + ", labelSelector: {matchExpressions: [{key: a, operator: Exists}]}, matchLabelKeys: [a]"), "Invalid " + s + "[0].matchLabelKeys[0]"},
	})
}
