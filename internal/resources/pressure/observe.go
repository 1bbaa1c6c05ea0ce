package pressure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/host/alarm"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
)

// SensorsConfig configures Sensors. Every field is required.
type SensorsConfig struct {
	Groups      *tree.Tree
	FileSystems func(context.Context) stats.FileSystems
	// Alarm gets the triggers for memory.
	Alarm *alarm.Alarm
	// Now returns the time since the machine was booted.
	Now func() time.Duration
	Log logr.Logger
}

// Sensors read the node's resources, and set the kernel's alarms for memory. Only one goroutine may use them.
type Sensors struct {
	SensorsConfig
	reader *counters.Reader
	failed string
	// maxTasks is capacity.Tasks.Max at the last observation.
	maxTasks int64
}

// NewSensors returns Sensors that have read nothing.
func NewSensors(c SensorsConfig) *Sensors { return &Sensors{SensorsConfig: c} }

// Observe reads all signals. The error names those that can't be read. Signals that this node doesn't have are missing:
// if there is no memory limit of all pods, or a file system doesn't count inodes.
func (s *Sensors) Observe(ctx context.Context, thresholds []Threshold) (Observation, error) {
	o := Observation{At: s.Now(), Readings: map[Signal]Reading{}}
	s.maxTasks = capacity.MaxTasks("/")
	tasks, unread := s.Processes()
	if tasks.Capacity > 0 {
		o.Readings[Processes] = tasks
	}
	return o, errors.Join(s.memory(ctx, &o, thresholds), s.disks(ctx, &o), unread)
}

// memory reads the memory signals and sets the alarms.
func (s *Sensors) memory(ctx context.Context, o *Observation, thresholds []Threshold) error {
	if s.reader == nil {
		r, err := s.Groups.Reader(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", NodeMemory, err)
		}
		s.reader = r
	}
	var triggers []alarm.Trigger
	node, err := s.Groups.NodeMemory(s.reader)
	if err != nil {
		return fmt.Errorf("%s: %w", NodeMemory, err)
	}
	o.Readings[NodeMemory] = Reading{int64(node.Available()), int64(node.Limit)}
	triggers = s.triggers(ctx, triggers, NodeMemory, node.Group, node.Memory, thresholds)
	group := s.Groups.PodsGroup()
	switch pods, err := s.reader.MemoryAndLimit(group); {
	case errors.Is(err, fs.ErrNotExist): // the first pod creates it
	case err != nil:
		return fmt.Errorf("%s: %w", PodsMemory, err)
	case pods.Limit == counters.Unlimited:
		o.Absent = append(o.Absent, PodsMemory)
	default:
		o.Readings[PodsMemory] = Reading{int64(pods.Limit - min(pods.WorkingSet, pods.Limit)), int64(pods.Limit)}
		triggers = s.triggers(ctx, triggers, PodsMemory, group, pods, thresholds)
	}
	s.arm(triggers)
	return nil
}

// step is the granularity of usage thresholds in bytes: after a smaller change of the memory, the alarms aren't set
// again.
const step = 1 << 20

// triggers appends the alarms for the memory of a group.
func (s *Sensors) triggers(ctx context.Context, list []alarm.Trigger, signal Signal, group string, m counters.Memory,
	thresholds []Threshold) []alarm.Trigger {
	files, err := s.Groups.MemoryFiles(ctx, group)
	if err != nil {
		return list // Reader returns the same error, which is reported
	}
	return append(list, triggersOf(files, signal, group, m, thresholds)...)
}

// triggersOf returns the alarms that the kernel can send for a group: tasks wait for memory, the group reaches its
// limit, or the usage crosses a threshold. The usage thresholds contain the inactive page cache of the last
// observation, which may change without an event, so they are only as exact as that observation.
func triggersOf(files tree.MemoryFiles, signal Signal, group string, m counters.Memory,
	thresholds []Threshold) (list []alarm.Trigger) {
	if files.Pressure != "" {
		list = append(list, alarm.Trigger{Name: string(signal) + ": tasks wait for memory", Kind: alarm.Stalls,
			Path: files.Pressure})
	}
	if files.Events != "" { // without .local, limits that containers reach would cause alarms, too
		list = append(list, alarm.Trigger{Name: string(signal) + ": " + group + " reached a limit", Kind: alarm.Changes,
			Path: files.Events + ".local"})
	}
	if files.Thresholds == "" {
		return list
	}
	for _, t := range thresholds {
		least := uint64(t.Least.Of(int64(m.Limit)))
		if t.Signal != signal || least >= m.Limit {
			continue
		}
		list = append(list, alarm.Trigger{Name: fmt.Sprintf("%s: %s is below %v", signal, group, t.Least),
			Kind: alarm.Usage, Path: files.Thresholds, Bytes: alarmAt(m, least)})
	}
	return list
}

// alarmAt returns the usage above which less than least is available. It is rounded up: if the alarm came too early,
// the threshold wouldn't be met yet, and there would be no second alarm.
func alarmAt(m counters.Memory, least uint64) uint64 {
	return ((m.Limit-least+m.InactiveFile)/step + 1) * step
}

// arm sets the alarms. Alarms that this kernel doesn't support are logged; the resources are then read more often.
func (s *Sensors) arm(triggers []alarm.Trigger) {
	text := ""
	for name, err := range s.Alarm.Set(triggers) {
		if line := fmt.Sprintf("%s: %v", name, err); text == "" || line < text {
			text = line
		}
	}
	if text != "" && text != s.failed {
		s.Log.V(1).Info("The kernel gives no alarm for memory; it is observed more often while little is left",
			"err", text)
	}
	s.failed = text
}

// disks reads the signals of file systems. It reads none until the runtime has reported the file systems that it uses:
// ended containers and images could be removed although they are on another file system.
func (s *Sensors) disks(ctx context.Context, o *Observation) error {
	all := s.FileSystems(ctx)
	if all.Unknown != nil {
		return fmt.Errorf("find out which file systems the container runtime uses: %w", all.Unknown)
	}
	o.Layout = layoutOf(&all)
	var errs []error
	for _, f := range []struct {
		of            *stats.FileSystem
		bytes, inodes Signal
	}{{&all.Node, NodeBytes, NodeInodes}, {&all.Images, ImageBytes, ImageInodes}} {
		if f.of.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.bytes, f.of.Err))
			continue
		}
		if f.of.Capacity != nil {
			o.Readings[f.bytes] = Reading{int64(*f.of.Available), int64(*f.of.Capacity)}
		}
		if f.of.Inodes != nil {
			o.Readings[f.inodes] = Reading{int64(*f.of.InodesFree), int64(*f.of.Inodes)}
		} else {
			o.Absent = append(o.Absent, f.inodes)
		}
	}
	return errors.Join(errs...)
}

// layoutOf determines the Layout from the devices of the file systems. A file system with an unknown device counts as
// the node's.
func layoutOf(all *stats.FileSystems) Layout {
	apart := func(f *stats.FileSystem) bool {
		return f.Device != "" && all.Node.Device != "" && f.Device != all.Node.Device
	}
	switch {
	case !apart(&all.Images):
		return OneFileSystem
	case apart(&all.Containers):
		return RuntimeApart
	default:
		return ImagesApart
	}
}

// Processes reads the signal Processes alone. Its capacity is that of the last observation, 0 if there is no limit.
func (s *Sensors) Processes() (Reading, error) {
	count, err := capacity.CountTasks("/")
	if err != nil {
		return Reading{}, fmt.Errorf("%s: %w", Processes, err)
	}
	return Reading{max(s.maxTasks-count, 0), s.maxTasks}, nil
}
