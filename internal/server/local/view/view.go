// Package view implements local.Agent: the state of the agent and its pods for the local API.
package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/runsource"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/assign"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// pullPeriod is the period of progress updates of pulls.
const pullPeriod = time.Second

// Probes has the results of probes.
type Probes interface {
	Results(types.UID) []pod.ProbeResult
	Failures(types.UID) []pod.ProbeFailures
}

// Journal has the transcripts of decisions about pods.
type Journal interface {
	Text(types.UID) ([]byte, bool)
	Previous(types.UID) ([]byte, bool)
}

// Cluster is the node's membership in a cluster.
type Cluster interface {
	// Problems returns the problems of the membership, such as a failing connection to the API server.
	Problems() []pod.Problem
	// Conditions returns the node's conditions. A node without an API server has them, too.
	Conditions() []v1.NodeCondition
	ProblemsChanged() (changed <-chan struct{}, stop func())
}

// Config has the parts of the agent that a View reads. Every field is required, except Reload.
type Config struct {
	// Node is the node's name, Started the agent's start.
	Node    string
	Started time.Time
	Desired *desired.Merger
	// Runs is the source of the pods of `deckhand run`.
	Runs *runsource.Source
	// Stops lists the pods that are stopped; Stopper stops pods.
	Stops   *desired.Stops
	Stopper *worker.Stopper
	// Additions has the ephemeral containers that were added to pods.
	Additions *desired.Additions
	Observed  *observed.Store
	Runtime   *health.State
	// RuntimeProblems returns the problems of the embedded runtime.
	RuntimeProblems func() []pod.Problem
	// NodeProblems returns the problems of the machine that don't delay any pod.
	NodeProblems func() []pod.Problem
	// Reload returns the problems that keep a changed configuration from taking effect. The function is nil if the
	// configuration can't be reloaded.
	Reload   func() []pod.Problem
	Cluster  Cluster
	Statuses *podstatus.Store
	Events   *events.History
	Probes   Probes
	Journal  Journal
	// Facts returns properties of the node, and Capacity its capacity. Holdings returns the resources allocated to
	// pods, and Devices the devices of a pod's containers.
	Facts    func() *nodefacts.Facts
	Capacity capacity.Node
	Holdings func() map[types.UID]allocation.Holding
	Devices  func(types.UID) map[string][]v1.ResourceStatus
	// CPUs returns the use of the machine's CPUs; nil if containers have none to themselves.
	CPUs func() *assign.Status
	// Pressure returns the state of eviction thresholds. Rank returns the place of a pod among the pods that would be
	// evicted; nil if the pod wouldn't be.
	Pressure func() pressure.Status
	// Evictions returns the transcript of decisions about evictions.
	Evictions func() []byte
	// Thrashing returns a description of the machine if it mostly swaps, otherwise an empty string.
	Thrashing func() string
	Rank      func(types.UID) *pressure.Rank
	// MissingPullSecrets returns the names of a pod's pull secrets that don't exist.
	MissingPullSecrets func(context.Context, *pod.Desired) []string
	// Pulls returns the pulls in progress.
	Pulls func(context.Context) image.Underway
	Disks Disks
	// Hanging returns the path of a write to a disk that doesn't answer, and its begin; an empty path if all answer.
	Hanging func() (path string, since time.Time)
	// Volumes has the volumes that drivers may hold. Forgotten is called after one was removed without its driver.
	Volumes   Volumes
	Forgotten func()
	// Tasks counts the node's processes.
	Tasks func(context.Context) stats.Tasks
	// Exposures lists users other than root that can change, through files, which pods run.
	Exposures func() []string
	// Current returns the configuration in effect.
	Current func() *config.Config
	// Modules returns the parts of the agent with their states.
	Modules func() []modules.Status
}

// View combines the state of the agent's parts in a Config. Its methods may be called concurrently.
type View struct{ conf Config }

