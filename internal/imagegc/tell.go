package imagegc

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/imagegc/choice"
)

// Reasons of events about the node. All but the last are the kubelet's.
const (
	reasonSpace    = "FreeDiskSpaceFailed"
	reasonFailed   = "ImageGCFailed"
	reasonCapacity = "InvalidDiskCapacity"
	reasonDone     = "ImagesCollected"
)

// reasonError is an error with the reason of the event that tells it.
type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string { return e.err.Error() }
func (e *reasonError) Unwrap() error { return e.err }

// tell tells of a run in one event, the gravest news first.
func (c *Collector) tell(r Report, err error) {
	if err == nil && len(r.Failed) == 0 {
		if len(r.Removed) > 0 {
			c.cfg.Events.NodeEvent(v1.EventTypeNormal, reasonDone, "Removed "+what(r)+": "+why(r))
		}
		return
	}
	reason := reasonFailed
	var news []string
	if err != nil {
		news = append(news, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if known := (*reasonError)(nil); errors.As(err, &known) {
		reason = known.reason
	}
	if len(r.Failed) > 0 {
		news = append(news, fmt.Sprintf("%d images can't be removed, the first of them %s: %v", len(r.Failed), r.Failed[0].Name(), r.Failed[0].Err))
	}
	if len(r.Removed) > 0 {
		news = append(news, "removed "+what(r)+": "+why(r))
	}
	c.cfg.Events.NodeEvent(v1.EventTypeWarning, reason, strings.Join(news, "; "))
}

// shortage is the error of a run that freed too little.
func shortage(r Report, p choice.Policy) error {
	inUse := 0
	for _, k := range r.Kept {
		if len(k.Users) > 0 {
			inUse++
		}
	}
	return &reasonError{reason: reasonSpace, err: fmt.Errorf(
		"the disk needs %s more to come down to imageGCLowThresholdPercent (%d), but %s could be removed: of the other images %d are in use and %d pinned or too young; see `deckhand images`, and what else fills the disk",
		choice.Bytes(r.Missing), p.Low, what(r), inUse, len(r.Kept)-inUse)}
}

// what sums up what was removed.
func what(r Report) string {
	switch len(r.Removed) {
	case 0:
		return "no image"
	case 1:
		return fmt.Sprintf("image %s (%s)", r.Removed[0].Name(), choice.Bytes(r.Freed))
	}
	return fmt.Sprintf("%d images (%s)", len(r.Removed), choice.Bytes(r.Freed))
}

// why gives an example of each reason.
func why(r Report) string {
	var texts []string
	seen := map[choice.Reason]bool{}
	for _, removal := range r.Removed {
		if !seen[removal.Reason] {
			seen[removal.Reason] = true
			texts = append(texts, removal.Why)
		}
	}
	return strings.Join(texts, "; ")
}
