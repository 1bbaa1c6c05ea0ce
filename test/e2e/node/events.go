package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// AwaitEvent waits until an event about the static pod that a manifest calls name
// was recorded with this reason and all these words in its part or message, and returns it.
func (n *Node) AwaitEvent(name, reason string, words ...string) local.Event {
	n.t.Helper()
	return n.awaitEvent(fmt.Sprintf("event %s of pod %s with %q", reason, name, words), func(list []local.Event) int { return find(list, name, reason, words) })
}

// AwaitNodeEvent waits until such an event about the node itself was reported, and returns it.
func (n *Node) AwaitNodeEvent(reason string, words ...string) local.Event {
	n.t.Helper()
	return n.awaitEvent(fmt.Sprintf("event %s of the node with %q", reason, words), func(list []local.Event) int {
		return slices.IndexFunc(list, func(e local.Event) bool { return strings.HasPrefix(e.Object, "node/") && tells(&e, reason, words) })
	})
}

// awaitEvent waits until pick finds an event among those on record.
func (n *Node) awaitEvent(what string, pick func([]local.Event) int) local.Event {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	missing := errors.New("the agent reported nothing")
	for ctx.Err() == nil {
		for list, err := range n.client.WatchEvents(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					missing = err
				}
				break
			}
			if i := pick(list); i >= 0 {
				return list[i]
			}
			missing = fmt.Errorf("none of the last %d events", len(list))
		}
		pause(ctx)
	}
	n.t.Fatalf("no %s within %s: %v", what, Deadline, missing)
	return local.Event{}
}

// HasEvent reports whether such an event as AwaitEvent's is on record now.
func (n *Node) HasEvent(name, reason string, words ...string) bool {
	n.t.Helper()
	list, err := n.client.Events(context.Background())
	if err != nil {
		n.t.Fatal(err)
	}
	return find(list, name, reason, words) >= 0
}

func find(list []local.Event, name, reason string, words []string) int {
	return slices.IndexFunc(list, func(e local.Event) bool {
		p, ok := e.PodName()
		return ok && p == name+"-"+Name && tells(&e, reason, words)
	})
}

// tells reports whether an event has this reason and all these words.
func tells(e *local.Event, reason string, words []string) bool {
	text := e.Part + " " + e.Message
	return e.Reason == reason && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}
