package lifecycle_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
)

// dice decide what happens. rapid's make a failure as small as it can be, plain
// ones are fast enough for millions of steps.
type dice interface {
	// n is a number from lo to hi.
	n(label string, lo, hi int) int
	Fatalf(format string, args ...any)
}

type rapidDice struct{ *rapid.T }

func (r rapidDice) n(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(r.T, label) }

type plainDice struct {
	testing.TB
	rand *rand.Rand
	seed uint64
}

func (p plainDice) n(_ string, lo, hi int) int { return lo + p.rand.IntN(hi-lo+1) }

func (p plainDice) Fatalf(format string, args ...any) {
	p.TB.Helper()
	p.TB.Fatalf("seed %d: %s", p.seed, fmt.Sprintf(format, args...))
}

func oneOf[T any](d dice, label string, list []T) T { return list[d.n(label, 0, len(list)-1)] }

var (
	lawSteps = flag.Int("laws.steps", 20_000, "how many random steps TestLawsManySteps drives the core through")
	lawSeed  = flag.Uint64("laws.seed", 0, "the seed of the one pod that TestLawsManySteps plays; 0 for many")
	lawFrom  = flag.Uint64("laws.from", 1, "the seed of the first pod that TestLawsManySteps plays; 0 for a new one each time")
)

// TestMain fixes the seeds that nobody has chosen, so that a run of all tests fails by a change only; `make laws` takes new ones.
func TestMain(m *testing.M) {
	flag.Parse()
	if seed := flag.Lookup("rapid.seed").Value; seed.String() == "0" {
		if err := seed.Set("1"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	os.Exit(m.Run())
}

// TestLaws drives the core with random pods, failures, exits, probe results,
// edits, verdicts, restarts of agent and machine, and stops, and looks after each
// decision for what must never be (see laws). In the end everything is allowed to
// succeed, and the pod must come to rest.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { playPod(rapidDice{rt}) })
}

// TestLawsManySteps does the same, without making failures small: `make laws`
// plays millions of steps. A failure prints its seed; -laws.seed plays it again.
func TestLawsManySteps(t *testing.T) {
	if *lawSeed != 0 {
		playPod(newPlainDice(t, *lawSeed))
		return
	}
	for lane := range runtime.NumCPU() {
		base := *lawFrom + uint64(lane)<<32
		if *lawFrom == 0 {
			base = rand.Uint64()
		}
		t.Run(fmt.Sprintf("from seed %d", base), func(t *testing.T) {
			t.Parallel()
			for played := 0; played < *lawSteps/runtime.NumCPU(); base++ {
				played += playPod(newPlainDice(t, base))
			}
		})
	}
}

func newPlainDice(t testing.TB, seed uint64) plainDice {
	return plainDice{t, rand.New(rand.NewPCG(seed, 1)), seed}
}

// playPod plays one pod's life, and returns how many decisions that took.
func playPod(rt dice) int {
	s := newSim(drawPod(rt))
	drawNode(rt, s)
	for range rt.n("steps", 1, 100) {
		s.play(rt, drawStep(rt, s))
	}
	quiesce(rt, s)
	return s.decided
}

// play makes one decision after something has happened.
func (s *sim) play(rt dice, what string) {
	s.decide()
	s.story[s.decided%len(s.story)] = happening{what, s.last}
	if len(s.laws.problems) == 0 {
		return
	}
	text := ""
	for i := range s.story {
		if h := s.story[(s.decided+1+i)%len(s.story)]; h.what != "" {
			text += "\n" + tell(h.what, h.d)
		}
	}
	rt.Fatalf("%v%s", s.laws.problems, text)
}

// tell is one step in short, for the story of a failure.
func tell(step string, d lifecycle.Decision) string {
	text := step
	for _, a := range d.Actions {
		text += fmt.Sprintf("\n    %s %s %s %s", a.Kind, a.Container, a.ID, a.Why)
	}
	for i := range d.Waits {
		text += "\n    because " + explain.Named(&d.Waits[i])
	}
	if d.Status != nil {
		text += fmt.Sprintf("\n    %s", d.Status.Phase)
		for _, c := range append(slices.Clone(d.Status.InitContainerStatuses), d.Status.ContainerStatuses...) {
			text += fmt.Sprintf(" %s{%v%v%v}", c.Name, c.State.Running != nil, c.State.Waiting, c.State.Terminated != nil)
		}
	}
	return text
}

func drawPod(rt dice) *v1.Pod {
	grace := int64(rt.n("grace", 0, 30))
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.RestartPolicy = oneOf(rt, "policy", []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever})
	if rt.n("deadline?", 0, 4) == 0 {
		seconds := int64(rt.n("deadline", 1, 2000))
		p.Spec.ActiveDeadlineSeconds = &seconds
	}
	if rt.n("volumes?", 0, 1) == 1 {
		p.Spec.Volumes = []v1.Volume{{Name: "data"}}
	}
	always := v1.ContainerRestartPolicyAlways
	for i := range rt.n("inits", 0, 3) {
		c := v1.Container{Name: fmt.Sprintf("i%d", i), Image: "x"}
		if rt.n("sidecar", 0, 1) == 1 {
			c.RestartPolicy = &always
			drawExtras(rt, &c, true)
		} else {
			drawRules(rt, &c)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range rt.n("mains", 1, 3) {
		c := v1.Container{Name: fmt.Sprintf("m%d", i), Image: "x"}
		drawExtras(rt, &c, false)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if rt.n("debug?", 0, 4) == 0 {
		addDebug(p, "")
	}
	return p
}

// addDebug adds an ephemeral container.
func addDebug(p *v1.Pod, target string) {
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "x"}, TargetContainerName: target}}
}

// drawNode draws the node's settings, and whether the manifest gives the pod's UID.
func drawNode(rt dice, s *sim) {
	switch rt.n("settings", 0, 9) {
	case 0:
		s.node.FirstBackoff = time.Second
	case 1:
		s.node.MaxBackoff = time.Minute
	case 2:
		s.node.ContainerGC = &lifecycle.ContainerGC{PerContainer: rt.n("dead", -1, 2), MinAge: time.Duration(rt.n("age", 0, 60)) * time.Second}
	case 3:
		s.base = "1"
	}
	s.object = rt.n("object?", 0, 2) == 0
	s.stopCode = oneOf(rt, "stop code", []int32{143, 0, 2})
}

func drawExtras(rt dice, c *v1.Container, sidecar bool) {
	some := func(label string) bool { return rt.n(label, 0, 3) == 0 }
	probe := func() *v1.Probe {
		p := &v1.Probe{}
		if some("grace of the probe") {
			grace := int64(rt.n("grace", 0, 60))
			p.TerminationGracePeriodSeconds = &grace
		}
		return p
	}
	if some("startup") {
		c.StartupProbe = probe()
	}
	if some("liveness") {
		c.LivenessProbe = probe()
	}
	if some("readiness") {
		c.ReadinessProbe = &v1.Probe{}
	}
	if some("postStart") {
		c.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{}}}
	}
	if some("preStop") {
		if c.Lifecycle == nil {
			c.Lifecycle = &v1.Lifecycle{}
		}
		c.Lifecycle.PreStop = &v1.LifecycleHandler{Sleep: &v1.SleepAction{}}
	}
	if some("resources") {
		c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
		if some("restart on resize") {
			c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
		}
	}
	if !sidecar || some("sidecar rules") {
		drawRules(rt, c)
	}
}

func drawRules(rt dice, c *v1.Container) {
	if rt.n("rules", 0, 3) != 0 {
		return
	}
	if c.RestartPolicy == nil {
		p := oneOf(rt, "container policy", []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure})
		c.RestartPolicy = &p
	}
	action := oneOf(rt, "action", []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers})
	codes := &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{2}}
	if rt.n("not in", 0, 1) == 1 {
		codes = &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpNotIn, Values: []int32{0, 1}}
	}
	c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: action, ExitCodes: codes}}
}

// steps are what may happen, each with how often.
var steps = []struct {
	weight int
	step   func(rt dice, s *sim) string
}{
	{10, stepSucceed}, {2, stepFail}, {3, stepExit}, {2, stepProbe}, {1, stepAgentRestarts}, {1, stepSandboxDies},
	{2, stepCancelled}, {2, stepUnheard}, {3, stepTime}, {1, stepStop}, {2, stepEdit}, {1, stepEvict}, {1, stepVanish}, {1, stepTriggers}, {1, stepCrashLoop}, {1, stepOthers}, {1, stepSource},
}