// New returns a view of the parts in c.
func New(c Config) View { return View{c} }

// Snapshot returns the current state of the agent and its pods.
func (v View) Snapshot(ctx context.Context) (local.Snapshot, error) {
	pulling := v.conf.Pulls(ctx)
	set := v.conf.Desired.Current()
	runtime := v.conf.Runtime.Info()
	s := local.Snapshot{
		Node:     v.conf.Node,
		Problems: v.problems(ctx, set.Problems),
		Agent: local.AgentInfo{Version: buildinfo.Get().Version, PID: os.Getpid(), Started: v.conf.Started,
			Cluster: !v.conf.Current().Standalone, Synced: set.Synced,
			RuntimeName: runtime.Name, RuntimeVersion: runtime.Version, RuntimeReady: runtime.Ready,
			RuntimeMessage: runtime.Message},
	}
	for _, e := range v.conf.Current().Exposures {
		s.Exposures = append(s.Exposures, e.String())
	}
	s.Exposures = append(s.Exposures, v.conf.Exposures()...)
	list := v.conf.Statuses.List()
	begun := make(map[types.UID]bool, len(list))
	for _, e := range list {
		s.Pods = append(s.Pods, viewOf(e, v.failing(e.Pod.UID, pulling.Add(e.Report.Waits))))
		begun[e.Pod.UID] = true
	}
	// A pod that waits for its predecessor, or for the runtime, has no status yet.
	for _, d := range set.Pods {
		if !begun[d.Pod.UID] {
			s.Pods = append(s.Pods, local.PodView{Pod: d.Pod, Source: d.Source, Origin: d.Origin, Stale: d.Stale,
				Waits: local.WaitsOf(d.Pod, []pod.Wait{v.whyNotBegun(d, list, runtime.Message)})})
		}
	}
	for _, d := range set.Stopped {
		if !begun[d.Pod.UID] {
			s.Pods = append(s.Pods, stoppedView(d))
		}
	}
	sort.SliceStable(s.Pods, func(i, j int) bool {
		p, q := s.Pods[i].Pod, s.Pods[j].Pod
		return p.Namespace < q.Namespace || p.Namespace == q.Namespace && p.Name < q.Name
	})
	return s, nil
}

// whyNotBegun returns why a desired pod isn't in list, which has the pods that workers have reported.
func (v View) whyNotBegun(d *pod.Desired, list []*podstatus.Entry, message string) pod.Wait {
	if !v.conf.Observed.Listed() {
		return pod.Wait{Code: pod.WaitRuntime, Message: message}
	}
	if len(named(list, d.Pod.Namespace, d.Pod.Name)) > 0 {
		return pod.Wait{Code: pod.WaitPredecessor}
	}
	return pod.Wait{Code: pod.WaitDecision}
}

// named returns the pods of this name in a list of podstatus.Store. Usually there is one; there are two while one pod
// replaces the other.
func named(list []*podstatus.Entry, namespace, name string) []*podstatus.Entry {
	before := func(p *v1.Pod) int {
		return cmp.Or(strings.Compare(p.Namespace, namespace), strings.Compare(p.Name, name))
	}
	begin := sort.Search(len(list), func(i int) bool { return before(list[i].Pod) >= 0 })
	end := begin
	for end < len(list) && before(list[end].Pod) == 0 {
		end++
	}
	return list[begin:end]
}

// viewOf returns the view of the pod in e, with waits instead of the entry's Waits.
func viewOf(e *podstatus.Entry, waits []pod.Wait) local.PodView {
	v := local.PodView{Pod: e.Pod, Waits: local.WaitsOf(e.Pod, waits)}
	if d := e.Report.Desired; d != nil {
		v.Source, v.Origin, v.Stale = d.Source, d.Origin, d.Stale
	}
	return v
}

// failing returns waits with the last failure and the number of failures added to the waits for a probe. Workers don't
// have these: they only receive changes of a probe's result.
func (v View) failing(uid types.UID, waits []pod.Wait) []pod.Wait {
	ofProbe := func(w pod.Wait) bool { return w.Code == pod.WaitProbe || w.Code == pod.WaitProbeFailed }
	if !slices.ContainsFunc(waits, ofProbe) {
		return waits
	}
	out, failures := slices.Clone(waits), v.conf.Probes.Failures(uid)
	for i := range out {
		for j := range failures {
			if f, w := &failures[j], &out[i]; ofProbe(*w) && f.Container == w.Container && f.Kind == w.Probe {
				w.Message, w.Attempts = f.Message, f.Count
			}
		}
	}
	return out
}

// problems adds the problems of the runtime, the configuration, the cluster and the disks to those of the sources.
func (v View) problems(ctx context.Context, list []pod.Problem) []pod.Problem {
	if v.conf.Reload != nil {
		list = slices.Concat(list, v.conf.Reload())
	}
	return slices.Concat(list, v.conf.RuntimeProblems(), v.conf.Cluster.Problems(), v.shortages(ctx))
}

// stoppedView returns the view of a pod that a user has stopped.
func stoppedView(d *pod.Desired) local.PodView {
	return local.PodView{Pod: d.Pod, Source: d.Source, Origin: d.Origin, Stale: d.Stale, Stopped: true,
		Waits: local.WaitsOf(d.Pod, []pod.Wait{{Code: pod.WaitStopped}})}
}

// Pod returns one pod, without the progress of pulls.
func (v View) Pod(namespace, name string) (local.PodView, bool) {
	if found := named(v.conf.Statuses.List(), namespace, name); len(found) > 0 {
		return viewOf(found[0], found[0].Report.Waits), true
	}
	for _, d := range v.conf.Desired.Current().Stopped {
		if d.Pod.Namespace == namespace && d.Pod.Name == name {
			return stoppedView(d), true
		}
	}
	return local.PodView{}, false
}

// StopPods stops pods, and restarts them if restart is set.
func (v View) StopPods(ctx context.Context, restart bool, names ...types.NamespacedName) error {
	set := v.conf.Desired.Current()
	for _, n := range names {
		d := find(n, set.Pods, set.Stopped)
		switch {
		case d == nil:
			return v.unknown(n)
		case d.Source == pod.SourceRun:
			return &local.StatusError{Code: http.StatusConflict,
				Err: fmt.Errorf("pod %s is run by `deckhand run %s`: end that command instead", n, d.Origin)}
		case d.Source == pod.SourceAPI:
			return &local.StatusError{Code: http.StatusConflict,
				Err: fmt.Errorf("pod %s is managed by the API server, the agent would start it again: delete it "+
					"there (kubectl delete pod -n %s %s), or scale down its controller", n, n.Namespace, n.Name)}
		}
	}
	return v.conf.Stopper.Stop(ctx, restart, names...)
}

// StartPods starts stopped pods.
func (v View) StartPods(names ...types.NamespacedName) error {
	set, held := v.conf.Desired.Current(), v.conf.Stops.List()
	for _, n := range names {
		if find(n, set.Pods, set.Stopped) == nil &&
			!slices.ContainsFunc(held, func(h desired.Hold) bool {
				return h.Namespace == n.Namespace && h.Name == n.Name
			}) {
			return v.unknown(n)
		}
	}
	return v.conf.Stopper.Start(names...)
}

