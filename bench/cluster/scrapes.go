package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
)

const (
	// calls is how often each page is asked for. Before each the agent has a moment, so that it can't answer with what it has measured
	// for the last one.
	calls = 10
	apart = 1100 * time.Millisecond
	// atRest is how long the agent is left alone: the kubelet measures each container every 10 to 15 seconds.
	atRest = 30 * time.Second
	// settling is what goes on after the pods' start.
	settling = 5 * time.Second
	// scraped is how often a minute Prometheus and metrics-server ask by default, as a measure of what it all comes to.
	scraped = 4
)

// pages are what tells what pods use, each with more than the one before: an answer to one can't be made of what was measured for the last.
var pages = []string{"/metrics/resource", "/stats/summary", "/metrics/cadvisor"}

// scrapes are what it costs to say what pods use.
type scrapes struct {
	// agent and runtime are the CPU time at rest in each second.
	agent, runtime time.Duration
	pages          map[string]page
}

// page is one of them: the median of its calls.
type page struct {
	took, agent, runtime time.Duration
	bytes, garbage       int64
}

// scrape measures that, of the pods that are there.
func (s *session) scrape(ctx context.Context, a *rig.Agent, n int) (*scrapes, error) {
	runtime, err := s.stage.Programs()
	if err != nil {
		return nil, err
	}
	if err := awaitAll(ctx, a, n); err != nil {
		return nil, err
	}
	if err := report.Pause(ctx, settling); err != nil {
		return nil, err
	}
	out := &scrapes{pages: map[string]page{}}
	if out.agent, out.runtime, err = used([]int{a.PID}, runtime, func() error { return report.Pause(ctx, atRest) }); err != nil {
		return nil, err
	}
	out.agent, out.runtime = out.agent/time.Duration(atRest.Seconds()), out.runtime/time.Duration(atRest.Seconds())
	all := map[string][]page{}
	for range calls {
		if err := report.Pause(ctx, apart); err != nil {
			return nil, err
		}
		for _, path := range pages {
			p, err := measure(ctx, a, runtime, path)
			if err != nil {
				return nil, err
			}
			all[path] = append(all[path], p)
		}
	}
	for path, l := range all {
		out.pages[path] = page{median(l, func(p page) time.Duration { return p.took }), median(l, func(p page) time.Duration { return p.agent }), median(l, func(p page) time.Duration { return p.runtime }),
			median(l, func(p page) int64 { return p.bytes }), median(l, func(p page) int64 { return p.garbage })}
	}
	return out, nil
}

