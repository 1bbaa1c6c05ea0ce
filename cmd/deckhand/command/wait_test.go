package command

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// Each condition is awaited until the pod meets it, and not before.
func TestWait(t *testing.T) {
	ready := func(phase v1.PodPhase, status v1.ConditionStatus) func(*local.Snapshot) {
		view := jobView(phase, running)
		view.Pod.Labels = map[string]string{"app": "job"}
		view.Pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: status}}
		return func(s *local.Snapshot) { s.Node, s.Agent.Synced, s.Pods = "n1", true, []local.PodView{view} }
	}
	none := func(s *local.Snapshot) { s.Node, s.Agent.Synced, s.Pods = "n1", true, nil }
	another := func(s *local.Snapshot) {
		view := jobView(v1.PodRunning, running)
		view.Pod.UID = "another"
		s.Pods = []local.PodView{view}
	}
	stopped := func(s *local.Snapshot) {
		view := jobView(v1.PodRunning, running)
		view.Stopped = true
		s.Pods = []local.PodView{view}
	}
	pending, up := ready(v1.PodPending, v1.ConditionFalse), ready(v1.PodRunning, v1.ConditionTrue)
	for line, tc := range map[string]struct{ before, after func(*local.Snapshot) }{
		"job --for=condition=Ready":                    {pending, up},
		"pod/job --for=condition=ready=true":           {pending, up},
		"pod job --for=condition=Ready=False":          {up, pending},
		"-l app=job --for=condition=Ready":             {pending, up},
		"--all --for=jsonpath={.status.phase}=Running": {pending, up},
		"job --for=jsonpath=.status.phase=Running":     {pending, up},
		"job --for=jsonpath={.metadata.deletionTimestamp}": {pending, func(s *local.Snapshot) {
			view := jobView(v1.PodRunning, running)
			view.Pod.DeletionTimestamp = &metav1.Time{Time: now}
			s.Pods = []local.PodView{view}
		}},
		"job --for=create":            {none, pending},
		"job --for=delete":            {up, none},
		"default/job-n1 --for=Delete": {up, another},
		"-l app=job --for=delete":     {up, stopped},
	} {
		t.Run(line, func(t *testing.T) {
			agent, asked := localtest.New(), make(chan struct{}, 9)
			agent.OnSnapshot = func() { asked <- struct{}{} }
			agent.Update(tc.before)
			deps := Deps{RootDir: localtest.Serve(t, agent)}
			once := begin(t, deps, "", append([]string{"wait", "--timeout=0"}, strings.Fields(line)...)...)
			once.expectPrefix(once.err, "error: timed out waiting for the ")
			once.ended(1)
			<-asked
			s := begin(t, deps, "", append([]string{"wait", "--timeout=1m"}, strings.Fields(line)...)...)
			<-asked
			agent.Update(tc.after)
			s.expect(s.out, "pod/job-n1 condition met")
			s.ended(0)
		})
	}

	agent := localtest.New()
	agent.Update(pending)
	deps := Deps{RootDir: localtest.Serve(t, agent)}
	for line, tc := range map[string]struct {
		says string
		code int
	}{
		"job --for=condition=Ready --timeout=1ms": {"error: timed out waiting for the ", 1},
		"job --for=condition=Ready --timeout=0":   {"error: timed out waiting for the condition on pod default/job-n1: `deckhand why default/job-n1` says", 1},
		"nobody --for=condition=Ready":            {`error: pod "nobody" not found`, 1},
		"-l app=none --for=condition=Ready":       {"error: no pods match", 1},
		"jo --for=create --timeout=0":             {"error: timed out waiting for the pods to appear", 1},
		"default/jo --for=condition=Ready":        {`error: pod "default/jo" not found`, 1},
		"job":                                     {"error: say what to wait for", 2},
		"--for=delete":                            {"error: say which pods", 2},
		"job --all --for=delete":                  {"error: pods are chosen by name (job), or", 2},
		"job --for=ready":                         {`error: --for: "ready" is none of condition=NAME`, 2},
		"job --for=condition=":                    {"error: --for: condition= needs a name", 2},
		"job --for=jsonpath={.a}=":                {"error: --for: jsonpath is written as", 2},
		"job --for=jsonpath={.a":                  {"error: --for: path", 2},
		"deploy/job --for=condition=Available":    {`error: deckhand knows no objects of the kind "deploy"`, 2},
	} {
		s := begin(t, deps, "", append([]string{"wait"}, strings.Fields(line)...)...)
		s.expectPrefix(s.err, tc.says)
		s.ended(tc.code)
	}
	for _, name := range []string{"nobody", "jo"} {
		gone := begin(t, deps, "", "wait", name, "--for=delete")
		gone.ended(0)
	}
}
