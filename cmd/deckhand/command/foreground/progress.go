package foreground

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Terminal describes the terminal on which progress is shown.
type Terminal struct {
	// Size returns the terminal's width and height in characters.
	Size func() (width, height int)
	// Color enables colors.
	Color bool
	// Resized receives a value when Size has changed; it may be nil.
	Resized <-chan os.Signal
}

// Options are the options of Show.
type Options struct {
	Now func() time.Time
	// Terminal is nil for plain lines.
	Terminal *Terminal
	// Steady is how long the condition of Show has to hold: a container in a crash loop is ready between two crashes.
	// With plain lines, the problems are printed again when no line was printed for this time.
	Steady time.Duration
}

// view shows snapshots in one of two formats.
type view interface {
	show(local.Snapshot) error
}

// Show shows snapshots until a condition, the parameter until, has been true for opts.Steady. It returns the last
// snapshot, with ctx's error if ctx ends first, and io.EOF if snapshots is closed first.
func Show(ctx context.Context, w io.Writer, snapshots <-chan local.Snapshot, until func(local.Snapshot) bool,
	opts Options) (local.Snapshot, error) {
	plain := NewPlain(w)
	var v view = plain
	var resized <-chan os.Signal
	var tick <-chan time.Time
	if opts.Terminal != nil {
		v = &live{w: w, now: opts.Now, begun: opts.Now(), terminal: opts.Terminal}
		resized = opts.Terminal.Resized
		ticker := time.NewTicker(time.Second) // updates the ages
		defer ticker.Stop()
		tick = ticker.C
	}
	var last local.Snapshot
	// steady fires when all pods have been ready for Steady, quiet when no line was printed for that time.
	var steady, quiet <-chan time.Time
	repeated := ""
	for {
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case snapshot, ok := <-snapshots:
			if !ok {
				return last, io.EOF
			}
			last = snapshot
		case <-steady:
			return last, nil
		case <-quiet:
			quiet = nil
			if text := strings.Join(Wrong(&last), "\n"); text != "" && text != repeated {
				repeated = text
				if _, err := io.WriteString(w, "\n"+text+"\n\n"); err != nil {
					return last, err
				}
			}
			continue
		case <-tick:
		case <-resized:
		}
		if err := v.show(last); err != nil {
			return last, err
		}
		switch {
		case !until(last):
			steady = nil
		case opts.Steady == 0:
			return last, nil
		case steady == nil:
			steady = time.After(opts.Steady)
		}
		if plain.changed && opts.Steady > 0 {
			quiet = time.After(opts.Steady)
		}
	}
}

// Well reports whether all sources were read without problems, and all their pods are ready, have succeeded or were
// stopped by a user.
func Well(s local.Snapshot) bool {
	for i := range s.Pods {
		if !s.Pods[i].Done() {
			return false
		}
	}
	return s.Agent.Synced && len(s.Problems) == 0
}

// Wrong lists the pods that have failed or keep failing, and the problems of manifests, a line each. It is empty if
// there are none. Pods that are still starting don't count.
func Wrong(s *local.Snapshot) []string {
	var lines []string
	done := 0
	for i := range s.Pods {
		v := &s.Pods[i]
		if v.Done() {
			done++
		} else if rank(v) == 0 || slices.ContainsFunc(v.Waits, fails) {
			lines = append(lines, "  "+terminal.Line(
				fmt.Sprintf("%s/%s: %s", v.Pod.Namespace, v.Pod.Name, describe(v))))
		}
	}
	problems, more := show.FirstProblems(s.Problems)
	for _, p := range problems {
		for i, line := range strings.Split(strings.TrimSpace(p.Message), "\n") {
			if i == 0 {
				line = "  " + p.Origin + ": " + line
			} else {
				line = "    " + strings.TrimSpace(line)
			}
			lines = append(lines, terminal.Keep(line))
		}
	}
	if more != "" {
		lines = append(lines, "  "+more)
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("%d of %d pods ready. Problems (`deckhand why` says more):", done,
		len(s.Pods))}, lines...)
}

// fails reports whether a pod waits because of a failure.
func fails(w local.Wait) bool {
	switch w.Code {
	case pod.WaitRetry, pod.WaitBackOff, pod.WaitSandboxBackOff, pod.WaitProbeFailed, pod.WaitRejected:
		return true
	}
	return false
}
