package agent

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/desired/runsource"
	"github.com/deckhand-node/deckhand/internal/local"
	"github.com/deckhand-node/deckhand/internal/nodeimages/pulls"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/status"
)

// pullPeriod is how often those who watch pods are told how far pulls are.
const pullPeriod = time.Second

// view is what the local API shows of the agent (local.Agent).
type view struct{ *Agent }

// Snapshot returns the present state of the agent and its pods.
func (a view) Snapshot(ctx context.Context) (local.Snapshot, error) {
	words := a.images.Pulls(ctx)
	set := a.merger.Current()
	name, release, ready, told := a.runtime.now()
	s := local.Snapshot{
		Node:     a.cfg.NodeName,
		Problems: a.problems(set.Problems),
		Agent: local.AgentInfo{Version: version(), PID: os.Getpid(), Started: a.since, Synced: set.Synced,
			RuntimeName: name, RuntimeVersion: release, RuntimeReady: ready, RuntimeMessage: told},
	}
	list := a.status.List()
	begun := make(map[types.UID]bool, len(list))
	for _, e := range list {
		s.Pods = append(s.Pods, viewOf(e, words.Explain(e.Pod, e.Report.Reasons)))
		begun[e.Pod.UID] = true
	}
	// A pod that waits for its predecessor, or for the runtime, has no status yet.
	for _, d := range set.Pods {
		if !begun[d.Pod.UID] {
			s.Pods = append(s.Pods, local.PodView{Pod: d.Pod, Source: d.Source, Origin: d.Origin, Stale: d.Stale, Reasons: []string{a.whyNotBegun(d, list, told)}})
		}
	}
	sort.SliceStable(s.Pods, func(i, j int) bool {
		p, q := s.Pods[i].Pod, s.Pods[j].Pod
		return p.Namespace < q.Namespace || p.Namespace == q.Namespace && p.Name < q.Name
	})
	return s, nil
}

// whyNotBegun says why a wanted pod has no worker that has told of it, as those in
// list have.
func (a view) whyNotBegun(d *pod.Desired, list []*status.Entry, told string) string {
	if !a.listed() {
		return "waits for the runtime: " + told
	}
	if len(named(list, d.Pod.Namespace, d.Pod.Name)) > 0 {
		return "waits for its predecessor of the same name to end"
	}
	return "is about to be looked at"
}

// named returns the pods of this name in a list of status.Store: mostly one, but two
// while one takes another's place.
func named(list []*status.Entry, namespace, name string) []*status.Entry {
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

// viewOf is how a pod looks with these reasons, its own or those with more to say.
func viewOf(e *status.Entry, reasons []pod.Reason) local.PodView {
	v := local.PodView{Pod: e.Pod}
	for _, r := range reasons {
		text := r.Text
		if r.Container != "" {
			text = "container " + r.Container + ": " + text
		}
		v.Reasons = append(v.Reasons, text)
	}
	if d := e.Report.Desired; d != nil {
		v.Source, v.Origin, v.Stale = d.Source, d.Origin, d.Stale
	}
	return v
}

// problems adds the runtime's troubles to those of the sources.
func (a view) problems(list []pod.Problem) []pod.Problem {
	if a.embedded == nil {
		return list
	}
	for _, text := range a.embedded.Problems() {
		list = append(list[:len(list):len(list)], pod.Problem{Origin: "image archives", Message: text, Since: a.since})
	}
	return list
}

// Pod returns one pod, without what pulls are doing.
func (a view) Pod(namespace, name string) (local.PodView, bool) {
	if found := named(a.status.List(), namespace, name); len(found) > 0 {
		return viewOf(found[0], found[0].Report.Reasons), true
	}
	return local.PodView{}, false
}

// Details returns what is known of a pod beyond that.
func (a view) Details(ctx context.Context, uid types.UID) local.Details {
	d := local.Details{Probes: a.probes.Results(uid)}
	if e := a.status.Get(uid); e != nil {
		d.Reasons, d.Wake, d.Stopping = a.images.Pulls(ctx).Explain(e.Pod, e.Report.Reasons), e.Report.Wake, e.Report.Stopping
	}
	return d
}

// Journal returns what was decided about a pod lately.
func (a view) Journal(uid types.UID, previous bool) ([]byte, bool) {
	if previous {
		return a.journal.Previous(uid)
	}
	return a.journal.Text(uid)
}

// Changed returns a channel that gets a value when a pod or what is wanted has changed, and
// every second while a pod waits for an image.
func (a view) Changed() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	statuses, end1 := a.status.Watch()
	sets, end2 := a.merger.Subscribe()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { a.passOn(ch, done, statuses, sets) })
	var once sync.Once
	return ch, func() {
		once.Do(func() { end1(); end2(); close(done) })
		wg.Wait()
	}
}

// passOn tells of changes until done is closed. The timer only goes on while there is a pull
// to tell of: a second after the last change, it looks whether there is.
func (a view) passOn(changed chan<- struct{}, done, statuses, sets <-chan struct{}) {
	timer := time.NewTimer(pullPeriod)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return
		case <-statuses:
		case <-sets:
		case <-timer.C:
			if !a.anyAwaitsImage() {
				continue
			}
		}
		timer.Reset(pullPeriod)
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// anyAwaitsImage reports whether a pod of this node waits for an image.
func (a view) anyAwaitsImage() bool {
	return slices.ContainsFunc(a.status.List(), func(e *status.Entry) bool { return pulls.Awaited(e.Pod, e.Report.Reasons) })
}

// Configuration returns the configuration in force.
func (a view) Configuration() local.Configuration {
	c := a.reloader.Current()
	return local.Configuration{Kubelet: *paths.Masked(&c.Kubelet), Origins: c.Origins()}
}

// Run has the pods of a manifest run until the returned value is closed.
func (a view) Run(_ context.Context, origin string, manifest []byte) (local.Run, error) {
	add, err := a.runs.Add(origin, manifest)
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
