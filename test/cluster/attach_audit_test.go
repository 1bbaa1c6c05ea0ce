package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// attachRoundsEnv multiplies the pods and the kills of TestAttachOrder, and the moves of TestAttachMoves: 17 is more than
// 200 pods and 50 kills, and 10 rolls a StatefulSet 20 times.
const attachRoundsEnv = "DECKHAND_TEST_CSI_ROUNDS"

func attachRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv(attachRoundsEnv)
	if text == "" {
		return 1
	}
	rounds, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

// TestAttachOrder: by the audit log of the API server and the calls of the driver, volumes are reported in use before
// they are used, and until they are unstaged, and no volume costs more calls than it has to; also if the agent is
// killed at any step.
func TestAttachOrder(t *testing.T) {
	binary := builtOnce(t)
	rounds := attachRounds(t)
	p := plane.Start(t, program)
	t.Run("waves", func(t *testing.T) { attachInWaves(t, p, binary, 12*rounds) })
	t.Run("kills", func(t *testing.T) { killWhileAttaching(t, p, binary, 4*rounds) })
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

// attachInWaves makes and removes pods with 1 to 3 volumes each: a few one by one, and the others in waves, each made
// while the wave before goes.
func attachInWaves(t *testing.T, p *plane.Plane, binary string, count int) {
	const quiet, waves = 5, 3
	r := joinAttached(t, p, binary)
	began := time.Now()
	claims := map[string][]string{} // by pod
	var names, all []string
	for i := range quiet + count {
		name := fmt.Sprintf("pod-%d", i)
		names = append(names, name)
		for n := range 1 + i%3 {
			claims[name] = append(claims[name], fmt.Sprintf("data-%d-%d", i, n))
		}
		all = append(all, claims[name]...)
	}
	r.addVolumes(all...)
	t.Logf("%d volumes are bound after %s", len(all), time.Since(began).Round(time.Millisecond))

	shared := 0 // pods with several volumes that one call reported
	for _, name := range names[:quiet] {
		from := len(r.audited())
		r.addPod(name, claims[name]...)
		r.areReady(name)
		r.settles(claims[name]...)
		made, _ := r.history(r.audited()[from:])
		r.removePod(name, false)
		r.areGone(name)
		r.settles()
		all, _ := r.history(r.audited()[from:])
		t.Logf("%d volumes cost %d patches before and %d after", len(claims[name]), len(made), len(all)-len(made))
		if len(claims[name]) > 1 && len(made) == 1 {
			shared++
		}
	}
	if shared == 0 {
		t.Error("each volume of a pod is reported by a call of its own")
	}
	r.checkBudget(t, r.audited())
	r.figures(t, r.audited(), 500*time.Millisecond)

	began = time.Now()
	var before []string
	for wave := range slices.Chunk(names[quiet:], (count+waves-1)/waves) {
		for _, name := range wave {
			r.addPod(name, claims[name]...)
		}
		for _, name := range before {
			r.removePod(name, false)
		}
		r.areReady(wave...)
		r.areGone(before...)
		before = wave
	}
	for _, name := range before {
		r.removePod(name, false)
	}
	r.areGone(before...)
	r.settles()
	t.Logf("%d pods came and went within %s", count, time.Since(began).Round(time.Millisecond))
	audited := r.audited()
	r.checkOrder(t, audited)
	r.checkBudget(t, audited)
	r.figures(t, audited, 0)
	if n := len(r.callsOf("NodeStageVolume")); n != len(all) {
		t.Errorf("%d calls to stage %d volumes", n, len(all))
	}
	r.clearVolumes()
}

// callsOf are the driver's calls of a method that were taken from it.
func (r *attachRig) callsOf(method string) []driver.Call {
	return driver.State{Calls: r.seen}.Of(method)
}

// begun and answered are the times when the API server received a list, and when it had answered.
func begun(l lists) time.Time    { return l.at }
func answered(l lists) time.Time { return l.answered }

// latest is the last of the lists before a time that certainly was the object's; they are sorted by time.
func latest(all []lists, when func(lists) time.Time, at time.Time) lists {
	var last lists
	for _, l := range all {
		if !l.failed && when(l).Before(at) {
			last = l
		}
	}
	return last
}

// checkOrder holds the calls of the node, of controllers and of the driver against each other.
func (r *attachRig) checkOrder(t *testing.T, audited []plane.Call) {
	t.Helper()
	r.takeCalls()
	inUse, attached := r.history(audited)
	if len(inUse) == 0 || len(attached) == 0 || len(r.seen) == 0 {
		t.Fatalf("%d and %d lists, %d calls of the driver", len(inUse), len(attached), len(r.seen))
	}
	names, ofAttachment := map[string]v1.UniqueVolumeName{}, map[string]v1.UniqueVolumeName{}
	staged := map[v1.UniqueVolumeName][]driver.Call{}
	for claim, handle := range r.handles {
		names[handle] = r.unique(claim)
		ofAttachment[object.AttachmentName(attachDriver, handle, r.name)] = r.unique(claim)
	}
	const clock = "05.000000"
	for _, c := range r.seen {
		name := names[c.Volume]
		switch c.Method {
		case "NodeStageVolume":
			if !latest(inUse, answered, c.Began).has(name) {
				t.Errorf("%s is staged at %s, but not in use for the API", name, c.Began.Format(clock))
			}
			if !latest(attached, begun, c.Began).has(name) {
				t.Errorf("%s is staged at %s, but not attached", name, c.Began.Format(clock))
			}
			staged[name] = append(staged[name], c)
		case "NodeUnstageVolume":
			staged[name] = append(staged[name], c)
		}
	}
	used := 0
	for _, c := range audited {
		if name, is := ofAttachment[c.Name]; is && c.Node == r.name && c.Verb == "get" {
			used++
			if !latest(inUse, begun, c.At).has(name) {
				t.Errorf("%s: its VolumeAttachment is read at %s, before it is in use for the API", name, c.At.Format(clock))
			}
		}
	}
	var before lists
	removed := 0
	for _, l := range inUse {
		for _, name := range before.names {
			if l.has(v1.UniqueVolumeName(name)) {
				continue
			}
			removed++
			var last driver.Call // that had begun
			for _, c := range staged[v1.UniqueVolumeName(name)] {
				if c.Began.Before(l.at) {
					last = c
				}
			}
			if last.Seq > 0 && (last.Method != "NodeUnstageVolume" || last.Code != "OK" || last.Ended.After(l.at)) {
				t.Errorf("%s isn't in use for the API from %s on, but %s at %s ended at %s with %q", name,
					l.at.Format(clock), last.Method, last.Began.Format(clock), last.Ended.Format(clock), last.Code)
			}
		}
		if !l.failed {
			before = l
		}
	}
	t.Logf("%d lists in use with %d removals, %d lists attached, %d calls for VolumeAttachments, %d calls to the driver",
		len(inUse), removed, len(attached), used, len(r.seen))
}

// checkBudget checks how many calls volumes cost that one pod used: one for each object. If the pod waits, there may be
// one more in each second, and in each half second until the volume is attached. Forbidden calls don't count: the authorizer learns of pods later than the node.
func (r *attachRig) checkBudget(t *testing.T, audited []plane.Call) {
	t.Helper()
	reported, _ := r.history(audited)
	calls := map[string][]plane.Call{}
	for _, c := range audited {
		if c.Node == r.name && c.Verb == "get" && c.Code != http.StatusForbidden {
			calls[c.String()] = append(calls[c.String()], c)
		}
	}
	for claim, handle := range r.handles {
		since := slices.IndexFunc(reported, func(l lists) bool { return l.has(r.unique(claim)) })
		if since < 0 {
			continue
		}
		attachment := "get volumeattachments.storage.k8s.io " + object.AttachmentName(attachDriver, handle, r.name)
		for _, call := range []string{"get persistentvolumeclaims " + claim, "get persistentvolumes " + claim, attachment} {
			made := calls[call]
			if len(made) == 0 {
				t.Errorf("no call to %s", call)
				continue
			}
			from, every := made[0].At, time.Second // for so long the agent takes a claim as it was
			if call == attachment {
				from, every = reported[since].at, 500*time.Millisecond
			}
			most := 1 + int(made[len(made)-1].At.Sub(from)/every)
			if len(made) > most {
				t.Errorf("%d calls to %s, want at most %d", len(made), call, most)
			}
		}
	}
	inUse, _ := r.history(audited)
	var before lists
	entered := map[string]int{}
	for i, l := range inUse {
		if slices.Equal(l.names, before.names) && i > 0 && !before.failed {
			t.Errorf("the list of %s is sent again", l.at.Format("05.000"))
		}
		for _, name := range l.names {
			if !slices.Contains(before.names, name) {
				entered[name]++
			}
		}
		before = l
	}
	for name, n := range entered {
		if n > 1 {
			t.Errorf("%s is reported %d times", name, n)
		}
	}
}

// figures logs how long the steps of the handshake took. limit is that of the shortest times, which other work on the
// machine hardly changes; 0 is none.
func (r *attachRig) figures(t *testing.T, audited []plane.Call, limit time.Duration) {
	t.Helper()
	r.takeCalls()
	inUse, attached := r.history(audited)
	first := func(all []lists, name v1.UniqueVolumeName) time.Time {
		if at := slices.IndexFunc(all, func(l lists) bool { return !l.failed && l.has(name) }); at >= 0 {
			return all[at].at
		}
		return time.Time{}
	}
	calls := map[string]plane.Call{}
	for _, c := range audited {
		calls[c.Resource+" "+c.Name] = c
	}
	const bound, found, stage = "pod bound → volumesInUse", "volume read → volumesInUse", "volumesAttached → NodeStageVolume"
	times := map[string][]time.Duration{}
	for _, c := range r.callsOf("NodeStageVolume") {
		for claim, handle := range r.handles {
			if handle != c.Volume {
				continue
			}
			number, _, _ := strings.Cut(strings.TrimPrefix(claim, "data-"), "-")
			inUse, attached := first(inUse, r.unique(claim)), first(attached, r.unique(claim))
			times[bound] = append(times[bound], inUse.Sub(calls["pods/binding pod-"+number].At))
			times[found] = append(times[found], inUse.Sub(calls["persistentvolumes "+claim].Answered))
			if attached.Before(inUse) {
				attached = inUse // it needs both
			}
			times[stage] = append(times[stage], c.Began.Sub(attached))
		}
	}
	for _, what := range []string{bound, found, stage} {
		list := times[what]
		if len(list) == 0 {
			t.Fatalf("%s: no figures", what)
		}
		slices.Sort(list)
		t.Logf("%s: from %s to %s, p50 %s, p90 %s", what, list[0].Round(time.Millisecond),
			list[len(list)-1].Round(time.Millisecond), list[len(list)/2].Round(time.Millisecond),
			list[len(list)*9/10].Round(time.Millisecond))
		if limit > 0 && list[0] > limit {
			t.Errorf("%s: %s, want at most %s", what, list[0], limit)
		}
	}
}

// killStep is when the agent is killed: once await returns.
type killStep struct {
	what string
	// removal says that the step belongs to the removal of a pod that was ready.
	removal bool
	// rule holds a call.
	rule driver.Rule
	// or await is another event.
	await func(r *attachRig, pod, claim string)
	// spread is the longest time that passes between the event and the kill.
	spread time.Duration
}

func killSteps() []killStep {
	listed := func(want bool, list func(r *attachRig) []v1.UniqueVolumeName) func(r *attachRig, pod, claim string) {
		return func(r *attachRig, pod, claim string) {
			r.t.Helper()
			r.nodes.await(r.t, "a list of the node", func(map[string]*v1.Node) error {
				if now := list(r); slices.Contains(now, r.unique(claim)) != want {
					return fmt.Errorf("it is %q", now)
				}
				return nil
			})
		}
	}
	inUse := func(r *attachRig) []v1.UniqueVolumeName { list, _ := r.listed(); return list }
	attached := func(r *attachRig) []v1.UniqueVolumeName { _, list := r.listed(); return list }
	answered := func(method string) func(r *attachRig, pod, claim string) {
		return func(r *attachRig, pod, claim string) {
			r.t.Helper()
			r.awaitCall(func(c driver.Call) bool { return c.Method == method && c.Volume == r.handles[claim] && c.Code == "OK" })
		}
	}
	var steps []killStep
	for _, s := range []struct {
		method  string
		removal bool
	}{{"ControllerPublishVolume", false}, {"NodeStageVolume", false}, {"NodePublishVolume", false},
		{"NodeUnpublishVolume", true}, {"NodeUnstageVolume", true}, {"ControllerUnpublishVolume", true}} {
		before, after := driver.Rule{Method: s.method, Hold: true}, driver.Rule{Method: s.method, Hold: true, After: true}
		steps = append(steps, killStep{what: "before " + s.method, removal: s.removal, rule: before},
			killStep{what: "during the answer to " + s.method, removal: s.removal, rule: after},
			killStep{what: "after " + s.method, removal: s.removal, await: answered(s.method), spread: 30 * time.Millisecond})
	}
	return append(steps,
		killStep{what: "after the pod's binding", spread: 40 * time.Millisecond, await: func(r *attachRig, pod, _ string) {
			r.t.Helper()
			r.pods.await(r.t, "the pod is bound", func(pods map[string]*v1.Pod) error {
				if p := pods[pod]; p == nil || p.Spec.NodeName == "" {
					return fmt.Errorf("%s isn't", pod)
				}
				return nil
			})
		}},
		killStep{what: "in use for the API", await: listed(true, inUse), spread: 10 * time.Millisecond},
		killStep{what: "attached for the API", await: listed(true, attached), spread: 10 * time.Millisecond},
		killStep{what: "after the pod's deletion", removal: true, await: func(*attachRig, string, string) {},
			spread: 30 * time.Millisecond},
		killStep{what: "not in use for the API", removal: true, await: listed(false, inUse), spread: 10 * time.Millisecond})
}

// awaitCall waits for a call that the driver has.
func (r *attachRig) awaitCall(is func(driver.Call) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), node.Deadline)
	defer cancel()
	if s, err := r.driver.Await(ctx, func(s driver.State) bool { return slices.ContainsFunc(s.Calls, is) }); err != nil {
		r.t.Fatalf("no such call: %v; the calls are %+v", err, s.Calls)
	}
}

