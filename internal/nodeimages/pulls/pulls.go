// Package pulls says in a few words what pulls of images are doing, to those who look at
// the pods that wait for them.
package pulls

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// patience is how long the runtime may take to say how far pulls are: nobody who looks at
// pods should have to wait for it.
const patience = 500 * time.Millisecond

// Manager knows the pulls under way.
type Manager interface {
	Progress(ctx context.Context) []image.Progress
}

// Words are what is to be said of pulls under way, by the images' names. There are no times
// in them, so that they only change when something happens.
type Words func() map[string]string

// Now are the words for all pulls under way. They are looked at once, when the first word
// is needed. It may be used by many goroutines.
func Now(ctx context.Context, m Manager) Words {
	return sync.OnceValue(func() map[string]string {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		list := m.Progress(ctx)
		words := make(map[string]string, len(list))
		for i := range list {
			// Pulls of one image with other credentials may still have to wait.
			if p := &list[i]; words[p.Image] == "" || p.Position == 0 {
				words[p.Image] = text(p)
			}
		}
		return words
	})
}

func text(p *image.Progress) string {
	switch {
	case p.Position > 0:
		return fmt.Sprintf("number %d in the queue", p.Position)
	case p.Transfer == nil:
		return "being pulled"
	}
	return fmt.Sprintf("%d of %d layers, %s of %s", p.Transfer.LayersDone, p.Transfer.Layers, megabytes(p.Transfer.BytesDone), megabytes(p.Transfer.Bytes))
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// Explain returns the reasons of a pod, in which those that wait for an image say what its
// pull is doing. Pulls are only looked at where there are such.
func (words Words) Explain(p *v1.Pod, reasons []pod.Reason) []pod.Reason {
	if !Awaited(p, reasons) {
		return reasons
	}
	out := make([]pod.Reason, len(reasons))
	for i, r := range reasons {
		if name, ok := awaitedImage(p, &r); ok && words()[name] != "" {
			r.Text += ": " + words()[name]
		}
		out[i] = r
	}
	return out
}

// Awaited reports whether a pod with these reasons waits for an image.
func Awaited(p *v1.Pod, reasons []pod.Reason) bool {
	for i := range reasons {
		if _, ok := awaitedImage(p, &reasons[i]); ok {
			return true
		}
	}
	return false
}

// awaitedImage is the full name of the image that a container waits for, if the reason is that.
func awaitedImage(p *v1.Pod, r *pod.Reason) (name string, ok bool) {
	if r.Container == "" {
		return "", false
	}
	c := pod.ContainerNamed(p, r.Container)
	if c == nil || r.Text != lifecycle.ImageWait(c.Image) {
		return "", false
	}
	return image.Name(c.Image), true
}
