package translate

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// ErrNonRoot means that a container that must not run as root would, or might, do so.
var ErrNonRoot = errors.New("runAsNonRoot is set")

// ImageUser is the user in an image's configuration, which a container runs as unless the pod specifies another: a
// number, a name, or, if neither is set, root.
type ImageUser struct {
	UID  *int64
	Name string
}

// ImageUserOf returns the user from an image's status; nil means root.
func ImageUserOf(img *runtimeapi.Image) ImageUser {
	if uid := img.GetUid(); uid != nil {
		v := uid.GetValue()
		return ImageUser{UID: &v}
	}
	return ImageUser{Name: img.GetUsername()}
}

// NeedsImageUser reports whether ContainerInput.ImageUser is required: to check runAsNonRoot, or because the CRI
// needs a user together with runAsGroup.
func NeedsImageUser(p *v1.Pod, c *v1.Container) bool {
	sc, psc := contexts(p, c)
	if first(sc.RunAsUser, psc.RunAsUser) != nil {
		return false
	}
	nonRoot := first(sc.RunAsNonRoot, psc.RunAsNonRoot)
	return nonRoot != nil && *nonRoot || first(sc.RunAsGroup, psc.RunAsGroup) != nil
}

// setUser leaves the user to the image unless the pod specifies one. The CRI accepts a group only together with a
// user, so it passes the image's user if only a group is specified.
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
		return fmt.Errorf("%w, but the image names its user %q instead of numbering it, so nothing tells whether "+
			"that is root: set runAsUser to a number other than 0", ErrNonRoot, image.Name)
	case image.UID == nil || *image.UID == 0:
		return fmt.Errorf("%w, but the image runs as root: set runAsUser", ErrNonRoot)
	}
	return nil
}

// supplementalGroups returns the pod's supplemental groups. The first one is fsGroup, the group of the pod's
// volumes, if it is set.
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

// withGroups returns groups, and after them the elements of more that aren't in groups.
func withGroups(groups, more []int64) []int64 {
	for _, g := range more {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

func groupsPolicy(p *v1.Pod) runtimeapi.SupplementalGroupsPolicy {
	if pod.StrictGroups(p) {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

// ownUsers reports whether the pod has its own user namespace (KEP-127).
func ownUsers(p *v1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

// userNamespace returns the pod's user namespace. users is the range of the host's IDs if the pod has its own user
// namespace.
func userNamespace(p *v1.Pod, users *userns.Range) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(p) {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	}
	if users == nil {
		return nil, fmt.Errorf("pod %s/%s: hostUsers is false: %w", p.Namespace, p.Name, userns.ErrNone)
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: idMappings(users),
		Gids: idMappings(users)}, nil
}

func idMappings(r *userns.Range) []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: r.HostID, Length: r.Length}}
}

// mapMounts requests idmapped mounts (KEP-127): in the pod, files have the owners that they have on disk, although
// the pod's IDs are different ones on the host.
func mapMounts(mounts []*runtimeapi.Mount, users *userns.Range) {
	for _, m := range mounts {
		m.UidMappings, m.GidMappings = idMappings(users), idMappings(users)
	}
}

// identities is the security context of a sandbox or container.
type identities interface {
	GetRunAsUser() *runtimeapi.Int64Value
	GetRunAsGroup() *runtimeapi.Int64Value
	GetSupplementalGroups() []int64
}

// checkMapped rejects IDs that the pod's user namespace doesn't have: the runtime would fail without a clear
// message.
func checkMapped(sc identities, users *userns.Range) error {
	ids := append([]int64{sc.GetRunAsUser().GetValue(), sc.GetRunAsGroup().GetValue()}, sc.GetSupplementalGroups()...)
	if id := slices.Max(ids); id >= int64(users.Length) {
		return fmt.Errorf("user or group %d doesn't exist in the pod's user namespace, which has those below %d: use "+
			"a lower one, or raise the node's userNamespaces.idsPerPod", id, users.Length)
	}
	return nil
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}
