// Package member tells what each container of a pod is to the pod, and which of
// the runtime's instances are its.
package member

import (
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Role is what a container is in its pod.
type Role int

const (
	// Main is one of spec.containers.
	Main Role = iota
	// Init is an init container, which has to succeed once.
	Init
	// Sidecar is an init container with restartPolicy Always (KEP-753).
	Sidecar
	// Ephemeral is one of spec.ephemeralContainers (KEP-277).
	Ephemeral
)

// Member is one container of the spec with what runs of it.
type Member struct {
	Spec *v1.Container
	Role Role
	// Target is the container whose processes an ephemeral one wants to see.
	Target string
	// Newest and Previous are the last two instances, nil if there are none.
	Newest, Previous *pod.Container
	// Current is Newest if it lives in the live sandbox.
	Current *pod.Container
	// Hooked, Started and Ready are of Current while it runs: its postStart hook is
	// done, it has passed its startup probe, it is ready (API: ContainerStatus).
	Hooked, Started, Ready bool
	// NotReady says in words why it isn't started or ready; empty if it is.
	NotReady string
}

// List is the members of a pod.
type List []Member

// Named returns the member of this name; nil if there is none.
func (l List) Named(name string) *Member {
	for i := range l {
		if l[i].Spec.Name == name {
			return &l[i]
		}
	}
	return nil
}

// Of lists the members of a pod: init containers and sidecars, main containers,
// ephemeral ones, each in the order of the spec. sandbox is the live one's ID, or empty.
func Of(p *v1.Pod, o *pod.Observed, sandbox string) List {
	spec := &p.Spec
	list := make(List, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		m := Member{Spec: c, Role: Init}
		if pod.IsSidecar(c) {
			m.Role = Sidecar
		}
		list = append(list, m)
	}
	for i := range spec.Containers {
		list = append(list, Member{Spec: &spec.Containers[i], Role: Main})
	}
	for i := range spec.EphemeralContainers {
		e := &spec.EphemeralContainers[i]
		list = append(list, Member{Spec: (*v1.Container)(&e.EphemeralContainerCommon), Role: Ephemeral, Target: e.TargetContainerName})
	}
	if o == nil {
		return list
	}
	for i := range list {
		list[i].find(o, sandbox)
	}
	return list
}

func (m *Member) find(o *pod.Observed, sandbox string) {
	for i := range o.Containers {
		c := &o.Containers[i]
		switch {
		case c.Name != m.Spec.Name:
		case m.Newest == nil:
			m.Newest = c
			if sandbox != "" && c.SandboxID == sandbox {
				m.Current = c
			}
		default:
			m.Previous = c
			return
		}
	}
}

// Runs reports whether an instance runs in the live sandbox.
func (m *Member) Runs() bool { return m.Current != nil && m.Current.State == pod.ContainerRunning }

// Succeeded reports whether the newest instance ended well in the live sandbox.
func (m *Member) Succeeded() bool {
	return m.Current != nil && m.Current.Ended() && ExitCode(m.Current) == 0
}

// LongRunning reports whether the container is one of those that a pod is there
// for: only they may have probes and hooks, and be resized.
func (m *Member) LongRunning() bool { return m.Role == Main || m.Role == Sidecar }

// lostExitCode stands for that of an instance whose end nobody saw: killed.
const lostExitCode = 137

// ExitCode of an ended instance; one the runtime lost counts as killed.
func ExitCode(inst *pod.Container) int32 {
	if inst.State == pod.ContainerUnknown && inst.ExitCode == 0 {
		return lostExitCode
	}
	return inst.ExitCode
}