func drawStep(rt dice, s *sim) string {
	total := 0
	for _, c := range steps {
		total += c.weight
	}
	n := rt.n("step", 0, total-1)
	for _, c := range steps {
		if n -= c.weight; n < 0 {
			return c.step(rt, s)
		}
	}
	return "nothing"
}

func (s *sim) pick(rt dice) (pod.Action, bool) {
	if len(s.inFlight) == 0 {
		return pod.Action{}, false
	}
	i := rt.n("which", 0, len(s.inFlight)-1)
	a := s.inFlight[i]
	s.inFlight = slices.Delete(s.inFlight, i, i+1)
	return a, true
}

func stepSucceed(rt dice, s *sim) string {
	a, ok := s.pick(rt)
	if ok {
		s.succeed(a)
	}
	return "ok " + string(a.Kind)
}

func stepFail(rt dice, s *sim) string {
	a, ok := s.pick(rt)
	if !ok {
		return "nothing"
	}
	if rt.n("effect", 0, 1) == 1 {
		s.lose(a)
		return "lose " + string(a.Kind)
	}
	message, want := "by chance", a.Kind != pod.AdmitPod && rt.n("processes", 0, 7) == 0
	if want {
		message = "fork: resource temporarily unavailable"
	}
	if a.Kind == pod.StartContainer && rt.n("start error", 0, 1) == 1 {
		s.startError(a, message)
	} else {
		s.fail(a, "Broken", message)
	}
	f := s.results[len(s.results)-1].Failure
	if want {
		f.Wait = pod.WaitForProcesses
		return "fail for want of processes " + string(a.Kind)
	}
	switch a.Kind {
	case pod.AdmitPod:
		switch rt.n("how", 0, 7) {
		case 0, 1:
			f.Reason, f.Rejected = pod.ReasonNodeAffinity, true
			return "reject"
		case 2, 3, 4:
			f.Wait = pod.WaitForRoom
		case 5:
			f.Wait = pod.WaitForRuntime
		}
		return "fail AdmitPod, wait for " + string(f.Wait)
	case pod.StopContainer, pod.StopSandbox, pod.RemoveContainer, pod.RemoveSandbox, pod.ReleaseVolumes, pod.CleanPod,
		pod.PreStop, pod.PostStart, pod.SaveCheckpoint, pod.Allocate, pod.ResizePod, pod.ResizeContainer:
		return "fail " + string(a.Kind)
	}
	switch how := rt.n("how", 0, 15); {
	case how < 4 && a.ID == "":
		f.Awaits = pod.Object{Kind: "configmap", Namespace: "default", Name: "c"}
		return "fail for want of an object " + string(a.Kind)
	case how == 4:
		f.Permanent = true
	case how == 5:
		f.NotBefore = s.now.Add(time.Duration(rt.n("not before", 1, 100)) * time.Second)
	case how == 6:
		f.Reason = "ErrImagePull"
	case how == 7:
		f.Reason = "FailedMount"
	}
	return "fail " + string(a.Kind)
}

func stepExit(rt dice, s *sim) string {
	if len(s.obs.Containers) == 0 {
		return "nothing"
	}
	c := &s.obs.Containers[rt.n("victim", 0, len(s.obs.Containers)-1)]
	if c.State == pod.ContainerRunning {
		s.exit(c, int32(rt.n("code", 0, 2)))
	}
	return "exit " + c.ID
}

// stepVanish: the runtime loses an instance, or sight of it: then it may run on; or the clock is set back.
func stepVanish(rt dice, s *sim) string {
	if len(s.obs.Containers) == 0 {
		return "nothing"
	}
	c := &s.obs.Containers[rt.n("victim", 0, len(s.obs.Containers)-1)]
	switch what := rt.n("what", 0, 3); {
	case what == 3:
		by := time.Duration(rt.n("step", -4000, 4000)) * time.Second
		if err := s.apply("clock-steps " + by.String()); err != nil {
			panic(err)
		}
		return "clock steps " + by.String()
	case what == 0:
		s.clockSetBack(time.Duration(rt.n("seconds", 1, 4000)) * time.Second)
		return "clock set back"
	case what == 1 && c.State == pod.ContainerRunning:
		s.forget(c)
		return "unknown " + c.ID
	}
	id := c.ID
	s.vanish(id)
	return "vanish " + id
}

