package view

import (
	"context"
	"fmt"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// becauseOfTasks returns how many processes the node has, and the pods with most of them, as causes of a wait for
// processes.
func (v View) becauseOfTasks(ctx context.Context) []string {
	tasks := v.conf.Tasks(ctx)
	list := []string{fmt.Sprintf("the node has %d of at most %d processes and threads", tasks.Count, tasks.Max)}
	for _, p := range tasks.Most {
		text := fmt.Sprintf("pod %s has %d", p.Name, p.Current)
		if p.Limit != counters.Unlimited {
			text += fmt.Sprintf(" of at most %d", p.Limit)
		}
		list = append(list, text+" (control group "+p.Group+")")
	}
	return list
}
