package image

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// patience is how long the runtime may take to say how far pulls are: nobody who looks at
// pods should have to wait for it.
const patience = 500 * time.Millisecond

// puller knows the pulls under way.
type puller interface {
	Progress(ctx context.Context) []pull.Progress
}

// Underway returns how far each pull under way is, by the image's name.
type Underway func() map[string]pod.Pull

// pullsUnderWay are the pulls under way. They are looked at once, when that is first needed. It may
// be used by many goroutines.
func pullsUnderWay(ctx context.Context, m puller) Underway {
	return sync.OnceValue(func() map[string]pod.Pull {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		list := m.Progress(ctx)
		pulls := make(map[string]pod.Pull, len(list))
		for i := range list {
			// Pulls of one image with other credentials may still have to wait.
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

// Add returns what a pod waits for, in which those who wait for an image say how far its
// pull is. Pulls are only looked at where there are such.
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

// Awaited reports whether an image is waited for.
func Awaited(waits []pod.Wait) bool {
	return slices.ContainsFunc(waits, func(w pod.Wait) bool { return awaitsImage(&w) })
}

func awaitsImage(w *pod.Wait) bool { return w.Code == pod.WaitAction && w.Action == pod.EnsureImage }