// stepTriggers: images, room for resources or objects appear.
func stepTriggers(rt dice, s *sim) string {
	at := oneOf(rt, "news", []*time.Time{&s.node.ImagesAt, &s.node.ResourcesFreedAt, &s.node.ObjectsAt, &s.node.ObjectsAt})
	if s.now.After(*at) {
		*at = s.now
	}
	for i := range s.obs.Containers {
		if c := &s.obs.Containers[i]; c.Ended() && rt.n("excess", 0, 9) == 0 {
			s.excess = append(s.excess, c.ID)
		}
	}
	return "news"
}

// stepOthers: somebody writes a condition of the pod, which makes no other generation.
func stepOthers(rt dice, s *sim) string {
	c := v1.PodCondition{Status: v1.ConditionTrue, Reason: "Somebody", LastTransitionTime: metav1.NewTime(epoch.Add(-time.Hour)),
		Type: oneOf(rt, "type", []v1.PodConditionType{v1.PodScheduled, v1.DisruptionTarget, "example.com/gate"})}
	if condition(&s.pod.Status, c.Type) == nil {
		s.pod = s.pod.DeepCopy()
		s.pod.Status.Conditions = append(s.pod.Status.Conditions, c)
	}
	return "somebody's condition"
}

// stepSource: the source of a pod that is an object hears of the last status, or somebody else fails the pod there; or
// the node's own records are lost.
func stepSource(rt dice, s *sim) string {
	if !s.object || s.last.Status == nil {
		return "nothing"
	}
	s.echo()
	switch rt.n("what", 0, 9) {
	case 0:
		if pod.Terminal(s.pod.Status.Phase) == "" {
			s.pod.Status.Phase, s.pod.Status.Reason = v1.PodFailed, "Somebody"
			return "somebody fails the pod"
		}
	case 1, 2:
		s.loseRecords()
		return "records are lost"
	}
	return "echo"
}

// stepCrashLoop: one container fails each time it has come up again, while everything else goes well.
func stepCrashLoop(rt dice, s *sim) string {
	name, ends := oneOf(rt, "container", s.pod.Spec.Containers).Name, 0
	for range 60 {
		c := s.obs.Newest(name)
		switch {
		case c != nil && c.State == pod.ContainerRunning:
			s.exit(c, 1)
			ends++
		case len(s.inFlight) > 0:
			a := s.inFlight[0]
			s.inFlight = s.inFlight[1:]
			s.succeed(a)
		case !s.last.Wake.IsZero():
			s.now = s.last.Wake
		default:
			return "nothing"
		}
		if ends == 6 {
			break
		}
		s.play(rt, "crash loop of "+name)
	}
	return "crash loop"
}

func stepProbe(rt dice, s *sim) string {
	if len(s.last.Probes) == 0 {
		return "nothing"
	}
	p := oneOf(rt, "probe", s.last.Probes)
	s.probes[p] = pod.ProbeResult{Probe: p, OK: rt.n("ok", 0, 2) > 0, At: s.now}
	return fmt.Sprintf("probe %s %s", p.Container, p.Kind)
}

// stepAgentRestarts: what was under way may or may not have had its effect.
func stepAgentRestarts(rt dice, s *sim) string {
	for _, a := range s.inFlight {
		switch rt.n("effect", 0, 2) {
		case 0:
			s.succeed(a)
		case 1:
			if c := s.byID(a.ID); a.Kind == pod.StartContainer && c != nil && c.State == pod.ContainerCreated {
				s.startError(a, "failed to start: context canceled")
			}
		}
	}
	s.restartAgent()
	return "agent-restarts"
}

func stepSandboxDies(rt dice, s *sim) string {
	if len(s.obs.Sandboxes) == 0 {
		return "nothing"
	}
	if rt.n("reboot", 0, 1) == 1 {
		for _, b := range s.obs.Sandboxes {
			s.endSandbox(b.ID, 255)
		}
		s.restartAgent()
		return "reboot"
	}
	s.obs.Sandboxes[0].State = pod.SandboxNotReady
	return "sandbox-dies"
}

func stepCancelled(rt dice, s *sim) string {
	for i, a := range s.inFlight {
		if !s.cancelled[a.Target()] {
			continue
		}
		s.inFlight = slices.Delete(s.inFlight, i, i+1)
		delete(s.cancelled, a.Target())
		if rt.n("effect", 0, 1) == 1 {
			s.succeed(a)
			s.results = s.results[:len(s.results)-1]
		}
		s.results = append(s.results, pod.Result{Action: a, At: s.now, Cancelled: true})
		return "cancel " + string(a.Kind)
	}
	return "nothing"
}

