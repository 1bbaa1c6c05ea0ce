package containergc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// every is how often leftovers are looked for at most ("Garbage Collection": "The kubelet
// performs garbage collection [...] on unused containers every minute"), and for how
// long logs have to be nobody's before they go.
const every = time.Minute

// resync is when log directories are looked through though nothing is known to have changed.
const resync = 30 * time.Minute

// Logs are the directories of pods' logs and the links to them.
type Logs interface {
	// Orphans lists the pods that have a directory, wanted or not.
	Orphans() ([]layout.Pod, error)
	RemovePod(layout.Pod) error
	RemoveDeadLinks() error
}

// Knowledge is who knows pods.
type Knowledge interface {
	// Synced reports whether it is known by now what runs here and what should.
	Synced() bool
	// Knows reports whether the pod is wanted, the runtime has something of it, it has
	// a worker, or something is kept of it on disk.
	Knows(types.UID) bool
}

// Events records events about the node. The type is Normal or Warning.
type Events interface {
	NodeEvent(eventType string, reason pod.Reason, message string)
}

// Meter counts what was removed.
type Meter interface {
	// LogDirsRemoved counts directories of pods' logs.
	LogDirsRemoved(n int)
}

// LogsConfig is what a LogSweep is made of. All fields but Sole are needed.
type LogsConfig struct {
	Logs   Logs
	Pods   Knowledge
	Events Events
	Meter  Meter
	Log    logr.Logger
	// Sole says that no other agent keeps logs in the same directory: then all pods that
	// aren't known are gone, as the kubelet takes it.
	Sole bool
}

// LogSweep removes logs of pods that are gone, and links that lead nowhere. A pod's
// worker removes them with the pod: what the sweep finds was left by a mishap.
//
// It removes the logs of a pod only if nobody knows the pod, twice, a minute apart, so that a
// pod that comes back with the same UID isn't caught in between; and, unless
// the directory is this agent's alone, only if this agent has known the pod: another one's logs
// look the same.
type LogSweep struct {
	wake.Debounce
	cfg LogsConfig
	// seen has, of the pods that had a directory at the last look, what is known.
	seen map[types.UID]standing
}

// standing is what the sweep remembers of a pod with a directory.
type standing struct {
	// ours says that the pod was known here once, gone that it wasn't at the last look.
	ours, gone bool
}

// NewLogSweep makes a sweep.
func NewLogSweep(c LogsConfig) *LogSweep { return &LogSweep{Debounce: wake.NewDebounce(every), cfg: c} }

// Run sweeps at once, after a Wake (which whoever sees a pod go has to call), but once a
// minute at most, and every 30 minutes, until ctx ends. The error is nil.
func (s *LogSweep) Run(ctx context.Context) error {
	for {
		began := time.Now()
		next := began.Add(resync)
		if s.sweep() {
			next = began.Add(every)
		}
		if !s.Await(ctx, began, next) {
			return nil
		}
	}
}

// sweep looks through the directories. It reports whether another look is due soon.
func (s *LogSweep) sweep() (again bool) {
	if !s.cfg.Pods.Synced() {
		return false
	}
	pods, err := s.cfg.Logs.Orphans()
	if err != nil {
		s.cfg.Log.Error(err, "Logs of pods that are gone stay until they can be listed")
		return false
	}
	seen := make(map[types.UID]standing, len(pods))
	var removed []string
	for _, p := range pods {
		was := s.seen[p.UID]
		is := standing{ours: was.ours || s.cfg.Sole}
		switch {
		case s.cfg.Pods.Knows(p.UID):
			is.ours = true
		case !is.ours:
		case !was.gone:
			is.gone, again = true, true
		default:
			is.gone = true
			if err := s.cfg.Logs.RemovePod(p); err != nil {
				s.cfg.Log.Error(err, "Logs of a pod that is gone can't be removed",
					"pod", klog.KRef(p.Namespace, p.Name), "podUID", p.UID)
				break
			}
			s.cfg.Log.V(2).Info("Removed the logs of a pod that is gone", "pod", klog.KRef(p.Namespace, p.Name),
				"podUID", p.UID)
			removed = append(removed, name(p))
			continue
		}
		seen[p.UID] = is
	}
	s.seen = seen
	if err := s.cfg.Logs.RemoveDeadLinks(); err != nil {
		s.cfg.Log.Error(err, "Links to logs that are gone can't be removed")
	}
	s.recordEvent(removed)
	return again
}

func (s *LogSweep) recordEvent(removed []string) {
	if len(removed) == 0 {
		return
	}
	s.cfg.Meter.LogDirsRemoved(len(removed))
	const most = 5
	text := strings.Join(removed[:min(len(removed), most)], ", ")
	if more := len(removed) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	s.cfg.Events.NodeEvent(v1.EventTypeNormal, pod.ReasonPodLogsRemoved,
		"Removed the logs of pods that are gone: "+text)
}

func name(p layout.Pod) string { return p.Namespace + "/" + p.Name }
