package translate

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// namespaces returns the namespaces of a sandbox and of its containers.
func namespaces(p *v1.Pod, users *userns.Range) (*runtimeapi.NamespaceOption, error) {
	own, err := userNamespace(p, users)
	if err != nil {
		return nil, err
	}
	ns := &runtimeapi.NamespaceOption{
		Network:       runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		Ipc:           runtimeapi.NamespaceMode_POD,
		UsernsOptions: own,
	}
	if p.Spec.HostNetwork {
		ns.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		ns.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		ns.Pid = runtimeapi.NamespaceMode_NODE
	case p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace:
		ns.Pid = runtimeapi.NamespaceMode_POD
	}
	return ns, nil
}

// containerNamespaces returns the pod's namespaces, except that an ephemeral container may share the PID namespace
// of its target (API comment of targetContainerName). If the pod shares its PID namespace or uses the host's, the
// container sees the target's processes anyway.
func containerNamespaces(in ContainerInput) (*runtimeapi.NamespaceOption, error) {
	ns, err := namespaces(in.Pod, in.Users)
	if err != nil {
		return nil, err
	}
	if in.TargetID != "" && ns.Pid == runtimeapi.NamespaceMode_CONTAINER {
		ns.Pid, ns.TargetId = runtimeapi.NamespaceMode_TARGET, in.TargetID
	}
	return ns, nil
}

func sandboxSecurity(p *v1.Pod, users *userns.Range) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	ns, err := namespaces(p, users)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: ns,
		Privileged:       anyPrivileged(p),
		// The sandbox's process only waits, so the strictest profile works for every pod.
		Seccomp:                  &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		SupplementalGroups:       supplementalGroups(p),
		SupplementalGroupsPolicy: groupsPolicy(p),
	}
	if sc := p.Spec.SecurityContext; sc != nil {
		out.SelinuxOptions = selinuxOption(sc.SELinuxOptions)
		if sc.RunAsUser != nil {
			// The CRI accepts a group only together with a user.
			out.RunAsUser, out.RunAsGroup = int64Value(sc.RunAsUser), int64Value(sc.RunAsGroup)
		}
	}
	if ownUsers(p) {
		err = checkMapped(out, users)
	}
	return out, err
}

func anyPrivileged(p *v1.Pod) bool {
	is := func(c v1.Container) bool { return privileged(c.SecurityContext) }
	return slices.ContainsFunc(p.Spec.InitContainers, is) || slices.ContainsFunc(p.Spec.Containers, is) ||
		slices.ContainsFunc(p.Spec.EphemeralContainers,
			func(c v1.EphemeralContainer) bool { return privileged(c.SecurityContext) })
}

func privileged(sc *v1.SecurityContext) bool {
	return sc != nil && sc.Privileged != nil && *sc.Privileged
}

// contexts returns the container's security context and the pod's, never nil.
func contexts(p *v1.Pod, c *v1.Container) (*v1.SecurityContext, *v1.PodSecurityContext) {
	sc, psc := c.SecurityContext, p.Spec.SecurityContext
	if sc == nil {
		sc = &v1.SecurityContext{}
	}
	if psc == nil {
		psc = &v1.PodSecurityContext{}
	}
	return sc, psc
}

func containerSecurity(s *Settings, in ContainerInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	p := in.Pod
	sc, psc := contexts(p, in.Container)
	user := first(sc.RunAsUser, psc.RunAsUser)
	if nonRoot := first(sc.RunAsNonRoot, psc.RunAsNonRoot); nonRoot != nil && *nonRoot {
		if err := checkNonRoot(user, in.ImageUser); err != nil {
			return nil, err
		}
	}
	ns, err := containerNamespaces(in)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:       privileged(sc),
		Capabilities:     capabilities(sc.Capabilities),
		NamespaceOptions: ns,
		ReadonlyRootfs:   sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem,
		// Validation rejects allowPrivilegeEscalation: false for privileged containers (API comment); for all
		// others it is applied.
		NoNewPrivs:               sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		SelinuxOptions:           selinuxOption(first(sc.SELinuxOptions, psc.SELinuxOptions)),
		SupplementalGroups:       withGroups(supplementalGroups(p), in.Groups),
		SupplementalGroupsPolicy: groupsPolicy(p),
	}
	setUser(out, user, first(sc.RunAsGroup, psc.RunAsGroup), in.ImageUser)
	if ownUsers(p) {
		if err := checkMapped(out, in.Users); err != nil {
			return nil, err
		}
	}
	if err := setPaths(s, out, sc.ProcMount, ownUsers(p)); err != nil {
		return nil, err
	}
	return out, setProfiles(s, in, out)
}

func setProfiles(s *Settings, in ContainerInput, out *runtimeapi.LinuxContainerSecurityContext) (err error) {
	sc, psc := contexts(in.Pod, in.Container)
	if out.Apparmor, err = appArmorProfile(in.Pod, in.Container, s.AppArmorLoaded); err != nil {
		return err
	}
	if out.Privileged {
		// "Privileged containers always run as Unconfined"
		// (https://kubernetes.io/docs/tutorials/security/seccomp/).
		out.Seccomp = unconfined()
		return nil
	}
	out.Seccomp, err = seccompProfile(first(sc.SeccompProfile, psc.SeccompProfile), s.SeccompRoot, s.SeccompDefault)
	return err
}

// capabilities strips "CAP_" from the names, as in the API's documentation: a runtime would ignore an unknown name,
// and so keep a capability that was to be dropped.
func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	names := func(list []v1.Capability) (out []string) {
		for _, name := range list {
			out = append(out, capabilityName(name))
		}
		return out
	}
	return &runtimeapi.Capability{AddCapabilities: names(c.Add), DropCapabilities: names(c.Drop)}
}

func capabilityName(c v1.Capability) string {
	return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
}

// setPaths sets the masked and read-only paths in /proc and /sys. Empty lists mask nothing: that is only for pods
// with a user namespace, because others could write to the host's kernel (API comment of procMount, KEP-4265).
func setPaths(s *Settings, out *runtimeapi.LinuxContainerSecurityContext, mount *v1.ProcMountType,
	ownUsers bool) error {
	if mount != nil && *mount == v1.UnmaskedProcMount {
		if !ownUsers {
			return errors.New("procMount Unmasked is only for pods with a user namespace of their own: set hostUsers " +
				"to false")
		}
		return nil
	}
	out.MaskedPaths = append(maskedPaths(), s.MaskedPaths...)
	out.ReadonlyPaths = readonlyPaths()
	return nil
}

// maskedPaths returns the paths that a container can't read: the usual set of container runtimes. It is sent
// because CRI runtimes interpret an empty list as "mask nothing".
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

// readonlyPaths returns the paths that a container can't write.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// first returns the container's setting if it is set, or else the pod's.
func first[T any](container, pod *T) *T {
	if container != nil {
		return container
	}
	return pod
}
