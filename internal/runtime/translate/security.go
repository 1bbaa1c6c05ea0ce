package translate

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ErrNonRoot says that a container that must not run as root would, or might.
var ErrNonRoot = errors.New("runAsNonRoot is set")

// ImageUser is who an image's process runs as unless the pod says otherwise:
// by number, by name, or, if neither is set, root.
type ImageUser struct {
	UID  *int64
	Name string
}

// ImageUserOf reads the user from an image's status; nil means root.
func ImageUserOf(img *runtimeapi.Image) ImageUser {
	if uid := img.GetUid(); uid != nil {
		v := uid.GetValue()
		return ImageUser{UID: &v}
	}
	return ImageUser{Name: img.GetUsername()}
}

// namespaces are the same for a sandbox and the containers in it.
func namespaces(p *v1.Pod) *runtimeapi.NamespaceOption {
	ns := &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD,
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
		Ipc:     runtimeapi.NamespaceMode_POD,
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
	return ns
}

// containerNamespaces are the pod's, except that an ephemeral container may be
// among the processes of the one it targets (API comment of targetContainerName).
// Where the pod shares its processes or sees the host's, it sees the target anyway.
func containerNamespaces(in ContainerInput) *runtimeapi.NamespaceOption {
	ns := namespaces(in.Pod)
	if in.TargetID != "" && ns.Pid == runtimeapi.NamespaceMode_CONTAINER {
		ns.Pid, ns.TargetId = runtimeapi.NamespaceMode_TARGET, in.TargetID
	}
	return ns
}

func sandboxSecurity(p *v1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p),
		Privileged:       anyPrivileged(p),
		// The sandbox's own process does nothing but wait: whatever the pod asks
		// for, the strictest profile fits it.
		Seccomp:                  &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		SupplementalGroups:       supplementalGroups(p),
		SupplementalGroupsPolicy: groupsPolicy(p),
	}
	sc := p.Spec.SecurityContext
	if sc == nil || sc.RunAsUser == nil {
		return out
	}
	// The CRI takes a group only together with a user.
	out.RunAsUser = int64Value(sc.RunAsUser)
	out.RunAsGroup = int64Value(sc.RunAsGroup)
	return out
}

func anyPrivileged(p *v1.Pod) bool {
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if privileged(list[i].SecurityContext) {
				return true
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if privileged(p.Spec.EphemeralContainers[i].SecurityContext) {
			return true
		}
	}
	return false
}

func privileged(sc *v1.SecurityContext) bool {
	return sc != nil && sc.Privileged != nil && *sc.Privileged
}

func supplementalGroups(p *v1.Pod) []int64 {
	sc := p.Spec.SecurityContext
	if sc == nil {
		return nil
	}
	var groups []int64
	if sc.FSGroup != nil {
		groups = append(groups, *sc.FSGroup)
	}
	return append(groups, sc.SupplementalGroups...)
}

func groupsPolicy(p *v1.Pod) runtimeapi.SupplementalGroupsPolicy {
	sc := p.Spec.SecurityContext
	if sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

func containerSecurity(s *Settings, in ContainerInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	p := in.Pod
	sc := in.Container.SecurityContext
	if sc == nil {
		sc = &v1.SecurityContext{}
	}
	psc := p.Spec.SecurityContext
	if psc == nil {
		psc = &v1.PodSecurityContext{}
	}
	user := first(sc.RunAsUser, psc.RunAsUser)
	if nonRoot := first(sc.RunAsNonRoot, psc.RunAsNonRoot); nonRoot != nil && *nonRoot {
		if err := checkNonRoot(user, in.ImageUser); err != nil {
			return nil, err
		}
	}
	profile, err := seccomp(s, first(sc.SeccompProfile, psc.SeccompProfile))
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:               privileged(sc),
		Capabilities:             capabilities(sc.Capabilities),
		NamespaceOptions:         containerNamespaces(in),
		ReadonlyRootfs:           sc.ReadOnlyRootFilesystem != nil && *sc.ReadOnlyRootFilesystem,
		NoNewPrivs:               sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		Seccomp:                  profile,
		SupplementalGroups:       supplementalGroups(p),
		SupplementalGroupsPolicy: groupsPolicy(p),
		// Whatever procMount says: only in a user namespace of its own may a pod have
		// /proc unmasked (API comment of procMount), and this build makes none. On the
		// host's users it could write to the host's kernel.
		MaskedPaths:   maskedPaths(),
		ReadonlyPaths: readonlyPaths(),
	}
	setUser(out, user, first(sc.RunAsGroup, psc.RunAsGroup), in.ImageUser)
	return out, nil
}

// setUser leaves the user to the image unless the pod names one; but the CRI
// takes a group only together with a user, so then the image's is named.
func setUser(out *runtimeapi.LinuxContainerSecurityContext, user, group *int64, image ImageUser) {
	out.RunAsUser, out.RunAsGroup = int64Value(user), int64Value(group)
	if user != nil || group == nil {
		return
	}
	switch {
	case image.UID != nil:
		out.RunAsUser = int64Value(image.UID)
	case image.Name != "":
		out.RunAsUsername = image.Name
	default:
		out.RunAsUser = &runtimeapi.Int64Value{}
	}
}

func checkNonRoot(user *int64, image ImageUser) error {
	switch {
	case user != nil && *user == 0:
		return fmt.Errorf("%w, but runAsUser is 0 (root)", ErrNonRoot)
	case user != nil:
		return nil
	case image.UID == nil && image.Name != "":
		return fmt.Errorf("%w, but the image names its user %q instead of numbering it, so that it can't be told from root: set runAsUser", ErrNonRoot, image.Name)
	case image.UID == nil || *image.UID == 0:
		return fmt.Errorf("%w, but the image runs as root: set runAsUser", ErrNonRoot)
	}
	return nil
}

func seccomp(s *Settings, p *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		if s.SeccompDefault {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
	switch p.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || !filepath.IsLocal(*p.LocalhostProfile) {
			return nil, errors.New("seccompProfile of type Localhost needs localhostProfile, a path inside the node's seccomp folder")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(s.SeccompRoot, *p.LocalhostProfile),
		}, nil
	}
	return nil, fmt.Errorf("seccompProfile has the unknown type %q: use RuntimeDefault, Unconfined or Localhost", p.Type)
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

// maskedPaths are what a container can't read: the usual
// set of container runtimes. They are sent because CRI runtimes take an empty
// list for "mask nothing".
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

// readonlyPaths are what a container can't write.
func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

// first is the container's setting, or else the pod's.
func first[T any](container, pod *T) *T {
	if container != nil {
		return container
	}
	return pod
}