// awaitAll waits until each of the pods has figures: the kubelet has them once it has measured its containers.
func awaitAll(ctx context.Context, a *rig.Agent, n int) error {
	for late := time.Now().Add(patience); ; {
		text, err := a.Get(ctx, "/stats/summary")
		var summary statsapi.Summary
		if err == nil {
			err = json.Unmarshal(text, &summary)
		}
		if err != nil {
			return err
		}
		with := 0
		for i := range summary.Pods {
			if c := summary.Pods[i].Containers; len(c) == 1 && c[0].CPU != nil && c[0].CPU.UsageNanoCores != nil && c[0].Memory != nil {
				with++
			}
		}
		// What the kubelet measures for this page is no proof of the others.
		metrics, err := a.Get(ctx, "/metrics/cadvisor")
		if err != nil {
			return err
		}
		series := bytes.Count(metrics, []byte("\ncontainer_memory_working_set_bytes{"))
		if with == n && series >= n {
			return nil
		}
		if time.Now().After(late) {
			return fmt.Errorf("of %d pods %d have figures in the summary, and there are %d series of containers' memory", n, with, series)
		}
		if err := report.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

func measure(ctx context.Context, a *rig.Agent, runtime []int, path string) (p page, err error) {
	// Asking how much was allocated allocates: what that takes is seen by asking twice.
	var allocated [3]int64
	for i := range 2 {
		if allocated[i], err = a.Allocated(ctx); err != nil {
			return p, err
		}
	}
	p.agent, p.runtime, err = used([]int{a.PID}, runtime, func() error {
		began := time.Now()
		text, err := a.Get(ctx, path)
		p.took, p.bytes = time.Since(began), int64(len(text))
		return err
	})
	if err != nil {
		return p, err
	}
	allocated[2], err = a.Allocated(ctx)
	p.garbage = max(0, allocated[2]-allocated[1]-(allocated[1]-allocated[0]))
	return p, err
}

// used is the CPU time that the processes use meanwhile.
func used(agent, runtime []int, do func() error) (byAgent, byRuntime time.Duration, err error) {
	var before, after [2]time.Duration
	read := func(to *[2]time.Duration) (err error) {
		if to[0], err = report.CPUTime(agent...); err == nil {
			to[1], err = report.CPUTime(runtime...)
		}
		return err
	}
	if err := read(&before); err != nil {
		return 0, 0, err
	}
	if err := do(); err != nil {
		return 0, 0, err
	}
	err = read(&after)
	return after[0] - before[0], after[1] - before[1], err
}

func median[T int64 | time.Duration](list []page, of func(page) T) T {
	values := make([]T, len(list))
	for i, p := range list {
		values[i] = of(p)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// scrapesTables are of what was measured in the last round.
func (s *session) scrapesTables() []report.Table {
	each := report.Table{Title: "What one answer costs to those who ask what pods use (p50); CPU time while it is asked for, the kubelet's work that never rests included",
		Columns: []string{"pods", "page", "agent", "answer", "of the kubelet's", "goal", "CPU of agent", "CPU of runtime", "CPU of both, of the kubelet's", "garbage", "bytes"}}
	minute := report.Table{Title: "What that comes to in a minute: at rest, where the kubelet measures each container every 10 to 15 seconds whether somebody asks or not and deckhand measures nothing, and with each page asked for every 15 seconds; CPU time of agent and runtime",
		Columns: []string{"pods", "agent", "agent at rest", "runtime at rest", "rest", "pages", "both", "of the kubelet's"}}
	for _, n := range s.Counts {
		theirs := s.scrapes["kubelet"][n]
		for _, agent := range agents {
			m := s.scrapes[agent][n]
			for _, path := range pages {
				p, k := m.pages[path], theirs.pages[path]
				each.Add(strconv.Itoa(n), path, agent, tenths(p.took), report.Ratio(p.took, k.took), goal(n, agent, path, p), tenths(p.agent), tenths(p.runtime), report.Ratio(p.agent+p.runtime, k.agent+k.runtime), report.MiB(p.garbage), fmt.Sprint(p.bytes))
			}
			rest, asked := m.minute()
			kubeletRest, kubeletAsked := theirs.minute()
			minute.Add(strconv.Itoa(n), agent, report.Millicores(m.agent, time.Second), report.Millicores(m.runtime, time.Second), report.Duration(rest), report.Duration(asked), report.Duration(rest+asked), report.Ratio(rest+asked, kubeletRest+kubeletAsked))
		}
	}
	return []report.Table{each, minute}
}

// goal says whether deckhand's summary is as quick and spares as much memory as it ought to.
func goal(n int, agent, path string, p page) string {
	most, known := map[int]time.Duration{100: 20 * time.Millisecond, 500: 100 * time.Millisecond}[n]
	if !known || agent != "deckhand" || path != "/stats/summary" {
		return ""
	}
	const garbage = 5e6 // of 500 pods
	return fmt.Sprintf("≤ %s %s", report.Duration(most), report.Result(p.took <= most && (n < 500 || p.garbage <= garbage)))
}

// minute is the CPU time of agent and runtime in one: at rest, and for what is asked.
func (m *scrapes) minute() (rest, asked time.Duration) {
	for _, p := range m.pages {
		asked += scraped * (p.agent + p.runtime)
	}
	return time.Duration(time.Minute.Seconds()) * (m.agent + m.runtime), asked
}

func tenths(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
