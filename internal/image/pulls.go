package image

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// patience limits how long the runtime may take to report the progress of pulls: listing pods shouldn't have to wait
// longer.
const patience = 500 * time.Millisecond

// puller reports the progress of the active pulls.
type puller interface {
	Progress(ctx context.Context) []pull.Progress
}

// Underway returns the progress of each active pull, by image name.
type Underway func() map[string]pod.Pull

// pullsUnderWay returns an Underway that reads the progress once, on the first call. The Underway is safe for
// concurrent use.
func pullsUnderWay(ctx context.Context, m puller) Underway {
	return sync.OnceValue(func() map[string]pod.Pull {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		list := m.Progress(ctx)
		pulls := make(map[string]pod.Pull, len(list))
		for i := range list {
			// If an image has several pulls, with different credentials, a running one is reported rather than a
			// queued one.
			if p := &list[i]; !pulls[p.Image].Begun {
				pulls[p.Image] = pullOf(p)
			}
		}
		return pulls
	})
}

func pullOf(p *pull.Progress) pod.Pull {
	pull := pod.Pull{Queued: p.Position, Begun: p.Position == 0}
	if t := p.Transfer; t != nil && pull.Begun {
		pull.LayersDone, pull.Layers, pull.BytesDone, pull.Bytes = t.LayersDone, t.Layers, t.BytesDone, t.Bytes
	}
	return pull
}

// Add returns the waits, with the pull's progress added to each wait for an image. It reads the progress only if there
// is such a wait.
func (u Underway) Add(waits []pod.Wait) []pod.Wait {
	if !Awaited(waits) {
		return waits
	}
	out := slices.Clone(waits)
	for i := range out {
		if w := &out[i]; awaitsImage(w) {
			w.Pull = u()[pull.Name(w.Image)]
		}
	}
	return out
}

// Awaited reports whether any of the waits is for an image.
func Awaited(waits []pod.Wait) bool {
	return slices.ContainsFunc(waits, func(w pod.Wait) bool { return awaitsImage(&w) })
}

func awaitsImage(w *pod.Wait) bool { return w.Code == pod.WaitAction && w.Action == pod.EnsureImage }
