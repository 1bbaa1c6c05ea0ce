package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/rotate"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	imagevolume "github.com/deckhand-node/deckhand/internal/volume/plugins"
	"github.com/deckhand-node/deckhand/internal/worker"
	"github.com/deckhand-node/deckhand/internal/worker/journal"
)

// The types here adapt one package to the interface of another, so that neither imports the other.

// hostPorts implements executor.Ports for this host: it finds the ports in use and their processes.
type hostPorts struct{}

func (hostPorts) Listeners() ([]kernel.Listener, error) { return kernel.Listeners("/proc") }

func (hostPorts) Owner(l kernel.Listener) (kernel.Process, bool) { return l.Owner("/proc") }

// nodePods finds the pods of this node: the pods that should run, and those that the runtime has.
type nodePods struct {
	wanted   *desired.Merger
	observed *observed.Store
	statuses *podstatus.Store
	// dir is the parent of the pods' directories.
	dir string
}

// Wanted lists the pods that should run, including those that a person has stopped, and whether all sources have
// reported.
func (n nodePods) Wanted() ([]*pod.Desired, bool) {
	set := n.wanted.Current()
	return slices.Concat(set.Pods, set.Stopped), set.Synced
}

// Ended reports whether the pod has ended for good. A pod that is being stopped hasn't, because it may be started
// again; an evicted pod that is started again hasn't, either (podstatus.Resumes).
func (n nodePods) Ended(uid types.UID) bool {
	e := n.statuses.Get(uid)
	return e != nil && !e.Report.Stopping && pod.Terminal(e.Pod.Status.Phase) != "" &&
		!podstatus.Resumes(e.Pod, e.Report.Desired.Source)
}

// Observed lists the pods that the runtime has, and whether the runtime's list is complete.
func (n nodePods) Observed() ([]*pod.Observed, bool) {
	all := n.observed.Listed() // read before All: a list that completes between the two calls doesn't count
	return n.observed.All(), all
}

// Synced reports whether both lists are complete: that of the runtime and that of every source.
func (n nodePods) Synced() bool { return n.observed.Listed() && n.wanted.Current().Synced }

// Knows reports whether anything of the pod is left except its logs.
func (n nodePods) Knows(uid types.UID) bool {
	if n.wanted.Current().Has(uid) || n.observed.Get(uid) != nil || n.statuses.Get(uid) != nil {
		return true
	}
	if safeopen.Check("pod UID", string(uid)) != nil {
		return true // it isn't a pod UID: with false, the caller would conclude that its pod is gone
	}
	_, err := os.Lstat(filepath.Join(n.dir, string(uid)))
	return err == nil
}

// gatedState is the observed state as workers see it: Synced also waits until the host's control groups are
// configured.
type gatedState struct {
	*observed.Store
	ready <-chan struct{}
}

// Synced returns a channel that is closed once the runtime has been listed and the host's control groups are
// configured.
func (s gatedState) Synced() <-chan struct{} { return s.ready }

// listObserver also passes the results of complete lists to the runtime's health state.
type listObserver struct {
	*metrics.PLEG
	runtime *health.State
	// answers is called when the runtime answers again.
	answers func()
}

func (l listObserver) Relisted(begun time.Time, took, interval time.Duration, err error) {
	if l.runtime.Relisted(err) {
		l.answers()
	}
	l.PLEG.Relisted(begun, took, interval, err)
}

// startMeter combines the metrics that the executor needs.
type startMeter struct {
	*metrics.Pods
	*metrics.Garbage
	*metrics.Volumes
}

// meteredCgroups measures the duration of operations on pods' cgroups.
type meteredCgroups struct {
	*cgroup.Manager
	meter *metrics.Resources
}

func (c meteredCgroups) Ensure(ctx context.Context, p *v1.Pod, l allocated.Limits) error {
	defer c.took("create", time.Now())
	return c.Manager.Ensure(ctx, p, l)
}

func (c meteredCgroups) Resize(ctx context.Context, p *v1.Pod, l allocated.Limits) error {
	defer c.took("update", time.Now())
	return c.Manager.Resize(ctx, p, l)
}

func (c meteredCgroups) Remove(ctx context.Context, uid types.UID) error {
	defer c.took("destroy", time.Now())
	return c.Manager.Remove(ctx, uid)
}

func (c meteredCgroups) took(operation string, began time.Time) {
	c.meter.Cgroup(operation, time.Since(began))
}

// diary adapts the journal to the interface of the workers.
type diary struct{ *journal.Journal }

func (d diary) Open(uid types.UID, name string) worker.Record { return d.Journal.Open(uid, name) }

// watchedAllocations adapts the allocations to the interface of the executor. After a call it passes the pod to
// changed, because downwardAPI volumes show allocated resources.
type watchedAllocations struct {
	*allocation.Manager
	changed func(*v1.Pod)
}

func (a watchedAllocations) Allocated(p *v1.Pod) (*pod.Allocation, error) {
	granted, err := a.Manager.Allocated(p)
	a.changed(p)
	return granted, err
}

func (a watchedAllocations) Resize(p *v1.Pod) (*pod.Allocation, error) {
	granted, err := a.Manager.Resize(p)
	if err == nil {
		a.changed(p)
	}
	return granted, err
}

// volumeImages adapts the node's images to the interface of image volumes.
type volumeImages struct {
	images *image.Images
	meter  *metrics.Volumes
}

func (v volumeImages) Ensure(ctx context.Context, r imagevolume.Request) (imagevolume.Image, error) {
	v.meter.ImageRequested()
	got, err := v.images.Ensure(ctx,
		pull.Request{Image: r.Image, Policy: r.Policy, Pod: r.Pod, Objects: r.Objects, Pulling: func() {}})
	if ctx.Err() == nil { // a cancelled request isn't a failure
		v.meter.ImageMounted(err != nil)
	}
	return imagevolume.Image{Ref: got.Ref}, err
}

// logged lists the running containers that write logs.
type logged struct{ observed *observed.Store }

func (l logged) Running() []rotate.Container {
	var list []rotate.Container
	for _, o := range l.observed.All() {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == pod.ContainerRunning && c.LogPath != "" {
				list = append(list, rotate.Container{ID: c.ID, Pod: o.Namespace + "/" + o.Name, Name: c.Name,
					Path: c.LogPath})
			}
		}
	}
	return list
}