// killWhileAttaching kills the agent at that many points of a pod's handshake and removal. Then the pod goes on, or is
// deleted while no agent runs, or the next agent is killed as well. Another pod runs all the time.
func killWhileAttaching(t *testing.T, p *plane.Plane, binary string, points int) {
	r := joinAttached(t, p, binary)
	r.addVolumes("data-0-0", "data-0-1", "resident")
	r.addPod("resident", "resident")
	r.areReady("resident")
	r.settles("resident")
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	steps := killSteps()
	var took []time.Duration
	first := random.IntN(len(steps))
	for i := range points {
		// All steps, and then each with another sequel; the next one is of another part.
		r.kill(i, steps[(first+i*7)%len(steps)], i%4, random)
		began := time.Now()
		r.settles("resident")
		took = append(took, time.Since(began))
		t.Logf("%d: nothing is left after %s", i, took[i].Round(time.Millisecond))
		r.takeCalls()
	}
	r.removePod("resident", false)
	r.areGone("resident")
	r.settles()
	r.checkOrder(t, r.audited())
	t.Logf("%d points; nothing was left at most %s after the last event", points, slices.Max(took))
	r.clearVolumes()
}

// kill kills the agent once at a step of a pod.
func (r *attachRig) kill(number int, step killStep, then int, random *rand.Rand) {
	r.t.Helper()
	name, claims := fmt.Sprintf("pod-%d", number), []string{"data-0-0", "data-0-1"}
	delay := time.Duration(random.Int64N(int64(step.spread) + 1))
	sequel := []string{"it goes on", "it is deleted meanwhile", "its object is deleted meanwhile",
		"the next agent is killed"}
	r.t.Logf("%d: %s, %s later; %s", number, step.what, delay, sequel[then])
	begin := func() {
		if step.rule.Method != "" {
			step.rule.Volume = r.handles[claims[0]]
			if _, err := r.driver.Add(r.t.Context(), step.rule); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	reach := func() {
		r.t.Helper()
		if step.await != nil {
			step.await(r, name, claims[0])
		} else {
			r.awaitCall(func(c driver.Call) bool {
				return c.Held && c.Method == step.rule.Method && c.Volume == step.rule.Volume
			})
		}
		wake.Sleep(r.t.Context(), delay)
		r.Kill()
	}
	if !step.removal {
		begin()
	}
	r.addPod(name, claims...)
	if step.removal {
		r.areReady(name)
		begin()
		r.removePod(name, false)
	}
	reach()
	_, there := r.pods.now()[name]
	if force := then == 2; (then == 1 || force) && there && (force || !step.removal) {
		r.removePod(name, force)
	}
	if err := r.driver.Release(r.t.Context(), 0); err != nil {
		r.t.Fatal(err)
	}
	r.Start()
	if then == 3 {
		wake.Sleep(r.t.Context(), time.Duration(random.Int64N(int64(time.Second))))
		r.Kill()
		r.Start()
	}
	if !step.removal && (then == 0 || then == 3) {
		r.areReady(name)
		r.removePod(name, false)
	}
	r.areGone(name)
}
