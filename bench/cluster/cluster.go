// Package cluster measures deckhand as the node of a real control plane, beside the kubelet, in turns, on one containerd: from a pod's
// creation at the API server to its status there, what that costs in calls, CPU time and memory, and what it costs to say what pods use.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
)

// patience is how long one step may take before the measurement is given up.
const patience = 2 * time.Minute

// node is the node's name.
const node = "bench"

// agents take turns.
var agents = []string{"deckhand", "kubelet"}

// Options say what to measure.
type Options struct {
	// BinDir has deckhand, the kubelet, the control plane, the runtime's programs and its images.
	BinDir string
	// Counts are the numbers of pods to create at once.
	Counts []int
	// Rounds is how often each agent has its turn.
	Rounds int
	Out    io.Writer
}

// turn is what one turn of one agent came to.
type turn struct {
	// created, scheduled, started and running are when each pod was created, had its node, its container started by the runtime, and was told
	// to be ready; gone is when its object was.
	created, scheduled, started, running, deleted, gone []time.Time
	// calls are those of the node by verb and resource until all ran, removal those until all were gone.
	calls, removal map[string]int
	// sent and received are bytes of calls.
	sent, received int64
	cpu            time.Duration
	memory         int64
}

// Run measures and prints. It needs root and takes down all it made.
func Run(ctx context.Context, o Options) (err error) {
	st, err := rig.StartStage(ctx, o.BinDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	cri := runtimeapi.NewRuntimeServiceClient(st.CRI)
	watcher, err := rig.StartWatcher(ctx, cri)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	data := filepath.Join(st.Dir, "control-plane")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	owner := plane.NewProgram(ctx, data)
	defer owner.End()
	p, err := owner.Start(filepath.Join(o.BinDir, "controlplane"))
	if err != nil {
		return err
	}
	s := &session{Options: o, stage: st, watcher: watcher, owner: owner, plane: p, turns: map[string]map[int][]turn{}, scrapes: map[string]map[int]*scrapes{},
		floor: &rig.Floor{Runtime: cri, Image: rig.Image, Args: []string{"serve"}, LogDir: filepath.Join(st.Dir, "floor"), CgroupRoot: st.CgroupRoot}}
	kubeconfig, err := plane.Try(owner, func() string { return p.Node(node) })
	if err != nil {
		return err
	}
	s.kubeconfig = kubeconfig
	if s.api, err = apiclient.New(apiclient.Config{Kubeconfig: p.Admin(), Files: filewatch.New(filewatch.Every, logr.Discard()), ContentType: kruntime.ContentTypeProtobuf, UserAgent: "bench", LeaseDuration: time.Minute,
		Meter: metrics.New(metrics.Info{Build: buildinfo.Get()}).APIClient, Log: logr.Discard()}); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	clients.Go(func() { _ = s.api.Run(running) }) // its calls have the errors
	s.seen = newSight()
	clients.Go(func() { s.api.Watch(running, apiclient.Pods, "", apiclient.Selectors{}, s.seen) })
	return s.run(ctx)
}

type session struct {
	Options
	stage      *rig.Stage
	watcher    *rig.Watcher
	floor      *rig.Floor
	owner      *plane.Program
	plane      *plane.Plane
	kubeconfig string
	api        *apiclient.Client
	seen       *sight
	round      int
	// made counts lots of pods: their names differ.
	made    int
	turns   map[string]map[int][]turn
	scrapes map[string]map[int]*scrapes
	floors  map[int][]time.Duration
}

func (s *session) run(ctx context.Context) error {
	s.floors = map[int][]time.Duration{}
	for s.round = range s.Rounds {
		for _, n := range s.Counts {
			fmt.Fprintf(s.Out, "round %d of %d, %d pods: the runtime alone\n", s.round+1, s.Rounds, n)
			if err := s.floorTurn(ctx, n); err != nil {
				return err
			}
		}
		for _, agent := range agents {
			fmt.Fprintf(s.Out, "round %d of %d: %s\n", s.round+1, s.Rounds, agent)
			if err := s.agentTurn(ctx, agent); err != nil {
				return fmt.Errorf("%s: %w", agent, err)
			}
		}
	}
	return s.print()
}

// floorTurn has the runtime start as many pods, several at a time.
func (s *session) floorTurn(ctx context.Context, n int) error {
	pods, took, err := s.floor.Start(ctx, n, min(n, 6))
	if err != nil {
		return err
	}
	s.floors[n] = append(s.floors[n], took)
	if _, err := s.floor.Remove(ctx, pods, 6); err != nil {
		return err
	}
	_, err = s.watcher.AwaitFor(ctx, patience, "the floor's pods are gone", rig.State.Empty)
	return err
}

func (s *session) agentTurn(ctx context.Context, agent string) (err error) {
	a, err := rig.StartAgent(ctx, rig.AgentOptions{Binary: filepath.Join(s.BinDir, agent), Dir: filepath.Join(s.stage.Dir, fmt.Sprint(agent, s.round)), Endpoint: s.stage.Endpoint,
		CgroupRoot: s.stage.CgroupRoot, Kubeconfig: s.kubeconfig, Node: node})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	for _, what := range [][]string{{"--for=create"}, {"--for=condition=Ready"}} {
		if out, err := s.plane.Kubectl("", append([]string{"wait", "node/" + node, "--timeout=60s"}, what...)...); err != nil {
			return fmt.Errorf("the node isn't ready: %w: %s", err, out)
		}
	}
	for _, n := range s.Counts {
		t, err := s.pods(ctx, agent, a, n)
		if err != nil {
			return fmt.Errorf("%d pods: %w; the agent's log ends with:\n%s", n, err, a.LogTail())
		}
		if s.turns[agent] == nil {
			s.turns[agent] = map[int][]turn{}
		}
		s.turns[agent][n] = append(s.turns[agent][n], *t)
	}
	return nil
}

// pods creates pods, awaits that all are ready, deletes them, and awaits that all are gone.
func (s *session) pods(ctx context.Context, agent string, a *rig.Agent, n int) (*turn, error) {
	t := &turn{created: make([]time.Time, n), deleted: make([]time.Time, n)}
	s.made++
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("p%d-%04d", s.made, i)
	}
	s.seen.clear()
	from, err := s.calls()
	if err != nil {
		return nil, err
	}
	cpu, err := report.CPUTime(a.PID)
	if err != nil {
		return nil, err
	}
	sent, received, err := a.Transferred(ctx)
	if err != nil {
		return nil, err
	}
	for i := range n {
		t.created[i] = time.Now()
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: names[i]}, Spec: v1.PodSpec{AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []v1.Container{{Name: "main", Image: rig.Image, Args: []string{"serve"}}}}}
		if err := s.api.Create(ctx, apiclient.Calls, apiclient.Pods, "default", p, &v1.Pod{}); err != nil {
			return nil, err
		}
	}
	if err := s.seen.await(ctx, "all pods are ready", func() bool { return len(s.seen.running) == n }); err != nil {
		return nil, err
	}
	state := map[string]time.Time{}
	if _, err := s.watcher.AwaitFor(ctx, patience, "all containers run", func(r rig.State) bool {
		for _, p := range r.Pods {
			for _, c := range p.Containers {
				state[p.Sandbox.GetMetadata().GetName()] = time.Unix(0, c.GetStartedAt())
			}
		}
		return r.Running() == n
	}); err != nil {
		return nil, err
	}
	s.seen.mu.Lock()
	for i := range n {
		name := names[i]
		t.scheduled, t.running, t.started = append(t.scheduled, s.seen.scheduled[name]), append(t.running, s.seen.running[name]), append(t.started, state[name])
	}
	s.seen.mu.Unlock()
	after, err := report.CPUTime(a.PID)
	if err != nil {
		return nil, err
	}
	t.cpu = after - cpu
	memory, err := report.MemoryOf(a.PID)
	if err != nil {
		return nil, err
	}
	t.memory = memory.RSS
	s2, r2, err := a.Transferred(ctx)
	if err != nil {
		return nil, err
	}
	t.sent, t.received = s2-sent, r2-received
	now, err := s.calls()
	if err != nil {
		return nil, err
	}
	t.calls = difference(from, now)
	if s.round == s.Rounds-1 {
		if s.scrapes[agent] == nil {
			s.scrapes[agent] = map[int]*scrapes{}
		}
		if s.scrapes[agent][n], err = s.scrape(ctx, a, n); err != nil {
			return nil, err
		}
		if now, err = s.calls(); err != nil {
			return nil, err
		}
	}
	for i := range n {
		t.deleted[i] = time.Now()
		if err := s.api.Delete(ctx, apiclient.Calls, apiclient.Pods, "default", names[i], metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
	}
	if err := s.seen.await(ctx, "all pods are gone", func() bool { return len(s.seen.gone) == n }); err != nil {
		return nil, err
	}
	s.seen.mu.Lock()
	for i := range n {
		t.gone = append(t.gone, s.seen.gone[names[i]])
	}
	s.seen.mu.Unlock()
	last, err := s.calls()
	if err != nil {
		return nil, err
	}
	t.removal = difference(now, last)
	_, err = s.watcher.AwaitFor(ctx, patience, "the runtime has none of them", rig.State.Empty)
	return t, err
}

