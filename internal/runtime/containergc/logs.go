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

// every is the minimum time between two passes (the kubelet's documentation, "Garbage Collection": "The kubelet
// performs garbage collection [...] on unused containers every minute"). Logs are removed if they have been without
// a pod for this time.
const every = time.Minute

// resync is the time between sweeps of the log directories when nothing calls Wake.
const resync = 30 * time.Minute

// Logs are the log directories of pods and the links to them.
type Logs interface {
	// Orphans lists the pods that have a log directory, including pods that still exist.
	Orphans() ([]layout.Pod, error)
	RemovePod(layout.Pod) error
	RemoveDeadLinks() error
}

// Knowledge reports which pods still exist.
type Knowledge interface {
	// Synced reports whether both the runtime's pods and the desired pods have been listed.
	Synced() bool
	// Knows reports whether anything of the pod exists: it is desired, the runtime has a sandbox or container of
	// it, it has a worker, or it has files on disk.
	Knows(types.UID) bool
}

// Events records events about the node. The type is Normal or Warning.
type Events interface {
	NodeEvent(eventType string, reason pod.Reason, message string)
}

// Meter counts removed objects.
type Meter interface {
	// LogDirsRemoved counts removed log directories of pods.
	LogDirsRemoved(n int)
}

// LogsConfig configures a LogSweep. All fields but Sole are required.
type LogsConfig struct {
	Logs   Logs
	Pods   Knowledge
	Events Events
	Meter  Meter
	Log    logr.Logger
	// Sole means that no other agent uses the log directory: then every unknown pod counts as deleted, as with the
	// kubelet.
	Sole bool
}

// LogSweep removes logs of deleted pods, and dangling links. Usually a pod's worker removes the logs together with
// the pod; the sweep removes logs that remain because of a crash or an error.
//
// It removes the logs of a pod only if Knows was false in two passes a minute apart, so that a pod that is
// recreated with the same UID keeps its logs. Unless the directory is this agent's alone, this agent must have
// managed the pod before, because another agent's logs look the same.
type LogSweep struct {
	wake.Debounce
	cfg LogsConfig
	// seen has the pods that had a directory in the last pass.
	seen map[types.UID]standing
}

// standing is the sweep's record of a pod with a log directory.
type standing struct {
	// ours means that this agent managed the pod once (or Sole is set), gone that Knows was false in the last pass.
	ours, gone bool
}

// NewLogSweep returns a sweep that does nothing before Run.
func NewLogSweep(c LogsConfig) *LogSweep { return &LogSweep{Debounce: wake.NewDebounce(every), cfg: c} }

// Run sweeps at the start, every 30 minutes, and after each Wake, but at most once a minute, until ctx ends. Callers
// that observe deleted pods have to call Wake. The error is nil.
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

// sweep checks all directories once. It reports whether another pass is due in a minute.
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
