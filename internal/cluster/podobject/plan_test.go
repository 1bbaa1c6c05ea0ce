package podobject

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.UTC)

func cond(t v1.PodConditionType, status v1.ConditionStatus, reason string) v1.PodCondition {
	return v1.PodCondition{Type: t, Status: status, Reason: reason}
}

func apiPod(phase v1.PodPhase, conditions ...v1.PodCondition) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}, Status: v1.PodStatus{Phase: phase, Conditions: conditions}}
}

func deleted(p *v1.Pod) *v1.Pod {
	p.DeletionTimestamp = &metav1.Time{Time: now}
	return p
}

func says(phase v1.PodPhase, conditions ...v1.PodCondition) word {
	return word{status: &v1.PodStatus{Phase: phase, Conditions: conditions}}
}

func gone(w word) word {
	w.gone = true
	return w
}

func TestPlan(t *testing.T) {
	isReady, notReady := cond(v1.PodReady, v1.ConditionTrue, ""), cond(v1.PodReady, v1.ConditionFalse, "ContainersNotReady")
	detailed := says(v1.PodRunning, isReady)
	detailed.status.PodIP = "10.0.0.1"
	refused := says(v1.PodRunning, notReady)
	// starts says that a pod waits for its sandbox, or has it for so long.
	starts := func(reason string, sandbox time.Duration) word {
		w := says(v1.PodPending)
		w.status.StartTime = &metav1.Time{Time: now}
		w.status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}, Resources: &v1.ResourceRequirements{}}}
		there := cond(v1.PodReadyToStartContainers, v1.ConditionFalse, "")
		if sandbox >= 0 {
			there.Status, there.LastTransitionTime = v1.ConditionTrue, metav1.NewTime(now.Add(-sandbox))
			w.status.PodIP = "10.0.0.1"
		}
		w.status.Conditions = []v1.PodCondition{there}
		return w
	}
	acknowledged := apiPod(v1.PodPending)
	acknowledged.Status = *starts("ContainerCreating", -1).status.DeepCopy()
	acknowledged.Status.ContainerStatuses[0].Resources = nil
	initializing, edited := starts("PodInitializing", 0), starts("ContainerCreating", 0)
	initializing.status.InitContainerStatuses = []v1.ContainerStatus{{Name: "i", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	edited.status.ObservedGeneration = 2
	var failed apiclient.Backoff
	failed.Wait(time.Second)
	for name, tc := range map[string]struct {
		api  *v1.Pod
		word word
		h    history
		want action
		urg  urgency
		in   time.Duration
	}{
		"nothing is known":                {apiPod(v1.PodPending), word{}, history{}, nothing, 0, 0},
		"nothing differs":                 {apiPod(v1.PodRunning, isReady), says(v1.PodRunning, isReady), history{}, nothing, 0, 0},
		"others' conditions don't count":  {apiPod(v1.PodRunning, isReady, cond("example.com/gate", v1.ConditionTrue, "")), says(v1.PodRunning, isReady), history{}, nothing, 0, 0},
		"another phase":                   {apiPod(v1.PodPending), says(v1.PodRunning), history{}, patchStatus, readiness, 0},
		"readiness":                       {apiPod(v1.PodRunning, isReady), says(v1.PodRunning, notReady), history{}, patchStatus, readiness, 0},
		"a detail waits":                  {apiPod(v1.PodRunning, isReady), detailed, history{}, patchStatus, detail, hold},
		"a detail that has waited":        {apiPod(v1.PodRunning, isReady), detailed, history{differs: now.Add(-time.Minute)}, patchStatus, detail, hold - time.Minute},
		"a pod is seen":                   {apiPod(v1.PodPending), starts("ContainerCreating", -1), history{}, patchStatus, detail, hold},
		"it waits for its sandbox":        {acknowledged, starts("ContainerCreating", -1), history{}, patchStatus, detail, holdWaiting},
		"it is about to run":              {acknowledged, starts("ContainerCreating", time.Second), history{}, patchStatus, detail, holdStarting - time.Second},
		"it waited long":                  {acknowledged, starts("ContainerCreating", 0), history{differs: now.Add(-time.Minute)}, patchStatus, detail, holdStarting},
		"its init container runs":         {acknowledged, initializing, history{}, patchStatus, detail, hold},
		"it was edited":                   {acknowledged, edited, history{}, patchStatus, detail, hold},
		"it can't start":                  {acknowledged, starts("ErrImagePull", 0), history{}, patchStatus, detail, hold},
		"it can't start, after a while":   {acknowledged, starts("ErrImagePull", 0), history{differs: now.Add(-time.Second)}, patchStatus, detail, hold - time.Second},
		"after a failure":                 {apiPod(v1.PodPending), says(v1.PodRunning), history{backoff: failed}, patchStatus, readiness, failed.Due().Sub(now)},
		"the end":                         {apiPod(v1.PodRunning), says(v1.PodSucceeded), history{}, patchStatus, terminal, 0},
		"somebody ended it":               {apiPod(v1.PodFailed), says(v1.PodRunning, isReady), history{}, nothing, 0, 0},
		"what the server made of it":      {apiPod(v1.PodRunning, isReady), refused, history{sent: refused.status, acknowledged: &v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{isReady}}}, nothing, 0, 0},
		"changed since by somebody":       {apiPod(v1.PodPending, isReady), refused, history{sent: refused.status, acknowledged: &v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{isReady}}}, patchStatus, readiness, 0},
		"gone":                            {deleted(apiPod(v1.PodSucceeded)), gone(says(v1.PodSucceeded)), history{}, deleteObject, terminal, 0},
		"gone, and not deleted":           {apiPod(v1.PodSucceeded), gone(says(v1.PodSucceeded)), history{}, nothing, 0, 0},
		"gone, and a detail isn't told":   {deleted(apiPod(v1.PodSucceeded, cond(v1.PodReadyToStartContainers, v1.ConditionTrue, ""))), gone(says(v1.PodSucceeded)), history{}, deleteObject, terminal, 0},
		"a detail of one that is deleted": {deleted(apiPod(v1.PodSucceeded, cond(v1.PodReadyToStartContainers, v1.ConditionTrue, ""))), says(v1.PodSucceeded), history{}, patchStatus, detail, holdEnding},
		"gone, and not told":              {deleted(apiPod(v1.PodRunning)), gone(says(v1.PodSucceeded)), history{}, patchStatus, terminal, 0},
		"gone, and in no terminal phase":  {deleted(apiPod(v1.PodRunning)), gone(says(v1.PodRunning)), history{}, nothing, 0, 0},
		"deleted, and not gone":           {deleted(apiPod(v1.PodSucceeded)), says(v1.PodSucceeded), history{}, nothing, 0, 0},
		"deleted once, and has finalizer": {deleted(apiPod(v1.PodSucceeded)), gone(says(v1.PodSucceeded)), history{deleted: true}, nothing, 0, 0},
	} {
		got := plan(tc.api, tc.word, &tc.h, statusEquality(), now)
		if got.action != tc.want || got.urgency != tc.urg || got.action != nothing && got.due.Sub(now) != tc.in {
			t.Errorf("%s: %d, urgency %d in %s; want %d, %d in %s", name, got.action, got.urgency, got.due.Sub(now), tc.want, tc.urg, tc.in)
		}
	}
}