// calls counts the node's calls so far, but for its heartbeats.
func (s *session) calls() (map[string]int, error) {
	all, err := plane.Try(s.owner, s.plane.Calls)
	count := map[string]int{}
	for _, c := range all {
		if !strings.HasPrefix(c.Resource, "leases") && !strings.HasPrefix(c.Resource, "nodes") && !strings.HasPrefix(c.Resource, "csinodes") {
			count[c.Verb+" "+c.Resource]++
		}
	}
	return count, err
}

func difference(before, after map[string]int) map[string]int {
	d := map[string]int{}
	for what, n := range after {
		if n > before[what] {
			d[what] = n - before[what]
		}
	}
	return d
}

// sight is what the API server has of the pods.
type sight struct {
	mu                       sync.Mutex
	scheduled, running, gone map[string]time.Time
	changed                  chan struct{}
}

func newSight() *sight {
	s := &sight{changed: make(chan struct{}, 1)}
	s.clear()
	return s
}

func (s *sight) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scheduled, s.running, s.gone = map[string]time.Time{}, map[string]time.Time{}, map[string]time.Time{}
}

func (s *sight) Listed(apiclient.List)         {}
func (s *sight) Malformed(apiclient.Malformed) {}
func (s *sight) Away(error)                    {}

func (s *sight) Changed(kind watch.EventType, o kruntime.Object) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return
	}
	now := time.Now()
	s.mu.Lock()
	once := func(times map[string]time.Time, is bool) {
		if _, had := times[p.Name]; is && !had {
			times[p.Name] = now
		}
	}
	once(s.scheduled, p.Spec.NodeName != "")
	once(s.running, podstatus.Ready(p))
	once(s.gone, kind == watch.Deleted)
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// await waits until something is so; it is asked with mu held.
func (s *sight) await(ctx context.Context, what string, is func() bool) error {
	late := time.After(patience)
	for {
		s.mu.Lock()
		done := is()
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("waited in vain until %s", what)
		case <-s.changed:
		}
	}
}

