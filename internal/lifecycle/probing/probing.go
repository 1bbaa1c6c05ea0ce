// Package probing knows what containers' probes mean: which of them are to run,
// who is started and ready by their results, and who has to end.
package probing

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/kept"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Results are what the pod's probes have come to.
type Results []pod.ProbeResult

// of is what a probe of the running instance has come to.
func (rs Results) of(m *member.Member, kind pod.ProbeKind) (pod.ProbeResult, bool) {
	for _, r := range rs {
		if r.ID == m.Current.ID && r.Kind == kind {
			return r, true
		}
	}
	return pod.ProbeResult{}, false
}

// Judge finds out which running containers are started and ready (API:
// ContainerStatus.started, .ready). What was known of an instance before the agent
// restarted holds until a probe says otherwise.
func Judge(members member.List, results Results, b *kept.Book) {
	for i := range members {
		m := &members[i]
		if !m.Runs() {
			continue
		}
		id, k := m.Current.ID, b.Get()
		m.Hooked = !hasPostStart(m.Spec) || !m.LongRunning() || slices.Contains(k.Hooked, id)
		m.Started = m.Hooked
		switch {
		case !m.Hooked:
			m.NotReady = "its postStart hook is running"
		case m.LongRunning() && m.Spec.StartupProbe != nil && !slices.Contains(k.Started, id):
			r, ok := results.of(m, pod.ProbeStartup)
			m.Started = ok && r.OK
			if m.Started {
				b.Change(func(k *pod.Kept) { k.Started = append(k.Started, id) })
			} else {
				m.NotReady = "its startup probe hasn't succeeded yet"
			}
		}
		m.Ready = m.Started && m.Role != member.Init
		if m.Ready && m.LongRunning() && m.Spec.ReadinessProbe != nil {
			judgeReady(m, results, b)
		}
	}
}

func judgeReady(m *member.Member, results Results, b *kept.Book) {
	id := m.Current.ID
	was := slices.Contains(b.Get().Ready, id)
	m.Ready = was
	m.NotReady = "its readiness probe hasn't succeeded yet"
	if r, ok := results.of(m, pod.ProbeReadiness); ok {
		m.Ready = r.OK
		m.NotReady = "its readiness probe fails: " + r.Message
	}
	if m.Ready {
		m.NotReady = ""
	}
	if m.Ready != was {
		b.Change(func(k *pod.Kept) {
			k.Ready = slices.DeleteFunc(k.Ready, func(s string) bool { return s == id })
			if m.Ready {
				k.Ready = append(k.Ready, id)
			}
		})
	}
}

// Wanted lists the probes that are to run: the startup probe until it succeeds,
// then the others. Of a pod that ends only readiness is probed on (Pod lifecycle,
// "Termination of Pods"). starting reports whether a container's start isn't over.
func Wanted(members member.List, ends bool, starting func(name string) bool) (list []pod.Probe) {
	for i := range members {
		m := &members[i]
		if !m.Runs() || !m.Hooked || !m.LongRunning() || starting(m.Spec.Name) {
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

// Failed reports whether a startup or liveness probe wants a container ended: why,
// and with which grace in seconds; nil for the pod's.
func Failed(m *member.Member, results Results) (why string, grace *int64, failed bool) {
	for _, p := range [...]struct {
		kind pod.ProbeKind
		spec *v1.Probe
	}{{pod.ProbeStartup, m.Spec.StartupProbe}, {pod.ProbeLiveness, m.Spec.LivenessProbe}} {
		if p.spec == nil {
			continue
		}
		if r, ok := results.of(m, p.kind); ok && !r.OK {
			return fmt.Sprintf("Container %s failed %s probe, will be restarted", m.Spec.Name, p.kind), p.spec.TerminationGracePeriodSeconds, true
		}
	}
	return "", nil, false
}

func hasPostStart(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }
