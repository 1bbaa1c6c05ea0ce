package restart_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/container"
	"github.com/deckhand-node/deckhand/internal/lifecycle/restart"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func rule(action v1.ContainerRestartRuleAction, op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
}

func TestOnExit(t *testing.T) {
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	const again, all = v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers
	for _, c := range []struct {
		name   string
		pod    v1.RestartPolicy
		own    v1.ContainerRestartPolicy
		rules  []v1.ContainerRestartRule
		role   container.Role
		code   int32
		failed bool
		want   restart.Answer
	}{
		{name: "always, success", pod: "Always", code: 0, want: restart.Again},
		{name: "on failure, success", pod: "OnFailure", code: 0, want: restart.Stay},
		{name: "on failure, failure", pod: "OnFailure", code: 1, want: restart.Again},
		{name: "never", pod: "Never", code: 1, want: restart.Stay},
		{name: "on failure, a probe failed", pod: "OnFailure", code: 0, failed: true, want: restart.Again},
		{name: "own policy on failure, a probe failed", pod: "Never", own: "OnFailure", code: 0, failed: true, want: restart.Again},
		{name: "never, a probe failed", pod: "Never", code: 0, failed: true, want: restart.Stay},
		{name: "a rule fits after a probe failed", pod: "OnFailure", own: "OnFailure", rules: []v1.ContainerRestartRule{rule(all, in, 0)}, code: 0, failed: true, want: restart.All},
		{name: "own policy goes first", pod: "Never", own: "Always", code: 0, want: restart.Again},
		{name: "own policy against the pod's", pod: "Always", own: "Never", code: 1, want: restart.Stay},
		{name: "init, success", pod: "Always", role: container.Init, code: 0, want: restart.Stay},
		{name: "init, failure", pod: "Always", role: container.Init, code: 1, want: restart.Again},
		{name: "init, failure and never", pod: "Never", role: container.Init, code: 1, want: restart.Stay},
		{name: "init of a pod that never restarts, own policy", pod: "Never", own: "OnFailure", role: container.Init, code: 1, want: restart.Again},
		{name: "sidecar, success", pod: "Never", own: "Always", role: container.Sidecar, code: 0, want: restart.Again},
		{name: "ephemeral", pod: "Always", role: container.Ephemeral, code: 1, want: restart.Stay},
		{name: "rule fits", pod: "Never", own: "Never", rules: []v1.ContainerRestartRule{rule(again, in, 3, 42)}, code: 42, want: restart.Again},
		{name: "rule doesn't fit", pod: "Never", own: "Never", rules: []v1.ContainerRestartRule{rule(again, in, 3)}, code: 42, want: restart.Stay},
		{name: "not in", pod: "Never", own: "Never", rules: []v1.ContainerRestartRule{rule(again, notIn, 0)}, code: 42, want: restart.Again},
		{name: "not in, but it is", pod: "Never", own: "Never", rules: []v1.ContainerRestartRule{rule(again, notIn, 42)}, code: 42, want: restart.Stay},
		{name: "the first rule that fits counts", pod: "Never", own: "Never", rules: []v1.ContainerRestartRule{rule(all, in, 42), rule(again, in, 42)}, code: 42, want: restart.All},
		{name: "all, on success", pod: "Never", own: "Never", rules: []v1.ContainerRestartRule{rule(all, in, 0)}, code: 0, want: restart.All},
		{name: "a successful init container isn't run again by a rule", pod: "Always", own: "Never", role: container.Init, rules: []v1.ContainerRestartRule{rule(again, in, 0)}, code: 0, want: restart.Stay},
		{name: "a rule without codes fits nothing", pod: "Never", own: "Never", rules: []v1.ContainerRestartRule{{Action: again}}, code: 1, want: restart.Stay},
	} {
		spec := &v1.Container{RestartPolicyRules: c.rules}
		if c.own != "" {
			spec.RestartPolicy = &c.own
		}
		if got := restart.OnExit(&v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.pod}}, spec, c.role, c.code, c.failed); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestBackoffDoublesAndStartsAnew(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	inst := &pod.Container{StartedAt: at, FinishedAt: at.Add(time.Second)}
	var got []time.Duration
	for range 8 {
		inst = &pod.Container{Backoff: restart.Next(inst, 0, 0), StartedAt: at, FinishedAt: at.Add(time.Second)}
		got = append(got, restart.Delay(inst))
	}
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300, 300} {
		if got[i] != want*time.Second {
			t.Fatalf("the delays are %v", got)
		}
	}
	if d := restart.Next(inst, 0, 15*time.Second); d != 15*time.Second {
		t.Errorf("a cap of 15 s gives %s", d)
	}
	if d := restart.Capped(restart.Delay(inst), 15*time.Second); d != 15*time.Second {
		t.Errorf("with a lower cap than before, the next start waits %s", d)
	}
	if d := restart.Capped(time.Hour, 0); d != restart.Top {
		t.Errorf("without a cap, it waits %s", d)
	}
	inst.FinishedAt = at.Add(10 * time.Minute)
	if d := restart.Delay(inst); d != 0 {
		t.Errorf("after ten minutes of running, the next start waits %s", d)
	}
	inst.FinishedAt = at.Add(time.Hour)
	if due := restart.After(inst.FinishedAt, restart.Delay(inst), at); !due.Equal(at) {
		t.Errorf("with the clock set back by an hour, the next start is at %s", due)
	}
	if restart.Next(nil, 0, 0) != 0 {
		t.Error("the first instance waits")
	}
}
