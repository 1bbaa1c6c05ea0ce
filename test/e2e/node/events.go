package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/deckhand-node/deckhand/internal/local"
)

// AwaitEvent waits until an event about the static pod that a manifest calls name
// was told with this reason and all these words in its part or message, and returns it.
func (n *Node) AwaitEvent(name, reason string, words ...string) local.Event {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	missing := errors.New("the agent told nothing")
	for ctx.Err() == nil {
		for list, err := range n.client.WatchEvents(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					missing = err
				}
				break
			}
			if i := find(list, name, reason, words); i >= 0 {
				return list[i]
			}
			missing = fmt.Errorf("none of the last %d events", len(list))
		}
		pause(ctx)
	}
	n.t.Fatalf("no event %s of pod %s with %q within %s: %v", reason, name, words, Deadline, missing)
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
	for i := range list {
		e := &list[i]
		if p, ok := e.PodName(); !ok || p != name+"-"+Name || e.Reason != reason {
			continue
		}
		text, all := e.Part+" "+e.Message, true
		for _, w := range words {
			all = all && strings.Contains(text, w)
		}
		if all {
			return i
		}
	}
	return -1
}