// TestPatch: a patch has what differs of what is ours, and nothing else.
func TestPatch(t *testing.T) {
	at := metav1.NewTime(now)
	scheduled := v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: at}
	disruption, ended := cond(v1.DisruptionTarget, v1.ConditionTrue, "EvictionByEvictionAPI"), cond(v1.DisruptionTarget, v1.ConditionTrue, v1.PodReasonTerminationByKubelet)
	for name, tc := range map[string]struct {
		api, ours v1.PodStatus
		want      string // empty for none
	}{
		"times to the second": {v1.PodStatus{StartTime: &metav1.Time{Time: now.Truncate(time.Second)}}, v1.PodStatus{StartTime: &at}, ``},
		"the claims of others stay": {v1.PodStatus{ResourceClaimStatuses: []v1.PodResourceClaimStatus{{Name: "x"}}, NominatedNodeName: "n", ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{}}, v1.PodStatus{Phase: v1.PodRunning},
			`{"phase":"Running"}`},
		"an address": {v1.PodStatus{PodIP: "1", PodIPs: []v1.PodIP{{IP: "1"}}}, v1.PodStatus{PodIP: "2", PodIPs: []v1.PodIP{{IP: "2"}}},
			`{"podIP":"2","podIPs":[{"$patch":"replace"},{"ip":"2"}]}`},
		"the scheduler dated it":        {v1.PodStatus{Conditions: []v1.PodCondition{scheduled}}, v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.PodScheduled, v1.ConditionTrue, "")}}, ``},
		"nobody scheduled it":           {v1.PodStatus{}, v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.PodScheduled, v1.ConditionTrue, "")}}, `{"conditions":[{"lastProbeTime":null,"lastTransitionTime":null,"status":"True","type":"PodScheduled"}]}`},
		"somebody disrupts it":          {v1.PodStatus{Conditions: []v1.PodCondition{disruption}}, v1.PodStatus{Conditions: []v1.PodCondition{disruption}}, ``},
		"it isn't ours to take back":    {v1.PodStatus{Conditions: []v1.PodCondition{disruption}}, v1.PodStatus{}, ``},
		"we end it":                     {v1.PodStatus{}, v1.PodStatus{Conditions: []v1.PodCondition{ended}}, `{"conditions":[{"lastProbeTime":null,"lastTransitionTime":null,"reason":"TerminationByKubelet","status":"True","type":"DisruptionTarget"}]}`},
		"a condition of ours goes":      {v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.PodResizePending, v1.ConditionTrue, "")}}, v1.PodStatus{}, `{"conditions":[{"$patch":"delete","type":"PodResizePending"}]}`},
		"what others wrote isn't taken": {v1.PodStatus{}, v1.PodStatus{Conditions: []v1.PodCondition{cond("example.com/gate", v1.ConditionTrue, "")}}, ``},
	} {
		t.Run(name, func(t *testing.T) {
			p := apiPod("")
			p.Status = tc.api
			s := plan(p, word{status: &tc.ours}, &history{}, statusEquality(), now)
			if (s.action == nothing) != (tc.want == "") {
				t.Fatalf("action %d", s.action)
			}
			if s.action == nothing {
				return
			}
			body, err := patch(p, s.was, s.is)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(`{"metadata":{"uid":"1"},"status":`+tc.want+`}`), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("patch %s\nwant %s", body, tc.want)
			}
		})
	}
}