// quantile is the time between two that this part of pods don't exceed.
func quantile(turns []turn, part float64, from, to func(*turn) []time.Time) time.Duration {
	var all []time.Duration
	for i := range turns {
		a, b := from(&turns[i]), to(&turns[i])
		for k := range a {
			all = append(all, b[k].Sub(a[k]))
		}
	}
	slices.Sort(all)
	return all[min(int(part*float64(len(all))), len(all)-1)]
}

func (s *session) print() error {
	created, scheduled := func(t *turn) []time.Time { return t.created }, func(t *turn) []time.Time { return t.scheduled }
	started, running := func(t *turn) []time.Time { return t.started }, func(t *turn) []time.Time { return t.running }
	deleted, gone := func(t *turn) []time.Time { return t.deleted }, func(t *turn) []time.Time { return t.gone }
	times := report.Table{Title: "From a pod's creation at the API server to its status Ready there, and from its deletion until it is gone",
		Columns: []string{"pods", "agent", "p50", "p99", "scheduler p50", "agent and runtime p50", "status p50", "all ready", "the runtime alone", "gone p50", "gone p99"}}
	costs := report.Table{Title: "What that costs: calls of the node for each pod, events included",
		Columns: []string{"pods", "agent", "CPU each pod", "RSS", "sent each pod", "received each pod", "calls until ready", "calls until gone"}}
	for _, n := range s.Counts {
		for _, agent := range agents {
			turns := s.turns[agent][n]
			var all []time.Duration
			var cpu time.Duration
			var memory, sent, received int64
			calls, removal := map[string]int{}, map[string]int{}
			for i := range turns {
				t := &turns[i]
				all = append(all, slices.MaxFunc(t.running, time.Time.Compare).Sub(t.created[0]))
				cpu, memory, sent, received = cpu+t.cpu, max(memory, t.memory), sent+t.sent, received+t.received
				for what, k := range t.calls {
					calls[what] += k
				}
				for what, k := range t.removal {
					removal[what] += k
				}
			}
			q := func(part float64, from, to func(*turn) []time.Time) string {
				return report.Duration(quantile(turns, part, from, to))
			}
			pods := n * len(turns)
			times.Add(strconv.Itoa(n), agent, q(.5, created, running), q(.99, created, running), q(.5, created, scheduled), q(.5, scheduled, started), q(.5, started, running),
				report.Duration(report.Median(all)), report.Duration(report.Median(s.floors[n])), q(.5, deleted, gone), q(.99, deleted, gone))
			costs.Add(strconv.Itoa(n), agent, report.Duration(cpu/time.Duration(pods)), report.MiB(memory), fmt.Sprint(sent/int64(pods)), fmt.Sprint(received/int64(pods)), each(calls, pods), each(removal, pods))
		}
	}
	for _, t := range append([]report.Table{times, costs}, s.scrapesTables()...) {
		if _, err := t.WriteTo(s.Out); err != nil {
			return err
		}
	}
	return nil
}

func each(calls map[string]int, pods int) string {
	var list []string
	for _, what := range slices.Sorted(maps.Keys(calls)) {
		list = append(list, fmt.Sprintf("%.1f %s", float64(calls[what])/float64(pods), what))
	}
	return strings.Join(list, ", ")
}
