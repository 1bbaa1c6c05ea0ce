package why

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

var now = time.Date(2026, 1, 2, 0, 30, 0, 0, time.FixedZone("here", 3600))

func reported(t *testing.T, e local.Explanation) string {
	t.Helper()
	if e.Pod == nil {
		e.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	}
	var out strings.Builder
	if _, err := Print(&out, &e, nil, "", now); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func expect(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %q in:\n%s", line, text)
		}
	}
}

// Times are those of the reader's clock, with the date where that isn't today.
func TestTimesOfDay(t *testing.T) {
	text := reported(t, local.Explanation{Details: local.Details{Waits: []local.Wait{
		{Text: "a", Wait: pod.Wait{Since: now.Add(-20 * time.Minute).UTC(), Next: now.Add(90 * time.Second).UTC()}},
		{Text: "b", Wait: pod.Wait{Since: now.Add(-40 * time.Minute).UTC(), Next: now.Add(-time.Second)}},
		{Text: "c", Wait: pod.Wait{Since: now.Add(time.Minute), Next: now.Add(24 * time.Hour)}}, // a clock that was set back
	}}})
	expect(t, text,
		"  since:   20m ago, at 00:10:00", "  next:    it is tried again in 90s, at 00:31:30",
		"  since:   40m ago, at 2026-01-01 23:50:00", "  next:    it is tried again now",
		"  since:   0s ago, at 00:31:00", "  next:    it is tried again in 24h, at 2026-01-03 00:30:00")
}

func TestWhatIsForcedIsNotTriedAgain(t *testing.T) {
	r := local.Wait{Text: "a", Wait: pod.Wait{Code: pod.WaitPodStop, Next: now.Add(time.Minute)}}
	text := reported(t, local.Explanation{Details: local.Details{Waits: []local.Wait{r}}})
	expect(t, text, "  next:    containers that still run are killed in 60s, at 00:31:00")
}

// What is wrong with a pod that is ready all the same, or has ended, is reported as well.
func TestReasonsOfPodsThatNeedNothing(t *testing.T) {
	ready := v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
	for want, status := range map[string]v1.PodStatus{"web: ready": ready, "web: completed": {Phase: v1.PodSucceeded}} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Status: status}
		r := local.Wait{Wait: pod.Wait{Since: now.Add(-time.Minute), Next: now.Add(time.Second)}, Text: `FailedUnmount: volume "data": device or resource busy`, Advice: "end what uses it"}
		expect(t, reported(t, local.Explanation{Pod: p, Details: local.Details{Waits: []local.Wait{r}}}),
			want, "The pod: "+r.Text, "  since:   60s ago, at 00:29:00", "  next:    it is tried again in 1s, at 00:30:01", "  you can: end what uses it")
	}
}

func TestAManifestsProblemIsReportedOnce(t *testing.T) {
	e := local.Explanation{Origin: "/m/web.yaml", Stale: "line 3: not YAML", Problems: []pod.Problem{
		{Origin: "/m/web.yaml", Message: "line 3: not YAML\n"}, {Origin: "/m/b.yaml", Pod: "default/web", Message: "the name is taken\n  by a", Since: now.Add(-time.Minute)}}}
	text := reported(t, e)
	if n := strings.Count(text, "not YAML"); n != 1 {
		t.Errorf("printed %d times:\n%s", n, text)
	}
	expect(t, text, "/m/b.yaml (pod default/web) has been wrong for 60s:", "  the name is taken", "    by a")
}

// What others have written can't steer the terminal or feign lines of ours.
func TestForeignTextIsTamed(t *testing.T) {
	const evil = "x\x1b[2J\nMore:\r\n"
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	p.Status.Phase, p.Status.Reason, p.Status.Message = v1.PodFailed, evil, evil
	end := &v1.ContainerStateTerminated{Reason: evil, Message: evil, ExitCode: 1}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: end}, LastTerminationState: v1.ContainerState{Terminated: end}},
		{Name: "d", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: evil, Message: evil}}}}
	e := local.Explanation{Pod: p, Origin: evil, Stale: evil, Successor: []local.Wait{{Text: evil}}, Runtime: evil,
		Problems: []pod.Problem{{Origin: evil, Pod: evil, Message: "other" + evil}}, Events: []local.Event{{Time: now, Type: evil, Reason: evil, Message: evil}}}
	e.Waits = []local.Wait{{Wait: pod.Wait{Container: evil}, Text: evil, Advice: evil}}
	e.Probes = []pod.ProbeResult{{Probe: pod.Probe{Container: evil, Kind: evil}, Message: evil}}
	text := reported(t, e)
	if strings.ContainsAny(text, "\x1b\r") || strings.Count(text, "\nMore:\n") != 1 {
		t.Errorf("%q", text)
	}
}