// AddContainer adds an ephemeral container to a pod.
func (v View) AddContainer(name types.NamespacedName, uid types.UID, c v1.EphemeralContainer) error {
	set := v.conf.Desired.Current()
	d := find(name, set.Pods, set.Stopped)
	conflict := func(format string, args ...any) error {
		return &local.StatusError{Code: http.StatusConflict,
			Err: fmt.Errorf("pod %s "+format, append([]any{name}, args...)...)}
	}
	switch {
	case d == nil:
		return v.unknown(name)
	case d.Source == pod.SourceAPI:
		return conflict("is of the API server, which has to know all of its containers: add it there (kubectl debug "+
			"-n %s %s --image=%s)", name.Namespace, name.Name, c.Image)
	case uid != "" && uid != d.Pod.UID:
		return conflict("is another one by now: nothing was added to it")
	case set.Get(d.Pod.UID) == nil:
		return conflict("is stopped: `deckhand start %s` starts it", name.Name)
	}
	if e := v.conf.Statuses.Get(d.Pod.UID); e != nil {
		switch phase := pod.Terminal(e.Report.Status.Phase); {
		case phase != "":
			return conflict("has ended (%s): nothing is started in it any more", phase)
		case e.Report.Stopping:
			return conflict("is being stopped: %s", e.Report.StoppingWhy)
		}
	}
	err := v.conf.Additions.Add(d.Pod.UID, c)
	var invalid *desired.InvalidError
	var refused *pod.Failure
	switch {
	case errors.As(err, &invalid):
		return &local.StatusError{Code: http.StatusUnprocessableEntity,
			Err: fmt.Errorf("no such container can be added to pod %s: %w", name, err)}
	case errors.As(err, &refused):
		return &local.StatusError{Code: http.StatusUnprocessableEntity,
			Err: fmt.Errorf("this node doesn't admit pod %s with such a container (%s): %s", name, refused.Reason,
				refused.Message)}
	case errors.Is(err, desired.ErrNotWanted):
		return v.unknown(name)
	}
	return err
}

// StopAll stops all pods, and then the agent.
func (v View) StopAll() { v.conf.Stopper.StopAll() }

func find(name types.NamespacedName, lists ...[]*pod.Desired) *pod.Desired {
	for _, list := range lists {
		for _, d := range list {
			if d.Pod.Namespace == name.Namespace && d.Pod.Name == name.Name {
				return d
			}
		}
	}
	return nil
}

func (v View) unknown(name types.NamespacedName) error {
	where := "is in no manifest"
	if slices.ContainsFunc(v.conf.Desired.Current().Pods, func(d *pod.Desired) bool {
		return d.Source == pod.SourceAPI
	}) {
		where += ", and the API server has none of that name for this node"
	}
	return &local.StatusError{Code: http.StatusNotFound, Err: fmt.Errorf("pod %s %s", name, where)}
}

// Details returns details of a pod that its PodView doesn't have.
func (v View) Details(ctx context.Context, uid types.UID) local.Details {
	d := local.Details{Probes: v.conf.Probes.Results(uid), Failures: v.conf.Probes.Failures(uid)}
	if r := v.conf.Rank(uid); r != nil {
		d.Eviction = &local.EvictionRank{Signal: string(r.Signal), Resource: r.Resource, Place: r.Place, Of: r.Of,
			Used: r.Used, Request: r.Request}
	}
	if e := v.conf.Statuses.Get(uid); e != nil {
		d.Waits, d.Wake, d.Stopping = local.WaitsOf(e.Pod, v.failing(uid, v.conf.Pulls(ctx).Add(e.Report.Waits))),
			e.Report.Wake, e.Report.StoppingWhy
		for i := range d.Waits {
			d.Waits[i].Because = v.causes(ctx, e, &d.Waits[i].Wait)
		}
	}
	return d
}

