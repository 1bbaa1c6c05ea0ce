package container

import (
	"slices"

	"github.com/deckhand-node/deckhand/internal/pod"
	v1 "k8s.io/api/core/v1"
)

// ProbeResults are the results of the pod's probes.
type ProbeResults []pod.ProbeResult

// of returns the result of a probe of the running instance.
func (rs ProbeResults) of(m *Container, kind pod.ProbeKind) (pod.ProbeResult, bool) {
	for _, r := range rs {
		if r.ID == m.Current.ID && r.Kind == kind {
			return r, true
		}
	}
	return pod.ProbeResult{}, false
}

// SetReadiness sets which running containers are started and ready (API: ContainerStatus.started, .ready). After a
// restart of the agent, the checkpoint's entries for an instance hold until a probe result contradicts them.
func SetReadiness(containers List, results ProbeResults, b *Draft) {
	for i := range containers {
		m := &containers[i]
		if m.Newest == nil || m.Newest.State != pod.ContainerRunning {
			continue
		}
		id, k := m.Newest.ID, b.Get()
		m.PostStartDone = !hasPostStart(m.Spec) || !m.LongRunning() || slices.Contains(k.PostStartDone, id)
		if !m.Runs() {
			continue
		}
		m.Started = m.PostStartDone
		if m.PostStartDone && m.LongRunning() && m.Spec.StartupProbe != nil && !slices.Contains(k.Started, id) {
			r, ok := results.of(m, pod.ProbeStartup)
			m.Started = ok && r.OK
			if m.Started {
				b.Change(func(k *pod.Checkpoint) { k.Started = append(k.Started, id) })
			} else {
				m.NotReady = &pod.Wait{Code: pod.WaitProbe, Container: m.Spec.Name, Probe: pod.ProbeStartup}
			}
		}
		m.Ready = m.Started && m.Role != Init
		if m.Ready && m.LongRunning() && m.Spec.ReadinessProbe != nil {
			setReady(m, results, b)
		}
	}
}

// AdoptReadiness copies a container's reported readiness into the checkpoint if its newest instance ran at the time of
// the report and still runs.
func AdoptReadiness(m *Container, reported *v1.ContainerStatus, b *Draft) {
	if reported.State.Running == nil || m.Newest.State != pod.ContainerRunning || !m.LongRunning() {
		return
	}
	hooked, started, ready := hasPostStart(m.Spec),
		m.Spec.StartupProbe != nil && reported.Started != nil && *reported.Started,
		m.Spec.ReadinessProbe != nil && reported.Ready
	if !hooked && !started && !ready {
		return
	}
	b.Change(func(k *pod.Checkpoint) {
		for _, f := range [...]struct {
			holds bool
			ids   *[]string
		}{{hooked, &k.PostStartDone}, {started, &k.Started}, {ready, &k.Ready}} {
			if f.holds {
				*f.ids = append(*f.ids, m.Newest.ID)
			}
		}
	})
}

func setReady(m *Container, results ProbeResults, b *Draft) {
	id := m.Current.ID
	was := slices.Contains(b.Get().Ready, id)
	r, ok := results.of(m, pod.ProbeReadiness)
	m.Ready = ok && r.OK || !ok && was
	if !m.Ready {
		m.NotReady = &pod.Wait{Code: pod.WaitProbe, Container: m.Spec.Name, Probe: pod.ProbeReadiness}
		if ok {
			m.NotReady.Code, m.NotReady.Message = pod.WaitProbeFailed, r.Message
		}
	}
	if m.Ready != was {
		b.Change(func(k *pod.Checkpoint) {
			k.Ready = slices.DeleteFunc(k.Ready, func(s string) bool { return s == id })
			if m.Ready {
				k.Ready = append(k.Ready, id)
			}
		})
	}
}

// WantedProbes lists the probes that have to run: the startup probe until it succeeds, then the others. In a pod that
// is ending only readiness probes continue (Pod lifecycle, "Termination of Pods"). starting reports whether a
// container's start is still in progress.
func WantedProbes(containers List, ends bool, starting func(name string) bool) (list []pod.Probe) {
	for i := range containers {
		m := &containers[i]
		if !m.Runs() || !m.PostStartDone || !m.LongRunning() || starting(m.Spec.Name) {
			continue
		}
		ask := func(kind pod.ProbeKind, probe *v1.Probe) {
			if probe != nil {
				list = append(list, pod.Probe{Container: m.Spec.Name, ID: m.Current.ID, Kind: kind})
			}
		}
		switch {
		case !m.Started && !ends:
			ask(pod.ProbeStartup, m.Spec.StartupProbe)
		case !m.Started:
		case !ends:
			ask(pod.ProbeLiveness, m.Spec.LivenessProbe)
			fallthrough
		default:
			ask(pod.ProbeReadiness, m.Spec.ReadinessProbe)
		}
	}
	return list
}

// FailedProbe reports whether a container has to be killed for a failed startup or liveness probe. It returns the
// result and the grace period in seconds; nil for the pod's grace period.
func FailedProbe(m *Container, results ProbeResults) (result pod.ProbeResult, grace *int64, failed bool) {
	for _, p := range [...]struct {
		kind pod.ProbeKind
		spec *v1.Probe
	}{{pod.ProbeStartup, m.Spec.StartupProbe}, {pod.ProbeLiveness, m.Spec.LivenessProbe}} {
		if p.spec == nil {
			continue
		}
		if r, ok := results.of(m, p.kind); ok && !r.OK {
			return r, p.spec.TerminationGracePeriodSeconds, true
		}
	}
	return pod.ProbeResult{}, nil, false
}

// ProbeGrace returns the grace period in seconds for killing a container after this kind of probe failed; nil for the
// pod's grace period.
func ProbeGrace(m *Container, kind pod.ProbeKind) *int64 {
	probe := m.Spec.LivenessProbe
	if kind == pod.ProbeStartup {
		probe = m.Spec.StartupProbe
	}
	if probe == nil {
		return nil
	}
	return probe.TerminationGracePeriodSeconds
}

func hasPostStart(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }
