package lifecycle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// run decides for a pod that should be there.
func (d *decider) run() {
	d.settle()
	if d.finished {
		d.finish()
		return
	}
	up := d.allUp()
	if !d.mem.Prepared {
		// A pod that is found running is prepared anew as well: what it has stays,
		// what is missing is made, and the rooms that prepare learn of it.
		d.prepare(up)
		if !up {
			return
		}
	}
	if up {
		d.tidy()
		return
	}
	if !d.haveSandbox() || !d.clearElsewhere() {
		return
	}
	if d.initialize() {
		d.startMains()
	}
	d.tidy()
}

// settle finds out whether the pod has run to its end.
func (d *decider) settle() {
	if d.mem.Terminal != "" {
		d.finished, d.terminal = true, d.mem.Terminal
		return
	}
	p := d.in.Pod
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		inst := d.in.Observed.Newest(c.Name)
		if roleOf(c) == roleInit && inst != nil && inst.Ended() && exitCode(inst) != 0 && !d.restarts(c, roleInit, exitCode(inst)) {
			d.finished, d.terminal = true, v1.PodFailed
			d.mem.Terminal = d.terminal
			return
		}
	}
	phase := v1.PodSucceeded
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		inst := d.in.Observed.Newest(c.Name)
		if inst == nil || !inst.Ended() || d.restarts(c, roleMain, exitCode(inst)) {
			return
		}
		if exitCode(inst) != 0 {
			phase = v1.PodFailed
		}
	}
	d.finished, d.terminal = true, phase
	d.mem.Terminal = phase
}

// finish ends what a finished pod still holds: sidecars, then the sandbox. Its
// containers stay, for their logs and exit codes.
func (d *decider) finish() {
	if !d.stopContainers(d.graceEnd(d.in.Now, nil), "the pod has run to its end") {
		return
	}
	for i := range d.sandboxes() {
		d.stopSandbox(&d.sandboxes()[i], "the pod has run to its end")
	}
}

// allUp is the common case: every container that should run runs in the live sandbox.
func (d *decider) allUp() bool {
	if d.sandbox == nil {
		return false
	}
	spec := &d.in.Pod.Spec
	for i := range spec.Containers {
		if !d.runs(&spec.Containers[i]) {
			return false
		}
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; roleOf(c) == roleSidecar && !d.runs(c) {
			return false
		}
	}
	return true
}

func (d *decider) runs(c *v1.Container) bool {
	inst := d.in.Observed.Newest(c.Name)
	return inst != nil && inst.State == pod.ContainerRunning && inst.SandboxID == d.sandbox.ID
}

func (d *decider) prepare(up bool) {
	a := pod.Action{Kind: pod.PreparePod, Why: "folders, cgroup and volumes come before the sandbox"}
	if r, ok := d.retrying(a); ok {
		d.because(fmt.Sprintf("%s: %s", r.Failure.Reason, r.Failure.Message))
	} else if !up {
		d.because("folders, cgroup and volumes are being prepared")
	}
	d.do(a)
}

// haveSandbox reports whether there is a live sandbox, and works towards one if not.
func (d *decider) haveSandbox() bool {
	if d.sandbox != nil {
		return true
	}
	attempt := uint32(0)
	for i := range d.sandboxes() {
		old := &d.sandboxes()[i]
		attempt = max(attempt, old.Attempt+1)
	}
	// Whatever still runs in a dead sandbox ends before its successor starts:
	// never two instances of one container.
	if len(d.sandboxes()) > 0 {
		if !d.stopContainers(d.graceEnd(d.in.Now, nil), "its sandbox is gone") {
			return false
		}
		for i := range d.sandboxes() {
			if !d.stopSandbox(&d.sandboxes()[i], "the sandbox is not ready") {
				return false
			}
		}
	}
	a := pod.Action{Kind: pod.CreateSandbox, Attempt: int(attempt), Why: "the pod has no live sandbox"}
	if r, ok := d.retrying(a); ok {
		d.because(fmt.Sprintf("%s: %s", r.Failure.Reason, r.Failure.Message))
	} else {
		d.because("the sandbox is being created")
	}
	if d.do(a) && attempt > 0 {
		d.event(v1.EventTypeNormal, "SandboxChanged", "", "Pod sandbox changed, it will be killed and re-created.")
	}
	return false
}

// clearElsewhere reports whether nothing runs outside the live sandbox, and works
// towards that: a container's successor must not start beside it.
func (d *decider) clearElsewhere() bool {
	clear := true
	list := d.instances()
	for i := range list {
		if c := &list[i]; c.State == pod.ContainerRunning && c.SandboxID != d.sandbox.ID {
			d.stopInstance(c, d.graceEnd(d.in.Now, nil), "its sandbox was replaced")
			clear = false
		}
	}
	return clear
}

