package pressure

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// criticalAgain is how long the measured disk usage of a critical pod is reused: it is only displayed, because critical
// pods aren't ended.
const criticalAgain = time.Minute

// walkPatience is the maximum time for measuring the disk usage of all pods, walkers is how many pods are measured at
// once.
const (
	walkPatience = 10 * time.Second
	walkers      = 4
)

// Needs are the figures that a list of pods has to have. They are measured only for a decision.
type Needs struct {
	Memory, Disk, Processes bool
}

// allFigures are the figures for all signals.
func allFigures() Needs { return Needs{true, true, true} }

// with returns the figures that are in n or in o.
func (n Needs) with(o Needs) Needs {
	return Needs{n.Memory || o.Memory, n.Disk || o.Disk, n.Processes || o.Processes}
}

// without returns the figures that are in n but not in o.
func (n Needs) without(o Needs) Needs {
	return Needs{n.Memory && !o.Memory, n.Disk && !o.Disk, n.Processes && !o.Processes}
}

// NodePodsConfig configures NodePods. Every field is required.
type NodePodsConfig struct {
	Desired  *desired.Merger
	Observed interface {
		Get(types.UID) *pod.Observed
		All() []*pod.Observed
	}
	Allocations interface {
		Get(types.UID) *pod.Allocation
	}
	// Volumes lists the mounted volumes. Its method Holds also counts volumes that are being removed, because they
	// still take up space.
	Volumes interface {
		Instances() []volume.Instance
		Holds(types.UID) bool
	}
	// Sample returns the usage of memory, and of processes if they are needed, measured now.
	Sample func(ctx context.Context, processes bool) (*stats.Sample, error)
	Layers interface {
		WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error)
	}
	Meter interface {
		Measure(ctx context.Context, dir string) (usage.Usage, error)
	}
	// Logs is the directory of all pods' logs.
	Logs string
	// Ends reports whether the pod has ended, or is being ended for another reason.
	Ends func(types.UID) bool
	// Standalone says that there is no API server: see allocated.ExemptFromPressure.
	Standalone bool
}

// NodePods lists the pods of this node with their usage. Only one goroutine may use it.
type NodePods struct {
	NodePodsConfig
	// walked is the last measured usage of each pod's disk.
	walked map[types.UID]walked
}

// walked is a pod's usage of the disk: its volumes, and its containers' layers and logs by name.
type walked struct {
	at           time.Time
	volumes      Space
	layers, logs map[string]Space
}

func (w *walked) bytes() int64 {
	sum := w.volumes.Bytes
	for name := range w.logs {
		sum += w.layers[name].Bytes + w.logs[name].Bytes
	}
	return sum
}

// NewNodePods returns NodePods that have measured nothing.
func NewNodePods(c NodePodsConfig) *NodePods {
	return &NodePods{NodePodsConfig: c, walked: map[types.UID]walked{}}
}

// Pods lists the pods with the figures that are needed. If the disk usage of a part of a pod can't be measured, the
// last measured amount is used, or 0.
func (n *NodePods) Pods(ctx context.Context, needs Needs) ([]Pod, error) {
	set := n.Desired.Current()
	if !set.Listed || !set.Synced && n.unlisted(set) {
		return nil, errUnlisted
	}
	volumes := map[types.UID][]volume.Instance{}
	for _, v := range n.Volumes.Instances() {
		volumes[v.UID] = append(volumes[v.UID], v)
	}
	var list []Pod
	var specs []*v1.Pod
	for _, d := range set.Pods {
		spec := allocated.Apply(d.Pod, n.Allocations.Get(d.Pod.UID))
		p := n.pod(spec)
		p.Version, p.Ending = versionOf(d), p.Ending || n.Ends(spec.UID)
		p.Active = len(volumes[spec.UID]) > 0 || n.Observed.Get(spec.UID).Active()
		list, specs = append(list, p), append(specs, spec)
	}
	if needs.Memory || needs.Processes {
		if err := n.addSample(ctx, list, needs.Processes); err != nil {
			return nil, err
		}
	}
	if needs.Disk {
		n.walk(ctx, specs, volumes, func(i int) bool { return list[i].Critical })
		for i := range list {
			list[i].addWalked(n.walked[specs[i].UID])
		}
	}
	return list, nil
}

// unlisted reports whether a pod runs that no source has listed. While a source can't be reached, the pod may be wanted
// and use the most: another pod must not be ended in its place.
func (n *NodePods) unlisted(set *desired.Set) bool {
	return slices.ContainsFunc(n.Observed.All(), func(o *pod.Observed) bool { return o.Active() && !set.Has(o.UID) })
}

var errUnlisted = errors.New("not all sources of pods were read yet")

// Holding reports whether a part of the pod that uses resources is left: a container, the sandbox or a volume. It may
// be called concurrently with Pods.
func (n *NodePods) Holding(uid types.UID) bool {
	return n.Observed.Get(uid).Active() || n.Volumes.Holds(uid)
}

// Version returns Pod.Version of the pod with this UID; empty if there is none.
func (n *NodePods) Version(uid types.UID) string {
	if d := n.Desired.Current().Get(uid); d != nil {
		return versionOf(d)
	}
	return ""
}

// versionOf returns a text that distinguishes pods with the same UID, as from one manifest: Desired.Base, and the time
// at which the pod was first seen.
func versionOf(d *pod.Desired) string {
	return d.Base + " " + d.Pod.Annotations[pod.AnnotationConfigSeen]
}