// stepUnheard: the runtime tells what an action did before the action has ended.
func stepUnheard(rt dice, s *sim) string {
	if len(s.inFlight) == 0 {
		return "nothing"
	}
	a := s.inFlight[rt.n("which", 0, len(s.inFlight)-1)]
	switch a.Kind {
	case pod.StartContainer, pod.StopContainer, pod.RemoveContainer, pod.StopSandbox, pod.RemoveSandbox:
		// Done twice, these do what they do once.
		s.succeed(a)
		s.results = s.results[:len(s.results)-1]
	}
	return "unheard " + string(a.Kind)
}

func stepTime(rt dice, s *sim) string {
	s.now = s.now.Add(time.Duration(rt.n("seconds", 0, 400)) * time.Second)
	return "time passes"
}

// stepStop: the pod has to go; and when it has to already, it is asked to go sooner.
func stepStop(rt dice, s *sim) string {
	if s.stop == nil && rt.n("really", 0, 5) != 0 {
		return "nothing"
	}
	if s.object && rt.n("vanishes", 0, 4) == 0 {
		s.objectGone()
		return "object vanishes"
	}
	stop := lifecycle.Stop{At: s.now, Why: "by chance"}
	if rt.n("shorter", 0, 1) == 1 {
		g := time.Duration(max(rt.n("seconds", -15, 30), 0)) * time.Second // often 0
		stop.Grace = &g
	}
	if was := s.stop; was != nil && !endsBy(s.pod, stop.At, stop.Grace).Before(endsBy(s.pod, was.At, was.Grace)) {
		return "nothing"
	}
	s.stop = &stop
	return "stop"
}

// stepEvict: the node ends the pod; and when it has already, it gives it less time.
func stepEvict(rt dice, s *sim) string {
	if s.ending == nil && rt.n("really", 0, 5) != 0 {
		return "nothing"
	}
	e := pod.PodTermination{At: s.now, Reason: "Evicted", Disruption: rt.n("disruption", 0, 1) == 1}
	if s.ending != nil || rt.n("grace of its own", 0, 1) == 1 {
		g := time.Duration(rt.n("seconds", 0, 30)) * time.Second
		e.Grace = &g
	}
	if s.ending == nil && rt.n("preempted", 0, 3) == 0 {
		e = *admission.Preempted(s.now)
	}
	if was := s.ending; was != nil && !endsBy(s.pod, e.At, e.Grace).Before(endsBy(s.pod, was.At, was.Grace)) {
		return "nothing"
	}
	s.ending = &e
	return "evict"
}

func stepEdit(rt dice, s *sim) string {
	may := slices.Concat(s.pod.Spec.Containers, slices.DeleteFunc(slices.Clone(s.pod.Spec.InitContainers), func(c v1.Container) bool { return !pod.IsSidecar(&c) }))
	if failing := slices.DeleteFunc(slices.Clone(may), func(c v1.Container) bool {
		inst := s.obs.Newest(c.Name)
		return inst == nil || inst.State != pod.ContainerRunning || !s.laws.of(inst.ID).failing
	}); len(failing) > 0 && rt.n("failing", 0, 1) == 1 {
		name := oneOf(rt, "container", failing).Name
		s.change(func(p *v1.Pod) { pod.ContainerNamed(p, name).Image += "x" })
		return "edit " + name
	}
	c := oneOf(rt, "container", may).Name
	switch rt.n("edit", 0, 4) {
	case 0:
		s.change(func(p *v1.Pod) {
			pod.ContainerNamed(p, c).Image = oneOf(rt, "image", []string{"x", "y"})
		})
	case 1:
		s.change(func(p *v1.Pod) {
			r := &pod.ContainerNamed(p, c).Resources
			r.Requests = v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(rt.n("cpu", 1, 9)), resource.DecimalSI)}
		})
	case 2:
		if len(s.pod.Spec.EphemeralContainers) == 0 {
			s.change(func(p *v1.Pod) { addDebug(p, c) })
		}
	case 3: // its RuntimeClass is defined, which makes no other generation
		s.pod = s.pod.DeepCopy()
		s.pod.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(rt.n("overhead", 1, 9)), resource.DecimalSI)}
	default:
		s.change(func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} })
	}
	return "edit"
}