// initialize works through the init containers and reports whether the main
// containers may start. Init containers run again in a new sandbox.
func (d *decider) initialize() bool {
	initialized := d.pastInit()
	ready := true
	for i := range d.in.Pod.Spec.InitContainers {
		c := &d.in.Pod.Spec.InitContainers[i]
		inst := d.current(c.Name)
		switch roleOf(c) {
		case roleSidecar:
			if inst == nil || inst.State != pod.ContainerRunning {
				d.start(c, roleSidecar)
				if !initialized {
					return false
				}
				ready = false
			}
		case roleInit:
			if initialized || inst != nil && inst.Ended() && exitCode(inst) == 0 {
				continue
			}
			if inst == nil || inst.State != pod.ContainerRunning {
				d.start(c, roleInit)
			} else {
				d.because(fmt.Sprintf("init container %s is running", c.Name))
			}
			return false
		}
	}
	// A sidecar that is down doesn't hold up what ran beside it already.
	return ready || initialized
}

// pastInit reports whether a main container was made in this sandbox: then the
// init containers succeeded, even if their remains are gone.
func (d *decider) pastInit() bool {
	for i := range d.in.Pod.Spec.Containers {
		if d.current(d.in.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// current is the newest instance of the name, if it lives in the live sandbox.
func (d *decider) current(name string) *pod.Container {
	inst := d.in.Observed.Newest(name)
	if inst == nil || d.sandbox == nil || inst.SandboxID != d.sandbox.ID {
		return nil
	}
	return inst
}

// startMains starts the main containers in their order: one begins when those
// before it have started, failed or wait for another try.
func (d *decider) startMains() {
	for i := range d.in.Pod.Spec.Containers {
		if c := &d.in.Pod.Spec.Containers[i]; d.start(c, roleMain) {
			return
		}
	}
}

// start brings one container nearer to running. It reports whether that is under
// way, so that the next one has to wait.
func (d *decider) start(c *v1.Container, r role) bool {
	target := "container/" + c.Name
	if kind, ok := d.busy[target]; ok {
		d.because(fmt.Sprintf("container %s: %s", c.Name, inWords(kind, c)))
		return true
	}
	if d.clearAside(c) {
		return true
	}
	inst := d.in.Observed.Newest(c.Name)
	if cur := d.current(c.Name); cur != nil {
		switch cur.State {
		case pod.ContainerRunning:
			return false
		case pod.ContainerCreated:
			return d.bring(c, pod.Action{Kind: pod.StartContainer, Container: c.Name, ID: cur.ID, Attempt: cur.Attempt, Why: "it is created and not started"})
		}
	}
	if inst != nil && inst.Ended() {
		again := d.restarts(c, r, exitCode(inst))
		if r == roleInit && inst.SandboxID != d.sandbox.ID {
			again = true
		}
		if !again {
			return false
		}
		if due := d.due(inst); inst.SandboxID == d.sandbox.ID && d.in.Now.Before(due) {
			d.wakeAt(due)
			d.tellBackoff(c, inst)
			d.because(fmt.Sprintf("container %s: back-off %s after it ended with code %d, next start at %s", c.Name, delay(inst), exitCode(inst), due.UTC().Format(time.RFC3339)))
			return false
		}
	}
	return d.startNew(c, inst)
}

// startNew makes the image present and the next instance from it.
func (d *decider) startNew(c *v1.Container, inst *pod.Container) bool {
	var a pod.Action
	if ref := d.mem.Images[c.Name]; ref == "" {
		a = pod.Action{Kind: pod.EnsureImage, Container: c.Name, Why: "its image has to be present"}
	} else {
		a = pod.Action{Kind: pod.CreateContainer, Container: c.Name, SandboxID: d.sandbox.ID, ImageRef: ref,
			Attempt: d.nextAttempt(c.Name, inst), Backoff: d.nextBackoff(inst), Why: whyStart(inst)}
	}
	return d.bring(c, a)
}

// bring begins an action on a container, or says how long it has to wait.
func (d *decider) bring(c *v1.Container, a pod.Action) bool {
	if r, ok := d.waits(a); ok {
		d.wakeAt(r.At)
		d.because(fmt.Sprintf("container %s: %s: %s, next try at %s", c.Name, r.Failure.Reason, r.Failure.Message, r.At.UTC().Format(time.RFC3339)))
		return false
	}
	d.because(fmt.Sprintf("container %s: %s", c.Name, inWords(a.Kind, c)))
	return d.do(a)
}

func whyStart(inst *pod.Container) string {
	if inst == nil {
		return "it never ran"
	}
	return fmt.Sprintf("the last instance ended with code %d (%s)", exitCode(inst), inst.Reason)
}

func inWords(kind pod.ActionKind, c *v1.Container) string {
	switch kind {
	case pod.EnsureImage:
		return "waiting for image " + c.Image
	case pod.CreateContainer:
		return "being created"
	default:
		return "being started"
	}
}

// tellBackoff gives the BackOff event, once for each instance that ended.
func (d *decider) tellBackoff(c *v1.Container, inst *pod.Container) {
	if d.mem.BackoffTold[c.Name] == inst.ID {
		return
	}
	d.mem.BackoffTold[c.Name] = inst.ID
	d.event(v1.EventTypeWarning, "BackOff", c.Name, fmt.Sprintf("Back-off %s restarting failed container %s", delay(inst), c.Name))
}
