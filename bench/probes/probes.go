// Package probes measures what a thousand HTTP probes a second cost deckhand. The
// server that they ask is a process of its own, which isn't counted.
package probes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/bench/report"
)

// warmUp is how long a way of probing runs before it is measured.
const warmUp = 2 * time.Second

// goal is how much of a core 1,000 probes a second may cost.
const (
	goal     = 0.15
	goalRate = 1000
)

// Options say what to measure.
type Options struct {
	// Count is how many probes there are; each is tried once a Period.
	Count  int
	Period time.Duration
	// For is how long each way of probing is looked at, Rounds how often.
	For    time.Duration
	Rounds int
	// Server is the command that calls Serve.
	Server []string
	// Out gets progress and the table.
	Out io.Writer
}

// way is one way to do the work. run does it until ctx ends, and counts.
type way struct {
	name string
	run  func(ctx context.Context, count *counts) error
}

// result is what a way came to, all rounds together.
type result struct {
	name  string
	tries int64
	cpu   time.Duration
	while time.Duration
}

func (r result) core() float64 { return float64(r.cpu) / float64(r.while) }

func (r result) perTry() time.Duration { return r.cpu / time.Duration(max(r.tries, 1)) }

// Run measures and prints.
func Run(ctx context.Context, o Options) (err error) {
	if o.Count < 1 || o.Period < time.Second || o.Period%time.Second != 0 || o.For <= 0 || o.Rounds < 1 {
		return errors.New("there has to be a probe, a period of whole seconds, a time and a round to measure")
	}
	address, stop, err := start(ctx, o.Server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ways := o.ways(address)
	results := make([]result, len(ways))
	for round := range o.Rounds {
		for i, w := range ways {
			r, err := o.measure(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			fmt.Fprintf(o.Out, "round %d  %s: %s\n", round+1, w.name, describe(r))
			results[i].name = w.name
			results[i].tries += r.tries
			results[i].cpu += r.cpu
			results[i].while += r.while
		}
	}
	t := o.table(results)
	_, err = t.WriteTo(o.Out)
	return err
}

func (o Options) ways(address netip.AddrPort) []way {
	return []way{
		{"floor: bare system calls", o.floor(address)},
		{"deckhand", o.managed(address, deckhand())},
		{"net/http in place of deckhand's client", o.managed(address, netHTTP())},
		{"deckhand's scheduler alone", o.managed(address, nothing{})},
	}
}

// measure runs one way for a while. Every try has to succeed, and none may be missing.
func (o Options) measure(ctx context.Context, w way) (r result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var count counts
	done := make(chan error, 1)
	go func() { done <- w.run(ctx, &count) }()
	defer func() { cancel(); err = errors.Join(err, <-done) }()

	if err := report.Pause(ctx, warmUp); err != nil {
		return r, err
	}
	runtime.GC() // what the way before left isn't this one's to clear
	before, began, tried := cpuTime(), time.Now(), count.ok.Load()
	if err := report.Pause(ctx, o.For); err != nil {
		return r, err
	}
	r = result{name: w.name, cpu: cpuTime() - before, while: time.Since(began), tries: count.ok.Load() - tried}
	if n := count.failed.Load(); n > 0 {
		return r, fmt.Errorf("%d tries didn't succeed: %s", n, count.first())
	}
	if want := int64(float64(o.Count) * float64(r.while) / float64(o.Period)); r.tries < want*95/100 {
		return r, fmt.Errorf("%d tries in %s, want %d: the machine is too busy to tell", r.tries, report.Duration(r.while), want)
	}
	return r, nil
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	// It fails only for a bad address or who.
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func describe(r result) string {
	return fmt.Sprintf("%.1f %% of a core, %d us a try", 100*r.core(), r.perTry().Microseconds())
}

func (o Options) table(results []result) report.Table {
	t := report.Table{
		Title:   fmt.Sprintf("%d HTTP probes, each every %s, for %s: CPU of the side that asks", o.Count, o.Period, report.Duration(results[0].while)),
		Columns: []string{"", "of a core", "a try", "to floor", "goal", ""},
	}
	for i, r := range results {
		row := []string{r.name, fmt.Sprintf("%.1f %%", 100*r.core()), fmt.Sprintf("%d us", r.perTry().Microseconds()),
			report.Ratio(r.perTry(), results[0].perTry())}
		if i == 1 {
			most := goal * float64(o.Count) / o.Period.Seconds() / goalRate
			row = append(row, fmt.Sprintf("< %.1f %%", 100*most), report.Result(r.core() < most))
		}
		t.Add(row...)
	}
	return t
}