// pod returns a pod without its usage.
func (n *NodePods) pod(spec *v1.Pod) Pod {
	grace := ptr.Deref(spec.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	p := Pod{UID: string(spec.UID), Namespace: spec.Namespace, Name: spec.Name,
		Priority: pod.Priority(spec), Grace: pod.Seconds(grace),
		Critical: allocated.ExemptFromPressure(spec, !n.Standalone), Ending: spec.DeletionTimestamp != nil}
	requests := helpers.PodRequests(spec, helpers.PodResourcesOptions{})
	p.MemoryRequest, p.StorageRequest = requests.Memory().Value(), requests.StorageEphemeral().Value()
	if r := spec.Spec.Resources; r != nil {
		for name := range r.Requests {
			p.OfPod = append(p.OfPod, name)
		}
	}
	for _, list := range [...][]v1.Container{spec.Spec.InitContainers, spec.Spec.Containers} {
		for i := range list {
			of := list[i].Resources.Requests
			p.Containers = append(p.Containers, Container{Name: list[i].Name, MemoryRequest: of.Memory().Value(),
				StorageRequest: of.StorageEphemeral().Value()})
		}
	}
	for i := range spec.Spec.EphemeralContainers {
		p.Containers = append(p.Containers, Container{Name: spec.Spec.EphemeralContainers[i].Name})
	}
	return p
}

// addSample adds memory and processes.
func (n *NodePods) addSample(ctx context.Context, list []Pod, processes bool) error {
	sample, err := n.Sample(ctx, processes)
	if err != nil {
		return err
	}
	of := make(map[string]*stats.Pod, len(sample.Pods))
	for i := range sample.Pods {
		of[string(sample.Pods[i].UID)] = &sample.Pods[i]
	}
	for i := range list {
		p, s := &list[i], of[list[i].UID]
		if s == nil {
			continue
		}
		if s.Memory != nil {
			p.Memory = int64(s.Memory.WorkingSet)
		}
		if s.PIDs != nil {
			p.Processes = int64(s.PIDs.Current)
		}
		for j := range s.Containers {
			c := &s.Containers[j]
			at := slices.IndexFunc(p.Containers, func(own Container) bool { return own.Name == c.Name })
			if at >= 0 && c.Memory != nil && p.Containers[at].Memory == 0 { // the newest instance comes first
				p.Containers[at].Memory = int64(c.Memory.WorkingSet)
			}
		}
	}
	return nil
}

// walk measures the disk usage of pods until walkPatience is over: first of pods that were never measured, then of the
// others, the largest user first. Critical pods are measured less often.
func (n *NodePods) walk(ctx context.Context, specs []*v1.Pod, volumes map[types.UID][]volume.Instance,
	critical func(int) bool) {
	ctx, cancel := context.WithTimeout(ctx, walkPatience)
	defer cancel()
	before, now := n.walked, make(map[types.UID]walked, len(specs))
	var due []*v1.Pod
	for i, p := range specs {
		if last, known := before[p.UID]; known && critical(i) && time.Since(last.at) < criticalAgain {
			now[p.UID] = last
		} else {
			due = append(due, p)
		}
	}
	order := slices.SortedFunc(slices.Values(due), func(a, b *v1.Pod) int {
		x, knownX := before[a.UID]
		y, knownY := before[b.UID]
		return cmp.Or(cmp.Compare(boolean(knownX), boolean(knownY)), -cmp.Compare(x.bytes(), y.bytes()))
	})
	work := make(chan *v1.Pod)
	var mu sync.Mutex
	var walking sync.WaitGroup
	for range walkers {
		walking.Go(func() {
			for p := range work {
				w, complete := n.measure(ctx, p, volumes[p.UID])
				mu.Lock()
				if last := before[p.UID]; !complete && last.bytes() > w.bytes() {
					w = last
				}
				now[p.UID] = w
				mu.Unlock()
			}
		})
	}
	for _, p := range order {
		work <- p
	}
	close(work)
	walking.Wait()
	n.walked = now
}

// measure measures the disk usage of a pod. complete says that no part is missing.
func (n *NodePods) measure(ctx context.Context, p *v1.Pod, volumes []volume.Instance) (w walked, complete bool) {
	complete = true
	space := func(u usage.Usage, err error) Space {
		complete = complete && err == nil
		return Space{u.Bytes, u.Inodes}
	}
	layers, err := n.Layers.WritableLayer(ctx, p.UID)
	complete = err == nil
	w.at = time.Now()
	w.layers, w.logs = map[string]Space{}, map[string]Space{}
	for name, u := range layers {
		w.layers[name] = space(u, nil)
	}
	logs := filepath.Join(n.Logs, layout.PodDirectory(p.Namespace, p.Name, p.UID))
	for name := range pod.ContainerNames(p) {
		w.logs[name] = space(n.Meter.Measure(ctx, filepath.Join(logs, name)))
	}
	for i := range volumes {
		if v := &volumes[i]; local(v) {
			w.volumes = w.volumes.plus(space(n.Meter.Measure(ctx, v.Path())))
		}
	}
	return w, complete
}

// local reports whether a volume is a directory on the node's file system that belongs to the pod.
func local(v *volume.Instance) bool {
	of := &v.Spec.Volume.VolumeSource
	if of.EmptyDir != nil {
		return of.EmptyDir.Medium == v1.StorageMediumDefault
	}
	return of.ConfigMap != nil || of.DownwardAPI != nil
}

func (p *Pod) addWalked(w walked) {
	p.Volumes = w.volumes
	for i := range p.Containers {
		c := &p.Containers[i]
		c.Layer, c.Logs = w.layers[c.Name], w.logs[c.Name]
	}
}
