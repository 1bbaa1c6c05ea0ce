package why

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// podSummary is a pod with its summary.
type podSummary struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Summary   `json:",inline"`
	// Waits lists the reasons why the pod waits, each with a code, data and a time.
	Waits []local.Wait `json:"waits,omitempty"`
}

// overview lists the problems of a node.
type overview struct {
	metav1.TypeMeta `json:",inline"`

	Fine bool `json:"fine"`
	// Total is the number of all pods. Pods are the pods that aren't fine.
	Total int          `json:"total"`
	Pods  []podSummary `json:"pods,omitempty"`
	// Runtime says why the runtime isn't ready.
	Runtime  string        `json:"runtime,omitempty"`
	Problems []pod.Problem `json:"problems,omitempty"`
	// Exposures are settings that open the node. They are intended, so they don't affect Fine.
	Exposures []string `json:"exposures,omitempty"`
	// Lately are recent warnings about the node itself. Their causes may be gone.
	Lately []local.Event `json:"lately,omitempty"`
}

// Overview prints the problems in a namespace and the recent warnings about the node (lately). An empty namespace means
// all namespaces. The output is text, or JSON or YAML if the parameter as requests that format. Overview reports
// whether everything is fine.
func Overview(out io.Writer, s *local.Snapshot, lately []local.Event, namespace, as string,
	now time.Time) (fine bool, err error) {
	o := overviewOf(s, namespace)
	o.Lately = lately
	if done, err := show.As(out, as, o); done {
		return o.Fine, err
	}
	t := &printer{now: now}
	if o.Runtime != "" {
		t.line("The runtime isn't ready: %s", o.Runtime)
	}
	for i := range o.Pods {
		t.line("%s/%s: %s", o.Pods[i].Namespace, o.Pods[i].Name, o.Pods[i].text(now))
	}
	problems, others := show.FirstProblems(o.Problems)
	for i := range problems {
		p := &problems[i]
		text, more := p.Message, ""
		if lines := strings.Split(strings.TrimSpace(p.Message), "\n"); len(lines) > 1 {
			text, more = lines[0], fmt.Sprintf(" (and %d more)", len(lines)-1)
		}
		short := *p
		short.Pod = "" // the text names the pod
		t.line("%s%s%s", troubled(&short, now), because(text), more)
		if p.Advice != "" {
			t.line("  you can: %s", p.Advice)
		}
	}
	if others != "" {
		t.line("%s.", others)
	}
	for _, e := range o.Exposures {
		t.line("Open: %s.", e)
	}
	switch where := in(namespace); {
	case len(o.Pods) > 0:
		t.line("\n%d of %d pods%s not fine. `deckhand why POD` says more.", len(o.Pods), o.Total,
			where+isAre(len(o.Pods)))
	case o.Total == 0:
		t.line("There are no pods%s.", where)
	case o.Total == 1:
		t.line("The only pod%s is fine.", where)
	default:
		t.line("All %d pods%s are fine.", o.Total, where)
	}
	if !s.Agent.Synced {
		t.line("The agent is still reading what is to run: there may be more pods to come.")
	}
	t.events(lately)
	_, err = io.WriteString(out, t.text.String())
	return o.Fine, err
}

func overviewOf(s *local.Snapshot, namespace string) overview {
	o := overview{TypeMeta: show.Kind("Overview"), Exposures: s.Exposures}
	if !s.Agent.RuntimeReady {
		o.Runtime = s.Agent.RuntimeMessage
	}
	for i := range s.Pods {
		p := s.Pods[i].Pod
		if namespace != "" && p.Namespace != namespace {
			continue
		}
		o.Total++
		e := local.Explain(s, i, local.Details{}, nil)
		if v := Of(&e); !v.Fine {
			o.Pods = append(o.Pods, podSummary{p.Namespace, p.Name, v, e.Waits})
		}
	}
	for _, p := range s.Problems {
		if namespace == "" || p.Pod == "" || strings.HasPrefix(p.Pod, namespace+"/") {
			o.Problems = append(o.Problems, p)
		}
	}
	o.Fine = len(o.Pods)+len(o.Problems) == 0 && o.Runtime == ""
	return o
}

func isAre(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// in returns " in namespace x"; empty for all namespaces.
func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}
