package observed

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// Delays between retries while the runtime is unavailable.
const (
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second
)

// streamLoop keeps the event stream connected.
func (s *Store) streamLoop(ctx context.Context) {
	retry := minRetry
	var logged codes.Code // state of the stream that was logged last; OK if none was
	for {
		err := s.rt.GetContainerEvents(ctx, s.subscribed, s.handle)
		if ctx.Err() != nil {
			return
		}
		s.observer.Stream(err)
		wasUp, since := s.state.streamDown(time.Now())
		if wasUp {
			// Events are missing for the time until the stream is connected again.
			s.kick.Wake()
		}
		if wasUp && time.Since(since) >= maxRetry {
			retry, logged = minRetry, codes.OK
		}
		wait := retry
		retry = min(retry*2, maxRetry)
		why := status.Code(err)
		switch {
		case why == codes.Unimplemented:
			if logged != why {
				s.log.Info("The container runtime has no event stream: listing it instead", "period", pollPeriod)
			}
			wait, logged = s.period, why
		case logged == codes.OK:
			s.log.Info("The container runtime's event stream ended: connecting again", "err", errorText(err))
			logged = codes.Unavailable
		}
		if !wake.Sleep(ctx, wait) {
			return
		}
	}
}

// subscribed is called when the stream is up. Listing after subscribing ensures that no change is missed between
// them.
func (s *Store) subscribed() {
	s.state.streamUp(time.Now())
	s.observer.Stream(nil)
	s.kick.Wake()
}

// handle processes one event. It makes no blocking call: details that the event doesn't include are fetched in the
// background.
func (s *Store) handle(e *runtimeapi.ContainerEventResponse) {
	at := time.Unix(0, e.GetCreatedAt())
	s.observer.Event(time.Since(at))
	deleted := e.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	if deleted {
		s.cache.Remove(e.GetContainerId())
	}
	rd, incomplete, foreign := s.reading(e, at)
	if foreign {
		s.observer.EventDiscarded()
		return
	}
	s.cache.Merge(rd)
	for _, uid := range incomplete {
		s.refresh.want(uid)
	}
	if !deleted && !mentions(e) {
		s.lookAt(e.GetContainerId())
	}
}

// reading turns the statuses in an event into a reading. incomplete lists pods whose details the event doesn't
// include; foreign means that the event isn't about a pod.
func (s *Store) reading(e *runtimeapi.ContainerEventResponse,
	at time.Time) (rd reading, incomplete []types.UID, foreign bool) {
	rd.AsOf = at
	// A runtime may queue events while no client is connected, and deliver them later. If such an old event shows
	// an instance that wasn't in the list made since then, the pod is listed again.
	stale := s.state.olderThanList(at)
	sandboxID := ""
	if st := e.GetPodSandboxStatus(); st != nil {
		identity, sb, ok := translate.SandboxStatus(st)
		if !ok {
			return rd, nil, true
		}
		sandboxID = sb.ID
		if k := s.cache.Know(sb.ID); stale && k.UID == "" && !k.Gone {
			incomplete = append(incomplete, identity.UID)
		} else {
			rd.Sandboxes = []sandboxReading{{Pod: identity, Sandbox: sb, Detailed: true}}
		}
	}
	for _, st := range e.GetContainersStatuses() {
		k := s.cache.Know(st.GetId())
		identity, c, ok := translate.ContainerUpdate(st, sandboxID, s.boot, k.Instance)
		if !ok {
			continue
		}
		if k.UID == "" && !k.Gone && (stale || sandboxID == "") {
			incomplete = append(incomplete, identity.UID)
			continue
		}
		s.ends.complete(identity, &c, k)
		rd.Containers = append(rd.Containers, &containerReading{Pod: identity, Container: c, Detailed: true})
	}
	return rd, incomplete, false
}

// mentions reports whether the event includes the status of the instance that it is about.
func mentions(e *runtimeapi.ContainerEventResponse) bool {
	return e.GetPodSandboxStatus().GetId() == e.GetContainerId() ||
		slices.ContainsFunc(e.GetContainersStatuses(),
			func(st *runtimeapi.ContainerStatus) bool { return st.GetId() == e.GetContainerId() })
}

// lookAt queues a refresh of the pod of a sandbox or container. It is for events that have its ID without a status.
func (s *Store) lookAt(id string) {
	switch k := s.cache.Know(id); {
	case k.Gone:
		s.observer.EventDiscarded()
	case k.UID != "":
		if k.Container != pod.ContainerExited {
			s.refresh.want(k.UID)
		}
	default:
		s.kick.Wake()
	}
}

func errorText(err error) string {
	if err == nil {
		return "the runtime closed it"
	}
	return err.Error()
}
