package agent

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	// pullPeriod is how often those who watch pods are told how far pulls are.
	pullPeriod = time.Second
	// pullPatience is how long the runtime may take to say so: nobody who looks at pods
	// should have to wait for it.
	pullPatience = 500 * time.Millisecond
)

// pullWords tells what pulls under way are doing, in a few words each, by image. It has no
// times in it, so that it only changes when something happens.
type pullWords map[string]string

// pullWords looks at all pulls under way.
func (s *imageSide) pullWords(ctx context.Context) pullWords {
	ctx, cancel := context.WithTimeout(ctx, pullPatience)
	defer cancel()
	list := s.manager.Progress(ctx)
	words := make(pullWords, len(list))
	for i := range list {
		// Pulls of one image with other credentials may still have to wait.
		if p := &list[i]; words[p.Image] == "" || p.Position == 0 {
			words[p.Image] = pullText(p)
		}
	}
	return words
}

func pullText(p *image.Progress) string {
	switch {
	case p.Position > 0:
		return fmt.Sprintf("number %d in the queue", p.Position)
	case p.Transfer == nil:
		return "being pulled"
	}
	return fmt.Sprintf("%d of %d layers, %s of %s", p.Transfer.LayersDone, p.Transfer.Layers, megabytes(p.Transfer.BytesDone), megabytes(p.Transfer.Bytes))
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// withPulls are the reasons of a pod, in which those that wait for an image say what its
// pull is doing. words is only asked for where there are such.
func withPulls(p *v1.Pod, reasons []pod.Reason, words func() pullWords) []pod.Reason {
	if !awaitsImage(p, reasons) {
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

func awaitsImage(p *v1.Pod, reasons []pod.Reason) bool {
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

// anyAwaitsImage reports whether a pod of this node waits for an image.
func (a view) anyAwaitsImage() bool {
	for _, e := range a.status.List() {
		if awaitsImage(e.Pod, e.Report.Reasons) {
			return true
		}
	}
	return false
}
