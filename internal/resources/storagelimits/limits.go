package storagelimits

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// The kubelet's eviction signals for these limits, as in the kubelet's metric of evictions.
const (
	signalVolume    = "emptydirfs.limit"
	signalPod       = "ephemeralpodfs.limit"
	signalContainer = "ephemeralcontainerfs.limit"
)

// immediately is the grace period of an evicted pod: the pod must not continue to write. As with hard thresholds of
// node pressure, the pod's own grace period doesn't apply. One second is enough for the signal to arrive.
const immediately = time.Second

// limits are a pod's limits of local storage.
type limits struct {
	// volumes are the size limits of emptyDir volumes on disk, by volume name.
	volumes map[string]resource.Quantity
	// containers are the limits of containers, by name.
	containers map[string]resource.Quantity
	// pod is the limit of all containers and emptyDir volumes together: the sum of the containers' limits, with the
	// usual rules for init containers. Zero is no limit.
	pod resource.Quantity
}

func (l limits) any() bool { return len(l.volumes) > 0 || l.pod.Sign() > 0 }

// limitsOf returns a pod's limits. A limit of zero is no limit.
func limitsOf(p Pod) limits {
	var l limits
	for i := range p.Volumes {
		if e := onDisk(&p.Volumes[i]); e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
			set(&l.volumes, p.Volumes[i].Spec.Volume.Name, *e.SizeLimit)
		}
	}
	for _, list := range [...][]v1.Container{p.Pod.Spec.InitContainers, p.Pod.Spec.Containers} {
		for i := range list {
			if limit, ok := list[i].Resources.Limits[v1.ResourceEphemeralStorage]; ok && limit.Sign() > 0 {
				set(&l.containers, list[i].Name, limit)
			}
		}
	}
	if len(l.containers) > 0 {
		l.pod = helpers.PodLimits(p.Pod, helpers.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	}
	return l
}

func set(m *map[string]resource.Quantity, name string, q resource.Quantity) {
	if *m == nil {
		*m = map[string]resource.Quantity{}
	}
	(*m)[name] = q
}

// onDisk returns the source of an emptyDir volume on disk, or nil for other volumes: an emptyDir in memory is limited
// by its file system, and counts as memory.
func onDisk(v *volume.Instance) *v1.EmptyDirVolumeSource {
	if e := v.Spec.Volume.EmptyDir; e != nil && e.Medium == v1.StorageMediumDefault {
		return e
	}
	return nil
}

// measured is the result of measuring a pod's local storage.
type measured struct {
	// used is the total of the measured usage.
	used usage.Usage
	// share is the highest ratio of a usage to its limit.
	share float64
	// excess is the first exceeded limit; nil if there is none.
	excess *excess
}

type excess struct {
	signal, message string
	used            int64 // bytes
	limit           resource.Quantity
}

// against compares the usage, in bytes, with a limit.
func (m *measured) against(used int64, limit resource.Quantity, signal, format string, args ...any) {
	if limit.Sign() <= 0 || m.excess != nil {
		return
	}
	m.share = max(m.share, float64(used)/limit.AsApproximateFloat64())
	if limit.CmpInt64(used) < 0 {
		m.excess = &excess{signal, fmt.Sprintf(format, args...), used, limit}
	}
}

// measure measures the usage that a pod's limits apply to
// (https://kubernetes.io/docs/concepts/storage/ephemeral-storage/#resource-emphemeralstorage-consumption). The
// messages are the kubelet's.
func (mgr *Manager) measure(ctx context.Context, p Pod, q *measurement) (measured, error) {
	var m measured
	var errs []error
	l := limitsOf(p)
	for i := range p.Volumes {
		v := &p.Volumes[i]
		name := v.Spec.Volume.Name
		limit := l.volumes[name]
		if onDisk(v) == nil || limit.Sign() <= 0 && l.pod.Sign() <= 0 {
			continue
		}
		used, err := mgr.volume(ctx, p.Pod, v, q)
		errs = append(errs, err)
		m.used = m.used.Add(used)
		m.against(used.Bytes, limit, signalVolume, "Usage of EmptyDir volume %q exceeds the limit %q. ", name,
			limit.String())
		if m.excess != nil {
			return m, errors.Join(errs...)
		}
	}
	if l.pod.Sign() <= 0 {
		return m, errors.Join(errs...)
	}
	containers, err := mgr.containers(ctx, p)
	errs = append(errs, err)
	for _, used := range containers {
		m.used = m.used.Add(used)
	}
	m.against(m.used.Bytes, l.pod, signalPod,
		"Pod ephemeral local storage usage exceeds the total limit of containers %s. ", l.pod.String())
	for name := range pod.ContainerNames(p.Pod) {
		limit := l.containers[name]
		m.against(containers[name].Bytes, limit, signalContainer,
			"Container %s exceeded its local ephemeral storage limit %q. ", name, limit.String())
	}
	return m, errors.Join(errs...)
}

// volume measures an emptyDir volume on disk.
func (mgr *Manager) volume(ctx context.Context, p *v1.Pod, v *volume.Instance, q *measurement) (usage.Usage, error) {
	dir := v.Path()
	if p.Spec.HostUsers != nil && !*p.Spec.HostUsers && mgr.markAssigned(q, dir) {
		if _, err := mgr.Meter.Assign(dir); err != nil && !errors.Is(err, usage.ErrNotEmpty) {
			mgr.Log.V(1).Info("Measuring a volume file by file, without a project quota", "path", dir,
				"err", err.Error())
		}
	}
	return mgr.Meter.Measure(ctx, dir)
}

// markAssigned records that Meter.Assign is called for a directory, and reports whether this is the first time.
func (mgr *Manager) markAssigned(q *measurement, dir string) bool {
	mgr.mu.Lock()
	defer mgr.mu.Unlock()
	if q.assigned[dir] {
		return false
	}
	q.assigned[dir] = true
	return true
}

// counts reports whether a container runs, or is a container that is restarted after its end.
func (p Pod) counts(name string) bool {
	c := p.Observed.Newest(name)
	return c != nil && c.State == pod.ContainerRunning ||
		slices.ContainsFunc(pod.LongRunning(p.Pod), func(l *v1.Container) bool { return l.Name == name })
}

// containers measures the writable layers and logs of a pod's containers, by name. Init and ephemeral containers count
// only while they run: the pod's limit doesn't include room for ended ones in addition to the main containers.
func (mgr *Manager) containers(ctx context.Context, p Pod) (map[string]usage.Usage, error) {
	used := map[string]usage.Usage{}
	layers, err := mgr.Layers.WritableLayer(ctx, p.Pod.UID)
	errs := []error{err}
	logs := filepath.Join(mgr.Logs, layout.PodDirectory(p.Pod.Namespace, p.Pod.Name, p.Pod.UID))
	for name := range pod.ContainerNames(p.Pod) {
		if !p.counts(name) {
			continue
		}
		u, err := mgr.Meter.Measure(ctx, filepath.Join(logs, name))
		errs = append(errs, err)
		used[name] = layers[name].Add(u)
	}
	return used, errors.Join(errs...)
}
