package gc

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// reasonError is an error with the reason of the event that reports it.
type reasonError struct {
	reason pod.Reason
	err    error
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }

// recordEvent reports a run in one event, the most important failure first.
func (c *Collector) recordEvent(r Report, err error) {
	if err == nil && len(r.Failed) == 0 {
		if len(r.Removed) > 0 {
			c.cfg.Events.NodeEvent(v1.EventTypeNormal, pod.ReasonImagesCollected, "Removed "+what(r)+": "+why(r))
		}
		return
	}
	reason := pod.ReasonImageGCFailed
	var parts []string
	if err != nil {
		parts = append(parts, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if known := (*reasonError)(nil); errors.As(err, &known) {
		reason = known.reason
	}
	switch len(r.Failed) {
	case 0:
	case 1:
		parts = append(parts, fmt.Sprintf("image %s can't be removed: %v", r.Failed[0].Name(), r.Failed[0].Err))
	default:
		parts = append(parts, fmt.Sprintf("%d images can't be removed, the first of them %s: %v", len(r.Failed),
			r.Failed[0].Name(), r.Failed[0].Err))
	}
	if len(r.Removed) > 0 {
		parts = append(parts, "removed "+what(r)+": "+why(r))
	}
	c.cfg.Events.NodeEvent(v1.EventTypeWarning, reason, strings.Join(parts, "; "))
}

// shortage returns the error of a run that freed too little space.
func shortage(r Report, p Policy) error {
	inUse := 0
	for _, k := range r.Retained {
		if len(k.Users) > 0 {
			inUse++
		}
	}
	return &reasonError{reason: pod.ReasonFreeDiskSpaceFailed, err: fmt.Errorf(
		"the disk needs %s more to come down to imageGCLowThresholdPercent (%d), but %s could be removed: of the "+
			"other images %d are in use and %d pinned or too young; see `deckhand images`, and check the disk for "+
			"other large files",
		sizeText(r.Missing), p.Low, what(r), inUse, len(r.Retained)-inUse)}
}

// what returns the number or the name of the images in r.Removed, with their size.
func what(r Report) string {
	switch len(r.Removed) {
	case 0:
		return "no image"
	case 1:
		return fmt.Sprintf("image %s (%s)", r.Removed[0].Name(), sizeText(r.Freed))
	}
	return fmt.Sprintf("%d images (%s)", len(r.Removed), sizeText(r.Freed))
}

// why joins one message of r.Removed for each reason of a removal.
func why(r Report) string {
	var texts []string
	seen := map[Reason]bool{}
	for _, removal := range r.Removed {
		if !seen[removal.Reason] {
			seen[removal.Reason] = true
			texts = append(texts, removal.Why)
		}
	}
	return strings.Join(texts, "; ")
}