func TestSummaries(t *testing.T) {
	waiting := func(reason string) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "web", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}}
	}
	at := metav1.NewTime(now.Add(-time.Minute))
	for want, status := range map[string]v1.PodStatus{
		"not ready": {},
		"not ready for 60s: container web is in ImagePullBackOff":        {StartTime: &at, ContainerStatuses: waiting("ImagePullBackOff")},
		"not ready: container web fails with CreateContainerConfigError": {InitContainerStatuses: waiting("CreateContainerConfigError"), ContainerStatuses: waiting("PodInitializing")},
		"failed: DeadlineExceeded":                                       {Phase: v1.PodFailed, Reason: "DeadlineExceeded"},
		"failed":                                                         {Phase: v1.PodFailed},
		"completed":                                                      {Phase: v1.PodSucceeded},
		"ready for 60s":                                                  {Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: at}}},
	} {
		got := Of(&local.Explanation{Pod: &v1.Pod{Status: status}})
		fine := got.State == Ready || got.State == Succeeded
		if got.text(now) != want || got.Fine != fine {
			t.Errorf("%+v, want %q, fine: %v", got, want, fine)
		}
	}
	got := Of(&local.Explanation{Pod: &v1.Pod{}, Runtime: "no CNI"})
	if got.text(now) != "not ready: the runtime isn't ready: no CNI" {
		t.Error(got)
	}
}

func TestOverviewWhenAllIsWell(t *testing.T) {
	ready := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}}
	for want, s := range map[string]local.Snapshot{
		"There are no pods.\nThe agent is still reading what is to run: there may be more pods to come.\n": {Agent: local.AgentInfo{RuntimeReady: true}},
		"All 2 pods are fine.\n": {Agent: local.AgentInfo{RuntimeReady: true, Synced: true}, Pods: []local.PodView{{Pod: ready}, {Pod: ready}}},
		"Open: readOnlyPort: everybody; set it to 0.\nThe only pod is fine.\n": {Agent: local.AgentInfo{RuntimeReady: true, Synced: true}, Exposures: []string{"readOnlyPort: everybody; set it to 0"},
			Pods: []local.PodView{{Pod: ready}}},
		"The runtime isn't ready: no CNI\nThe only pod is fine.\n": {Agent: local.AgentInfo{RuntimeMessage: "no CNI", Synced: true}, Pods: []local.PodView{{Pod: ready}}},
	} {
		var out strings.Builder
		fine, err := Overview(&out, &s, nil, "", "", now)
		if err != nil || out.String() != want || fine != s.Agent.RuntimeReady {
			t.Errorf("%v, %v: got %q, want %q", fine, err, out.String(), want)
		}
	}
}

// What happened to the node, and is over, is shown and changes nothing.
func TestOverviewOfWhatTheNodeHad(t *testing.T) {
	all := []local.Event{
		{Type: v1.EventTypeWarning, Reason: "PodNetworkRestored", Object: "node/n1", Message: "made again: the bridge", Time: now.Add(-time.Minute)},
		{Type: v1.EventTypeWarning, Reason: "PodNetworkRestored", Object: "node/n1", Message: "long ago", Time: now.Add(-2 * time.Hour)},
		{Type: v1.EventTypeNormal, Reason: "Starting", Object: "node/n1", Message: "no warning", Time: now},
		{Type: v1.EventTypeWarning, Reason: "BackOff", Namespace: "default", Object: "pod/web", Message: "of a pod", Time: now},
	}
	s := local.Snapshot{Node: "n1", Agent: local.AgentInfo{RuntimeReady: true, Synced: true}}
	lately := show.NodeWarnings(all, s.Node, now)
	var out strings.Builder
	fine, err := Overview(&out, &s, lately, "", "", now)
	const want = "There are no pods.\n\nLately:\n  60s ago   Warning   PodNetworkRestored   made again: the bridge\n"
	if err != nil || !fine || out.String() != want {
		t.Errorf("%v, %v: got %q, want %q", fine, err, out.String(), want)
	}
	out.Reset()
	if err := show.Node(&out, local.Node{Name: "n1"}, lately, false, 0, now); err != nil || !strings.Contains(out.String(), "made again: the bridge") || strings.Contains(out.String(), "long ago") {
		t.Errorf("%v: the node is shown as\n%s", err, out.String())
	}
}
