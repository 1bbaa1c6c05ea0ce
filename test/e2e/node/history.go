package node

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// History is every container instance that the runtime reported in its events:
// evidence that doesn't pass through the agent.
type History struct {
	mu        sync.Mutex
	instances map[string]*instance
}

type instance struct {
	id, pod, uid, container string
	started, finished       time.Time
}

// Watch records the runtime's events until the test ends. The runtime has to run.
// Where containerd dies, what happens until it is back is not on record.
func (n *Node) Watch() *History {
	n.t.Helper()
	h := &History{instances: map[string]*instance{}}
	ctx, cancel := context.WithCancel(context.Background())
	established := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	n.t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		for ctx.Err() == nil {
			// It ends with an error whenever containerd goes; then it is tried again.
			_ = n.conn.GetContainerEvents(ctx, func() { once.Do(func() { close(established) }) }, h.add)
			pause(ctx)
		}
	})
	select {
	case <-established:
	case <-time.After(Deadline):
		n.t.Fatal("the runtime sends no events")
	}
	return h
}

func (h *History) add(e *runtimeapi.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := e.GetPodSandboxStatus().GetMetadata()
	for _, c := range e.GetContainersStatuses() {
		i := h.instances[c.GetId()]
		if i == nil {
			i = &instance{id: c.GetId(), pod: m.GetName(), uid: m.GetUid(), container: c.GetMetadata().GetName()}
			h.instances[c.GetId()] = i
		}
		if c.GetStartedAt() > 0 {
			i.started = time.Unix(0, c.GetStartedAt())
		}
		if c.GetFinishedAt() > 0 {
			i.finished = time.Unix(0, c.GetFinishedAt())
		}
	}
}

// Overlaps tells of each pair of containers of one name, in pods of one name, that
// ran at the same time. Of an instance whose end is not on record, only its start is known.
func (h *History) Overlaps() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	byName := map[string][]*instance{}
	for _, i := range h.instances {
		if !i.started.IsZero() {
			key := i.pod + "/" + i.container
			byName[key] = append(byName[key], i)
		}
	}
	var out []string
	for key, list := range byName {
		sort.Slice(list, func(a, b int) bool { return list[a].started.Before(list[b].started) })
		for k := 1; k < len(list); k++ {
			a, b := list[k-1], list[k]
			if a.finished.After(b.started) {
				out = append(out, fmt.Sprintf("%s: %s ran until %s, %s from %s", key, a.id, a.finished.Format(time.StampNano), b.id, b.started.Format(time.StampNano)))
			}
		}
	}
	return out
}

// Restarts tells of each container that started more than once in one and the same pod.
func (h *History) Restarts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	started := map[string]int{}
	for _, i := range h.instances {
		if !i.started.IsZero() {
			started[i.pod+"/"+i.container+" of the pod with UID "+i.uid]++
		}
	}
	var out []string
	for key, times := range started {
		if times > 1 {
			out = append(out, fmt.Sprintf("%s started %d times", key, times))
		}
	}
	return out
}
