package lifecycle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// judge finds out which running containers are started and ready (API:
// ContainerStatus.started, .ready). What was known of an instance before the agent
// restarted holds until a probe says otherwise.
func (d *decider) judge() {
	for i := range d.members {
		m := &d.members[i]
		if !m.Runs() {
			continue
		}
		id, k := m.Current.ID, d.kept()
		m.Hooked = !hasPostStart(m.Spec) || !m.Probes() || slices.Contains(k.Hooked, id)
		m.Started = m.Hooked
		switch {
		case !m.Hooked:
			m.NotReady = "its postStart hook is running"
		case m.Probes() && m.Spec.StartupProbe != nil && !slices.Contains(k.Started, id):
			r, ok := d.result(m, pod.ProbeStartup)
			m.Started = ok && r.OK
			if m.Started {
				d.keep(func(k *pod.Kept) { k.Started = append(k.Started, id) })
			} else {
				m.NotReady = "its startup probe hasn't succeeded yet"
			}
		}
		m.Ready = m.Started && m.Role != member.Init
		if m.Ready && m.Probes() && m.Spec.ReadinessProbe != nil {
			d.judgeReady(m)
		}
	}
}

func (d *decider) judgeReady(m *member.Member) {
	id := m.Current.ID
	was := slices.Contains(d.kept().Ready, id)
	m.Ready = was
	m.NotReady = "its readiness probe hasn't succeeded yet"
	if r, ok := d.result(m, pod.ProbeReadiness); ok {
		m.Ready = r.OK
		m.NotReady = "its readiness probe fails: " + r.Message
	}
	if m.Ready {
		m.NotReady = ""
	}
	if m.Ready != was {
		d.keep(func(k *pod.Kept) {
			k.Ready = slices.DeleteFunc(k.Ready, func(s string) bool { return s == id })
			if m.Ready {
				k.Ready = append(k.Ready, id)
			}
		})
	}
}

// result is what a probe of the running instance has come to.
func (d *decider) result(m *member.Member, kind pod.ProbeKind) (pod.ProbeResult, bool) {
	for _, r := range d.in.Probes {
		if r.ID == m.Current.ID && r.Kind == kind {
			return r, true
		}
	}
	return pod.ProbeResult{}, false
}

// probe says which probes are to run: the startup probe until it succeeds, then
// the others. Of a pod that ends only readiness is probed on (Pod lifecycle,
// "Termination of Pods").
func (d *decider) probe() {
	ends := d.in.Stop != nil || d.finished || d.kept().Ending != nil
	for i := range d.members {
		m := &d.members[i]
		if !m.Runs() || !m.Hooked || !m.Probes() {
			continue
		}
		if _, busy := d.busy["container/"+m.Spec.Name]; busy {
			continue // its start isn't over, and is told first
		}
		ask := func(kind pod.ProbeKind, probe *v1.Probe) {
			if probe != nil {
				d.out.Probes = append(d.out.Probes, pod.Probe{Container: m.Spec.Name, ID: m.Current.ID, Kind: kind})
			}
		}
		if !m.Started {
			if !ends {
				ask(pod.ProbeStartup, m.Spec.StartupProbe)
			}
			continue
		}
		if !ends {
			ask(pod.ProbeLiveness, m.Spec.LivenessProbe)
		}
		ask(pod.ProbeReadiness, m.Spec.ReadinessProbe)
	}
}

func hasPostStart(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }

// doom is why one container of a living pod has to end.
type doom struct {
	why   string
	grace *int64 // seconds, instead of the pod's
	// renew says that another instance follows whatever the restart policy says.
	renew bool
}

// doomOf finds out whether a running container has to end.
func (d *decider) doomOf(m *member.Member) (doom, bool) {
	if !m.Runs() || !m.Probes() {
		return doom{}, false
	}
	if _, failed := d.mem.HookFailed[m.Current.ID]; failed {
		return doom{why: "FailedPostStartHook"}, true
	}
	if r, ok := d.result(m, pod.ProbeStartup); ok && !r.OK && m.Spec.StartupProbe != nil {
		return doom{why: fmt.Sprintf("Container %s failed startup probe, will be restarted", m.Spec.Name), grace: m.Spec.StartupProbe.TerminationGracePeriodSeconds}, true
	}
	if r, ok := d.result(m, pod.ProbeLiveness); ok && !r.OK && m.Spec.LivenessProbe != nil {
		return doom{why: fmt.Sprintf("Container %s failed liveness probe, will be restarted", m.Spec.Name), grace: m.Spec.LivenessProbe.TerminationGracePeriodSeconds}, true
	}
	if otherImage(m, m.Current) {
		return doom{why: fmt.Sprintf("Container %s definition changed, will be restarted", m.Spec.Name), renew: true}, true
	}
	if d.resizeRestarts(m) {
		return doom{why: fmt.Sprintf("Container %s is restarted to resize it", m.Spec.Name), renew: true}, true
	}
	return doom{}, false
}

// otherImage reports whether an instance was made from another image than the
// spec asks for now.
func otherImage(m *member.Member, inst *pod.Container) bool {
	return inst.Image != "" && inst.Image != m.Spec.Image
}

// endDoomed ends the containers of a living pod that have to.
func (d *decider) endDoomed() {
	for i := range d.members {
		m := &d.members[i]
		why, ok := d.doomOf(m)
		if !ok {
			continue
		}
		if id := m.Current.ID; why.renew && !slices.Contains(d.kept().Renew, id) {
			d.keep(func(k *pod.Kept) { k.Renew = append(k.Renew, id) })
		}
		if why.renew && !d.saved() {
			continue // forgotten, it might never be followed by another
		}
		grace := d.grace()
		if why.grace != nil {
			grace = time.Duration(*why.grace) * time.Second
		}
		d.because(waiting{container: m.Spec.Name, text: "is being stopped: " + why.why})
		d.kill(m.Current, d.in.Now.Add(grace), grace > 0, false, why.why)
	}
}