// causes returns the causes of a wait that the wait's own data doesn't have, and that only the node can find.
func (v View) causes(ctx context.Context, e *podstatus.Entry, w *pod.Wait) []string {
	switch hangs := v.becauseOfHang(w); {
	case hangs != nil:
		return hangs
	case w.Code == pod.WaitRetry && w.For == pod.WaitForProcesses:
		return v.becauseOfTasks(ctx)
	case mayAwaitDisk(w):
		return v.becauseOfDisks(ctx)
	case w.Code == pod.WaitRejected && w.Reason == pod.ReasonNodeAffinity:
		return admission.Unmatched(e.Pod, v.conf.Node, v.conf.Facts().Labels)
	case w.Code == pod.WaitRejected && w.Reason == pod.ReasonNodePorts, w.Code == pod.WaitAdmission &&
		w.For == pod.WaitForRoom:
		var others []*v1.Pod
		for _, other := range v.conf.Statuses.List() {
			if other.Pod.UID != e.Pod.UID && !podstatus.Over(other.Pod) {
				others = append(others, other.Pod)
			}
		}
		return admission.PortHolders(e.Pod, others)
	case w.Code == pod.WaitRetry && w.Action == pod.EnsureImage && !w.Reason.OfVolume() && e.Report.Desired != nil:
		var list []string
		for _, name := range v.conf.MissingPullSecrets(ctx, e.Report.Desired) {
			list = append(list, fmt.Sprintf("its pull secret %s/%s isn't there, and the image was asked for without it",
				e.Pod.Namespace, name))
		}
		return list
	}
	return nil
}

// NodeJournal returns the transcript of recent decisions about evictions.
func (v View) NodeJournal() []byte { return v.conf.Evictions() }

// Journal returns the transcript of recent decisions about a pod.
func (v View) Journal(uid types.UID, previous bool) ([]byte, bool) {
	if previous {
		return v.conf.Journal.Previous(uid)
	}
	return v.conf.Journal.Text(uid)
}

// Changed returns a channel that gets a value when a pod's status, the desired pods or a cluster problem changes, and
// every second while a pod waits for an image.
func (v View) Changed() (<-chan struct{}, func()) {
	ch := wake.NewSlot()
	statuses, end1 := v.conf.Statuses.Watch()
	sets, end2 := v.conf.Desired.Subscribe()
	problems, end3 := v.conf.Cluster.ProblemsChanged()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { v.passOn(ch, done, statuses, sets, problems) })
	var once sync.Once
	return ch, func() {
		once.Do(func() { end1(); end2(); end3(); close(done) })
		wg.Wait()
	}
}

// passOn forwards changes until done is closed. While a pod waits for an image, it also wakes changed every second. It
// checks for such pods a second after the last change.
func (v View) passOn(changed wake.Slot, done, statuses, sets, problems <-chan struct{}) {
	timer := time.NewTimer(pullPeriod)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-statuses:
		case <-sets:
		case <-problems:
		case <-timer.C:
			if !v.anyAwaitsImage() {
				continue
			}
		}
		timer.Reset(pullPeriod)
		changed.Wake()
	}
}

// anyAwaitsImage reports whether a pod of this node waits for an image.
func (v View) anyAwaitsImage() bool {
	return slices.ContainsFunc(v.conf.Statuses.List(), func(e *podstatus.Entry) bool {
		return image.Awaited(e.Report.Waits)
	})
}

// Configuration returns the configuration in effect.
func (v View) Configuration() local.Configuration {
	c := v.conf.Current()
	return local.Configuration{Kubelet: *paths.Masked(&c.Kubelet), Origins: c.Origins()}
}

// Run runs the pods of a manifest until the returned value is closed.
func (v View) Run(_ context.Context, origin string, manifest []byte) (local.Run, error) {
	add, err := v.conf.Runs.Add(origin, manifest)
	if err != nil {
		return nil, &local.StatusError{Code: http.StatusUnprocessableEntity, Err: err}
	}
	return foreground{add}, nil
}

type foreground struct{ *runsource.Addition }

// Pods returns the names of the pods.
func (f foreground) Pods() []types.NamespacedName {
	names := make([]types.NamespacedName, len(f.Addition.Pods))
	for i, d := range f.Addition.Pods {
		names[i] = types.NamespacedName{Namespace: d.Pod.Namespace, Name: d.Pod.Name}
	}
	return names
}

// Close withdraws the pods.
func (f foreground) Close() { f.Remove() }
