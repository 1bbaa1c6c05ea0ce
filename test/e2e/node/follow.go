package node

import (
	"context"
	"slices"
	"sync"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Course is what a pod was seen to be, one after the other, without repetitions.
type Course struct {
	stop func()
	mu   sync.Mutex
	seen []string
}

// Follow records what word says of a pod with every change the agent tells of, over
// all the agent's lives, until End. What it has nothing to say of is left out.
func (n *Node) Follow(name string, word func(local.PodView) string) *Course {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	c := &Course{stop: func() { cancel(); all.Wait() }}
	n.t.Cleanup(c.stop)
	first := make(chan struct{})
	all.Go(func() {
		once := sync.OnceFunc(func() { close(first) })
		defer once()
		for ctx.Err() == nil {
			for s, err := range n.client.Watch(ctx) {
				if err != nil {
					break // the agent is away
				}
				if v := Find(s, name); v != nil {
					c.add(word(*v))
				}
				once()
			}
			pause(ctx)
		}
	})
	<-first
	return c
}

func (c *Course) add(word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if word != "" && (len(c.seen) == 0 || c.seen[len(c.seen)-1] != word) {
		c.seen = append(c.seen, word)
	}
}

// End ends the recording and returns it.
func (c *Course) End() []string {
	c.stop()
	return slices.Clone(c.seen)
}
