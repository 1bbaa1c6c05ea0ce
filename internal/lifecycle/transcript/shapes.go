package transcript

import (
	"reflect"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// formats returns the formats of the types in a transcript. They are built on first use, which takes about a
// millisecond, and never change.
var formats = sync.OnceValue(func() *types {
	ts := words.NewTypes(shapes(), reflect.TypeFor[lifecycle.Input](), reflect.TypeFor[lifecycle.Decision](),
		reflect.TypeFor[waitRest]())
	return &types{
		input:    ts.Type(reflect.TypeFor[lifecycle.Input]()),
		decision: ts.Type(reflect.TypeFor[lifecycle.Decision]()),
		memory:   ts.Type(reflect.TypeFor[lifecycle.Memory]()),
		action:   ts.Type(reflect.TypeFor[pod.Action]()),
		result:   ts.Type(reflect.TypeFor[pod.Result]()),
		failure:  ts.Type(reflect.TypeFor[pod.Failure]()),
		wait:     ts.Type(reflect.TypeFor[waitRest]()),
		event:    ts.Type(reflect.TypeFor[pod.Event]()),
		pod:      ts.Type(reflect.TypeFor[v1.Pod]()),
		status:   ts.Type(reflect.TypeFor[v1.PodStatus]()),
	}
})

type types struct {
	input, decision, memory, action, result, failure, wait, event, pod, status *words.Type
}

// shapes lists the exceptions from the rules of package words. Other fields, including new ones, are written by the
// rules and need no entry. Journals with older keys can still be read.
func shapes() map[reflect.Type]words.Shape {
	return map[reflect.Type]words.Shape{
		reflect.TypeFor[lifecycle.Input](): {
			Lists: map[string]string{"Probes": "probe"},
			Older: map[string]string{"Termination": "ending", "ExcessContainers": "surplus"}},
		reflect.TypeFor[lifecycle.Node](): {
			Older: map[string]string{"ResourcesFreedAt": "roomAt", "ContainerGC": "dead"}},
		reflect.TypeFor[lifecycle.Memory](): {Older: map[string]string{"Checkpoint": "kept", "OnDisk": "saved"}},
		reflect.TypeFor[pod.Checkpoint](): {
			Names: map[string]string{"Termination": "termination", "PostStartDone": "postStartDone"}},
		reflect.TypeFor[lifecycle.Decision](): {Lists: map[string]string{"Probes": "probe"}},
		reflect.TypeFor[pod.Observed](): {
			Lists: map[string]string{"Sandboxes": "sandbox", "Containers": "container"}},
		reflect.TypeFor[pod.Sandbox](): {Head: []string{"ID"}, Names: map[string]string{"IPs": "ips"}},
		reflect.TypeFor[pod.Container](): {
			Head: []string{"ID"}, Names: map[string]string{"SandboxID": "sandbox"},
			Older: map[string]string{"CreatedWith": "made", "RuntimeReported": "told"}},
		reflect.TypeFor[pod.Probe](): {Head: []string{"ID", "Kind"}},
		reflect.TypeFor[pod.ProbeResult](): {
			Head: []string{"ID", "Kind"}, Always: map[string]func(any) bool{"OK": always}},
		reflect.TypeFor[pod.Action](): {
			Head: []string{"Kind", "Container"}, Tail: "Why", Names: map[string]string{"SandboxID": "sandbox"},
			Older: map[string]string{"Checkpoint": "kept"},
			Always: map[string]func(any) bool{"Attempt": isKind(pod.CreateSandbox, pod.CreateContainer),
				"Grace": isKind(pod.StopContainer)}},

		// The phase is in the line of the status summary.
		reflect.TypeFor[v1.PodStatus](): {
			Head: []string{"Phase"},
			Lists: map[string]string{"Conditions": "condition", "InitContainerStatuses": "init",
				"ContainerStatuses": "container", "EphemeralContainerStatuses": "ephemeral"}},
		reflect.TypeFor[v1.PodCondition](): {
			Head: []string{"Type"}, Names: map[string]string{"LastTransitionTime": "since"}},
		reflect.TypeFor[v1.ContainerStatus](): {Head: []string{"Name"}},

		// Values may be secrets, and decisions don't depend on them.
		reflect.TypeFor[v1.EnvVar]():     {Hidden: []string{"Value"}},
		reflect.TypeFor[v1.HTTPHeader](): {Hidden: []string{"Value"}},
		// The managed fields and this annotation contain the whole manifest again, with all its values.
		reflect.TypeFor[metav1.ObjectMeta](): {
			Drop: []string{"ManagedFields"}, DropKey: map[string]string{"Annotations": v1.LastAppliedConfigAnnotation}},
	}
}

func always(any) bool { return true }

func isKind(kinds ...pod.ActionKind) func(any) bool {
	return func(p any) bool {
		a, ok := p.(*pod.Action)
		return ok && slices.Contains(kinds, a.Kind)
	}
}
