// Package container finds the role of each container in its pod, its instances in the runtime, and the probes that
// have to run for it. From probe results it finds whether a container is started and ready, and whether it has to be
// killed. The part of this state that has to survive a restart of the agent goes into the draft of the pod's
// checkpoint.
package container

import (
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Role is the role of a container in its pod.
type Role int

const (
	// Main is a container of spec.containers.
	Main Role = iota
	// Init is an init container, which has to succeed once.
	Init
	// Sidecar is an init container with restartPolicy Always (KEP-753).
	Sidecar
	// Ephemeral is one of spec.ephemeralContainers (KEP-277).
	Ephemeral
)

// Container is one container of the spec with its instances in the runtime.
type Container struct {
	Spec *v1.Container
	Role Role
	// Target is the container whose process namespace an ephemeral container shares.
	Target string
	// Newest and Previous are the last two instances; nil if there are none.
	Newest, Previous *pod.Container
	// Current is Newest if it is in the live sandbox, else nil.
	Current *pod.Container
	// PostStartDone says that Newest runs and its postStart hook has completed.
	PostStartDone bool
	// Started and Ready describe Current while it runs (API: ContainerStatus). Started says that it has passed its
	// startup probe.
	Started, Ready bool
	// NotReady is the wait for the probe that keeps Current from being started or ready; nil if no probe does.
	NotReady *pod.Wait
}

// List holds the containers of a pod.
type List []Container

// Named returns the container of this name; nil if there is none.
func (l List) Named(name string) *Container {
	for i := range l {
		if l[i].Spec.Name == name {
			return &l[i]
		}
	}
	return nil
}

// Of lists the containers of a pod: init containers and sidecars, main containers, ephemeral containers, each in the
// order of the spec. sandbox is the ID of the live sandbox, or empty.
func Of(p *v1.Pod, o *pod.Observed, sandbox string) List {
	spec := &p.Spec
	list := make(List, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		m := Container{Spec: c, Role: Init}
		if pod.IsSidecar(c) {
			m.Role = Sidecar
		}
		list = append(list, m)
	}
	for i := range spec.Containers {
		list = append(list, Container{Spec: &spec.Containers[i], Role: Main})
	}
	for i := range spec.EphemeralContainers {
		e := &spec.EphemeralContainers[i]
		list = append(list, Container{Spec: (*v1.Container)(&e.EphemeralContainerCommon), Role: Ephemeral,
			Target: e.TargetContainerName})
	}
	if o == nil {
		return list
	}
	for i := range list {
		list[i].find(o, sandbox)
	}
	return list
}

func (m *Container) find(o *pod.Observed, sandbox string) {
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
func (m *Container) Runs() bool { return m.Current != nil && m.Current.State == pod.ContainerRunning }

// Starting reports whether the start of the newest instance isn't complete: it completes with the postStart hook.
func (m *Container) Starting() bool {
	if m.Newest == nil {
		return false
	}
	return m.Newest.State == pod.ContainerCreated || m.Newest.State == pod.ContainerRunning && !m.PostStartDone
}

// Succeeded reports whether the newest instance exited with code 0 in the live sandbox.
func (m *Container) Succeeded() bool {
	return m.Current != nil && m.Current.Ended() && ExitCode(m.Current) == 0
}

// LongRunning reports whether the container is a main container or a sidecar: only these may have probes and hooks,
// and be resized.
func (m *Container) LongRunning() bool { return m.Role == Main || m.Role == Sidecar }

// ExitCode is the exit code of an ended instance. An instance that the runtime lost counts as killed.
func ExitCode(inst *pod.Container) int32 {
	if inst.State == pod.ContainerUnknown && inst.ExitCode == 0 {
		return pod.UnknownExitCode
	}
	return inst.ExitCode
}
