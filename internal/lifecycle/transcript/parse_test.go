package transcript

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestParseErrors: what is wrong is reported with its line and in words.
func TestParseErrors(t *testing.T) {
	const top = "a comment\n-- pod.yaml --\nmetadata: {name: a}\n-- transcript --\n"
	const at = "> at 2026-01-01T00:00:00Z\n"
	for _, c := range []struct{ text, want string }{
		{"nothing\n", `no section "transcript"`},
		{"-- pod.yaml --\nspek: {}\n-- transcript --\n", "section pod.yaml isn't a pod"},
		{top + "> pod pod.yaml\n", "line 5: the first line has to give the time"},
		{top + "> +1s\n", "line 5: the first step has to begin with the time it was at"},
		{top + "  done\n", "line 5: a decision has to follow a line with the time"},
		{top + at + "do it\n", "line 6: a line begins with"},
		{top + at + "> pod pod-7.yaml\n", "line 6: there is no section pod-7.yaml"},
		{top + at + "> +soon\n", `line 6: "+soon" isn't a time like +1.5s`},
		{top + "> at noon\n", `line 5: "noon" is neither a time`},
		{top + at + "> kettle black\n", `line 6: nothing is known of "kettle"`},
		{top + at + "> sandbox sb1 colour=red\n", "line 6: colour=red: there is no field colour"},
		{top + at + "> sandbox sb1 attempt=many\n", "line 6: attempt=many: has to be an integer and not negative"},
		{top + at + "> gone sandbox sb1\n", "line 6: there was no such sandbox"},
		{top + at + "> result CreateSandbox id=sb1\n", "line 6: no such action is under way: CreateSandbox"},
		{top + at + "> result failed\n", "line 6: failed is followed by"},
		{top + at + "> sandbox sb1 state=\"Ready\n", "line 6: a quote or bracket isn't closed"},
		{top + at + "# fine\n\n> sandbox sb1 place=5\n", "line 8: place=5 has to be a number from 0 to 0"},
		{top + at + "  done\n> sandbox sb1\n", "line 7: what happened has to come before what was decided"},
		{top + at + "  done\n", "line 5: there is neither a pod nor a stop"},
		{top + at + "> pod pod.yaml\n  done\n> +1s\n> gone pod\n  done\n", "line 8: there is neither a pod nor a stop"},
		{top + at + ">  \n", "line 6: nothing follows the >"},
		{top + at + "  do Keep (because\n", "line 6: a text in parentheses has to go on to the end"},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
}

// TestByHand: a person may write a transcript, with as little as is needed.
func TestByHand(t *testing.T) {
	tr := parse(t, []byte(`By hand.
-- pod.yaml --
metadata: {name: a, uid: u1}
-- transcript --
#! begin
> at 2026-01-01T00:00:00Z
> pod pod.yaml
> sandbox sb1 state=Ready ips=[10.0.0.1,fd00::1]
> container web1 name=web sandbox=sb1 state=Running startedAt=-1m grace=5
> container web2 place=0 name=web attempt=1
  do CreateContainer side sandbox=sb1 attempt=0 (it never ran)
  do StopContainer web id=web1 grace=30s

> +2.5s
> gone container web2
> container web1 state=Exited exitCode=1
> result CreateContainer side failed ErrImagePull "it \"broke\"" failure.permanent
> stop at=+2s why="its manifest is gone" grace=0s
  done
`))
	if len(tr.Steps) != 2 || tr.Comment != "By hand.\n" {
		t.Fatalf("%d steps, comment %q", len(tr.Steps), tr.Comment)
	}
	one, two := tr.Steps[0], tr.Steps[1]
	if one.Line != 6 || two.Line != 14 || one.Comments[0] != "#! begin" || one.Input.Pod.UID != "u1" || two.Input.Pod != one.Input.Pod {
		t.Errorf("%+v\n%+v", one, two)
	}
	if c := one.Input.Observed.Containers; len(c) != 2 || c[0].ID != "web2" || c[1].State != pod.ContainerRunning || *c[1].Grace != 5 || !c[1].StartedAt.Equal(epoch.Add(-time.Minute)) {
		t.Errorf("containers first: %+v", c)
	}
	if c := two.Input.Observed.Containers; len(c) != 1 || c[0].State != pod.ContainerExited || c[0].SandboxID != "sb1" {
		t.Errorf("containers then: %+v", c)
	}
	r := two.Input.Results[0]
	if r.Action.SandboxID != "sb1" || r.Action.Why != "it never ran" || *r.Failure != (pod.Failure{Reason: "ErrImagePull", Message: `it "broke"`, Permanent: true}) || !r.At.Equal(epoch.Add(2500*time.Millisecond)) {
		t.Errorf("result %+v", r)
	}
	if f := two.Input.InFlight; len(f) != 1 || f[0].Kind != pod.StopContainer || f[0].Grace != 30*time.Second {
		t.Errorf("under way: %+v", f)
	}
	if s := two.Input.Stop; s.Why != "its manifest is gone" || *s.Grace != 0 || two.Decision[0] != "done" {
		t.Errorf("stop %+v, decision %q", s, two.Decision)
	}
}

// TestOlderJournals: what is waited for was one text, and waits were known by their sentences.
func TestOlderJournals(t *testing.T) {
	tr, err := Parse([]byte(`-- pod.yaml --
metadata: {name: web, namespace: default, uid: u1}
-- transcript --
> at 2026-01-02T03:04:05Z
> pod pod.yaml
> memory retries={"start/web":{"Count":1,"Failure":{"reason":"CreateContainerConfigError","message":"m","awaits":"Secret default/s"}}} since={"web/is being created":"2026-01-02T03:04:05Z"}
  do CreateSandbox attempt=0 (the pod has no live sandbox)
> +1s
> result CreateSandbox failed FailedCreatePodSandBox "no such class" failure.awaits="RuntimeClass kata"
`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tr.Steps[0].Input.Memory.Retries["start/web"].Failure.Awaits, (pod.Object{Kind: "Secret", Namespace: "default", Name: "s"}); got != want {
		t.Errorf("remembered: %+v", got)
	}
	if got, want := tr.Steps[1].Input.Results[0].Failure.Awaits, (pod.Object{Kind: "RuntimeClass", Name: "kata"}); got != want {
		t.Errorf("a result: %+v", got)
	}
}

// TestOlderKeys: keys that were others are read, and an action is compared as it is written today.
func TestOlderKeys(t *testing.T) {
	read := func(text string) []Step {
		t.Helper()
		tr, err := Parse([]byte("-- pod.yaml --\nmetadata: {name: web, namespace: default, uid: u1}\n-- transcript --\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		return tr.Steps
	}
	older := read(`> at 2026-01-02T03:04:05Z
> pod pod.yaml
> sandbox sb1 state=Ready
> container web2 name=web sandbox=sb1 made.resources={} told.stopSignal=SIGINT
> node roomAt=+1s dead.perContainer=2
> ending at=+1s reason=Evicted
> surplus [web1]
> memory kept.hooked=[web2] kept.ending.reason=Evicted saved=@kept retries={"Keep/pod":{"Count":1}}
  do Keep kept.hooked=[web2] kept.ending.reason=Evicted (it isn't on disk)
> +1s
> result Keep
`)
	today := read(`> at 2026-01-02T03:04:05Z
> pod pod.yaml
> sandbox sb1 state=Ready
> container web2 name=web sandbox=sb1 createdWith.resources={} runtimeReported.stopSignal=SIGINT
> node resourcesFreedAt=+1s containerGC.perContainer=2
> termination at=+1s reason=Evicted
> excessContainers [web1]
> memory checkpoint.postStartDone=[web2] checkpoint.termination.reason=Evicted onDisk=@checkpoint retries={"SaveCheckpoint/pod":{"Count":1}}
  do SaveCheckpoint checkpoint.postStartDone=[web2] checkpoint.termination.reason=Evicted (it isn't on disk)
> +1s
> result SaveCheckpoint
`)
	for i := range today {
		if d := cmp.Diff(today[i].Input, older[i].Input); d != "" {
			t.Errorf("step %d of an older journal is read otherwise (-today +older):\n%s", i, d)
		}
		if d := cmp.Diff(today[i].Decision, older[i].Decision); d != "" {
			t.Errorf("its decision is compared as another (-today +older):\n%s", d)
		}
	}
	if in := older[0].Input; in.ExcessContainers == nil || in.Memory.Checkpoint == nil || in.Memory.Checkpoint != in.Memory.OnDisk || len(in.Memory.Checkpoint.PostStartDone) != 1 || len(older[1].Input.Results) != 1 {
		t.Errorf("read: %+v", older)
	}
}

// TestDescribe: how a decision looks.
func TestDescribe(t *testing.T) {
	yes := true
	d := lifecycle.Decision{
		Actions: []pod.Action{{Kind: pod.StopContainer, Container: "web", ID: "web2", Grace: 30 * time.Second, Why: "enough"}, {Kind: pod.CreateSandbox}},
		Cancel:  []string{"container/web"},
		Events:  []pod.Event{{Type: "Normal", Reason: "Killing", Message: "Stopping container web", Container: "web"}, {Type: "Warning", Reason: "Odd", Message: "two\nlines", Container: "web", Annotations: map[string]string{"starved_resource": "memory"}}},
		Waits:   []pod.Wait{{Code: pod.WaitBackOff, Container: "web", ExitCode: 3, Since: epoch, Next: epoch.Add(3 * time.Second)}, {Code: pod.WaitResize}},
		Wake:    epoch.Add(10 * time.Second), Done: true,
		Status: &v1.PodStatus{Phase: v1.PodRunning, Reason: "Evicted",
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}, {Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}, {Type: v1.PodScheduled, Status: v1.ConditionTrue}},
			InitContainerStatuses: []v1.ContainerStatus{{Name: "init", Ready: true, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}},
				{Name: "side", Started: &yes, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "web", RestartCount: 2, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}},
		},
	}
	want := `  cancel container/web
  do StopContainer web id=web2 grace=30s (enough)
  do CreateSandbox attempt=0
  event Normal Killing: Stopping container web
  event Warning Odd: two\nlines [container=web annotations={"starved_resource":"memory"}]
  because container web: ended with exit code 3; back-off before it is started again [since=+0s next=+3s advice="see why it ended: ` + "`deckhand logs --previous`" + `"]
  because is being resized
  status Running Ready DisruptionTarget(TerminationByKubelet) reason=Evicted init=Completed(0),ready side=Running,not-ready web=CrashLoopBackOff#2
    pod reason=Evicted
    condition Ready status=True
    condition DisruptionTarget status=True reason=TerminationByKubelet
    condition PodScheduled status=True
    init init state.terminated.reason=Completed ready
    init side state.running={} started=true
    container web state.waiting.reason=CrashLoopBackOff restartCount=2
  wake in 10s
  done
`
	if got := Describe(lifecycle.Input{Now: epoch}, d); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestConcurrently: the text may be had while decisions come in.
func TestConcurrently(t *testing.T) {
	turns := story(t).turns
	r := NewRecorder(16 << 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			for _, x := range turns {
				r.Record(x.in, x.d)
			}
		}
	})
	for range 20 {
		parse(t, r.Bytes())
	}
	wg.Wait()
	if len(parse(t, r.Bytes()).Steps) == 0 {
		t.Error("nothing was recorded")
	}
}
