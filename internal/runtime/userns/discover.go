package userns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strings"
)

// Owner is the user of the host whose subordinate IDs are used for pods. The name is documented by Kubernetes and
// can't be configured.
const Owner = "kubelet"

// Finder finds the host's IDs that pods may use.
type Finder struct {
	// Exists reports whether the host has a user of this name; nil queries the host.
	Exists func(name string) (bool, error)
	// MaxPods is the maximum number of pods on the node (KubeletConfiguration maxPods), PerPod the number of IDs
	// for each of them; 0 means Block.
	MaxPods int32
	PerPod  uint32
}

// Find gets the subordinate IDs of the user "kubelet" from getsubids, which reads /etc/subuid and any other source
// that the host has configured. Without that user or that command, pods get the IDs after the first block.
// Everything else is an error: pods mustn't get IDs that other users have
// (https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/#set-up-a-node-to-support-user-namespaces).
func (f Finder) Find(ctx context.Context) (Range, error) {
	f.PerPod = cmp.Or(f.PerPod, Block)
	if f.PerPod%Block != 0 {
		return Range{}, fmt.Errorf("userNamespaces.idsPerPod is %d: it must be a multiple of %d", f.PerPod, Block)
	}
	exists := f.Exists
	if exists == nil {
		exists = hostHas
	}
	known, err := exists(Owner)
	if err != nil {
		return Range{}, fmt.Errorf("can't find out which IDs pods may have: user %q: %w", Owner, err)
	}
	command, err := exec.LookPath("getsubids")
	if !known || errors.Is(err, exec.ErrNotFound) {
		return f.fallback(), nil
	}
	if err != nil {
		return Range{}, fmt.Errorf("can't find out which IDs pods may have: %w", err)
	}
	users, err := subids(ctx, command, Owner)
	if err != nil {
		return Range{}, err
	}
	groups, err := subids(ctx, command, "-g", Owner)
	if err != nil {
		return Range{}, err
	}
	if users != groups {
		return Range{}, fmt.Errorf("the subordinate user IDs of %q are %s, its group IDs %s: they have to be the same",
			Owner, users, groups)
	}
	return users, f.suits(users)
}

func hostHas(name string) (bool, error) {
	_, err := user.Lookup(name)
	if errors.As(err, new(user.UnknownUserError)) {
		return false, nil
	}
	return err == nil, err
}

func (f Finder) fallback() Range {
	return Range{HostID: Block, Length: uint32(min(f.wanted(), end-Block))}
}

// wanted returns how many IDs all pods together need.
func (f Finder) wanted() uint64 { return uint64(f.PerPod) * uint64(max(f.MaxPods, 0)) }

func (f Finder) suits(r Range) error {
	if err := r.check(); err != nil {
		return fmt.Errorf("the subordinate IDs of %q can't be used for pods: %w", Owner, err)
	}
	if uint64(r.Length) < f.wanted() {
		return fmt.Errorf("the %d subordinate IDs of %q are too few for %d pods with %d each (maxPods, "+
			"userNamespaces.idsPerPod): it needs %d",
			r.Length, Owner, f.MaxPods, f.PerPod, f.wanted())
	}
	return nil
}

// subids runs getsubids, which prints a line "INDEX: OWNER FIRST COUNT" for each range.
func subids(ctx context.Context, command string, args ...string) (Range, error) {
	what := strings.Join(append([]string{"getsubids"}, args...), " ")
	cmd := exec.CommandContext(ctx, command, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return Range{}, fmt.Errorf(
			"can't find out which IDs pods may have: %s: %w (%s): give the user %q subordinate IDs in /etc/subuid "+
				"and /etc/subgid, or remove that user",
			what, err, strings.TrimSpace(stderr.String()), Owner)
	}
	text := strings.TrimSpace(string(out))
	var index, owner string
	var r Range
	if strings.Contains(text, "\n") {
		return Range{}, fmt.Errorf("%s has more than one range: the user %q may have just one", what, Owner)
	}
	if _, err := fmt.Sscan(text, &index, &owner, &r.HostID, &r.Length); err != nil || owner != Owner {
		return Range{}, fmt.Errorf("%s says %q, which can't be understood", what, text)
	}
	return r, nil
}
