package observed

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func sandboxRank(s pod.SandboxState) int {
	if s == pod.SandboxReady {
		return 0
	}
	return 1
}

// containerRank returns the position of a state in the sequence of a container's states. A container whose shim was
// lost counts as ended, but the runtime may still report how it ended.
func containerRank(s pod.ContainerState) int {
	switch s {
	case pod.ContainerCreated:
		return 0
	case pod.ContainerRunning:
		return 1
	case pod.ContainerUnknown:
		return 2
	default:
		return 3
	}
}

// completeSandbox returns next, with missing fields copied from the cached sandbox old. Without detailed, only the
// state of next is used.
func completeSandbox(next pod.Sandbox, old *pod.Sandbox, detailed bool) pod.Sandbox {
	if !detailed {
		state := next.State
		next = *old
		next.State = state
		if state == pod.SandboxNotReady {
			next.IPs = nil
		}
		return next
	}
	next.CreatedAt = known(next.CreatedAt, old.CreatedAt)
	next.HostNetwork = next.HostNetwork || old.HostNetwork
	return next
}

// completeContainer returns next, with missing fields copied from the cached container old.
func completeContainer(next pod.Container, old *pod.Container, detailed bool) pod.Container {
	next.SandboxID = cmp.Or(next.SandboxID, old.SandboxID)
	next.CreatedAt = known(next.CreatedAt, old.CreatedAt)
	next.StartedAt = known(next.StartedAt, old.StartedAt)
	next.CreatedWith, next.RuntimeReported = keep(next.CreatedWith, old.CreatedWith),
		keep(next.RuntimeReported, old.RuntimeReported)
	if detailed {
		return next
	}
	next.FinishedAt = known(next.FinishedAt, old.FinishedAt)
	next.ExitCode = cmp.Or(next.ExitCode, old.ExitCode)
	next.Reason = cmp.Or(next.Reason, old.Reason)
	next.Message = cmp.Or(next.Message, old.Message)
	next.StartAborted = cmp.Or(next.StartAborted, old.StartAborted)
	next.DiskFull = cmp.Or(next.DiskFull, old.DiskFull)
	next.Image = cmp.Or(next.Image, old.Image)
	next.ImageRef = cmp.Or(next.ImageRef, old.ImageRef)
	next.LogPath = cmp.Or(next.LogPath, old.LogPath)
	next.Backoff = cmp.Or(next.Backoff, old.Backoff)
	next.Hash = cmp.Or(next.Hash, old.Hash)
	next.Grace = cmp.Or(next.Grace, old.Grace)
	next.TerminationMessagePath = cmp.Or(next.TerminationMessagePath, old.TerminationMessagePath)
	next.TerminationMessagePolicy = cmp.Or(next.TerminationMessagePolicy, old.TerminationMessagePolicy)
	return next
}

func known(next, old time.Time) time.Time {
	if next.IsZero() {
		return old
	}
	return next
}

// keep returns old unless next differs. Equal values therefore keep the same pointer, which sameContainer relies
// on.
func keep[T any](next, old *T) *T {
	if next == nil || next == old || equality.Semantic.DeepEqual(next, old) {
		return old
	}
	return next
}

func sameSandbox(a, b *pod.Sandbox) bool {
	return a.ID == b.ID && a.State == b.State && a.Attempt == b.Attempt && a.CreatedAt.Equal(b.CreatedAt) &&
		a.HostNetwork == b.HostNetwork && slices.Equal(a.IPs, b.IPs)
}

// sameContainer compares the result of completeContainer with its input old.
func sameContainer(a, b *pod.Container) bool {
	x, y := *a, *b
	if !x.CreatedAt.Equal(y.CreatedAt) || !x.StartedAt.Equal(y.StartedAt) || !x.FinishedAt.Equal(y.FinishedAt) {
		return false
	}
	if (x.Grace == nil) != (y.Grace == nil) || x.Grace != nil && *x.Grace != *y.Grace {
		return false
	}
	x.CreatedAt, x.StartedAt, x.FinishedAt, x.Grace = y.CreatedAt, y.StartedAt, y.FinishedAt, y.Grace
	return x == y
}
