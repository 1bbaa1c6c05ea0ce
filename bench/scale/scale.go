// Package scale measures what deckhand itself costs with many pods: the runtime below it keeps everything in memory, in
// a process of its own that isn't counted, and the agent's files are in memory, too.
package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// patience is how long one number of pods may take.
const patience = 5 * time.Minute

// Image is what the measured pods run; the in-memory runtime has it.
const Image = "deckhand.local/web:1"

// Options say what to measure.
type Options struct {
	// BinDir has deckhand, and the kubelet if that is measured.
	BinDir string
	// Kubelet has the kubelet measured in deckhand's place.
	Kubelet bool
	// Counts are the numbers of static pods.
	Counts []int
	// Idle is how long the agent is looked at when all pods run.
	Idle time.Duration
	// MemCRI is the command that serves the in-memory runtime; the path of the
	// socket is added to it.
	MemCRI []string
	// Out gets progress and the table.
	Out io.Writer
}

// result is what n pods came to.
type result struct {
	n        int
	reported time.Duration // until /pods says all are Running
	cpu      time.Duration // spent by the agent until then, its start included
	report.Rest
	served int64 // by how many bytes it has grown by serving lists of the pods; only measured with servedPods
}

// Run measures and prints.
func Run(ctx context.Context, o Options) error {
	if os.Geteuid() != 0 {
		return errors.New("the agent needs root: run this as root")
	}
	var results []result
	for _, n := range o.Counts {
		r, err := o.measure(ctx, n)
		if err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
		fmt.Fprintf(o.Out, "%4d pods  running after %s and %.2f CPU-s; idle: %s, %s\n", n,
			report.Duration(r.reported), r.cpu.Seconds(), report.Millicores(r.CPU, r.While), report.MiB(r.Memory.RSS))
		results = append(results, r)
	}
	for _, r := range results {
		if r.n == servedPods && !o.Kubelet {
			fmt.Fprintf(o.Out, "%4d pods  grown by %s by serving %d lists of them over HTTPS (goal ≤ %s: %s)\n", r.n,
				report.MiB(r.served), servedLists, report.MiB(goalServed), report.Result(r.served <= goalServed))
		}
	}
	t := table(o.agent(), results)
	_, err := t.WriteTo(o.Out)
	return err
}

// agent is the program that is measured.
func (o Options) agent() string {
	if o.Kubelet {
		return "kubelet"
	}
	return "deckhand"
}

func (o Options) measure(ctx context.Context, n int) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	dir, err := os.MkdirTemp("", "deckhand-scale-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// ext4 reuses no inode for minutes after its deletion. With the inodes of an earlier measurement, its search for
	// others takes up to half of the agent's CPU time.
	if err := unix.Mount("deckhand-scale", dir, "tmpfs", 0, "mode=0700"); err != nil {
		return r, fmt.Errorf("mount a tmpfs for the agent's files: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)) }()
	socket := filepath.Join(dir, "cri.sock")
	stop, err := o.serve(ctx, socket)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	watcher, err := rig.StartWatcher(ctx, runtimeapi.NewRuntimeServiceClient(conn))
	if err != nil {
		return r, err
	}
	defer watcher.Stop()

	run := rig.AgentOptions{
		Binary: filepath.Join(o.BinDir, o.agent()), Dir: filepath.Join(dir, "agent"), Endpoint: "unix://" + socket,
		CgroupRoot: "/" + filepath.Base(dir), Serve: !o.Kubelet && n == servedPods,
	}
	defer func() { err = errors.Join(err, o.cleanUp(run)) }()
	a, err := rig.StartAgent(ctx, run)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	return o.fill(ctx, a, watcher, n)
}

// cleanUp removes what the agent made on the host for its pods: their cgroups,
// in the first place. The kubelet makes none here, and leaves its root directory mounted on itself.
func (o Options) cleanUp(run rig.AgentOptions) error {
	if o.Kubelet {
		return unix.Unmount(filepath.Join(run.Dir, "root"), unix.MNT_DETACH)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return reset.Run(ctx, reset.Config{
		Runtime:    embedded.Config{RootDir: filepath.Join(run.Dir, "root"), Bridge: "dhscale0", PodCIDR: config.DefaultPodCIDR},
		CgroupRoot: run.CgroupRoot,
	}, logr.Discard())
}

// fill gives the agent its pods and measures.
func (o Options) fill(ctx context.Context, a *rig.Agent, w *rig.Watcher, n int) (result, error) {
	r := result{n: n}
	if err := a.Stage(n, Image, []string{"serve"}); err != nil {
		return r, err
	}
	began := time.Now()
	if err := a.Drop(); err != nil {
		return r, err
	}
	// Asking /pods costs the agent time, so that starts when the runtime is done.
	if _, err := w.Await(ctx, func(s rig.State) bool { return len(s.Pods) >= n && s.Running() >= n }); err != nil {
		return r, fmt.Errorf("wait until all containers run: %w", err)
	}
	at, err := a.Await(ctx, 20*time.Millisecond, func(c rig.Counts) bool { return c.Running >= n })
	if err != nil {
		return r, err
	}
	r.reported = at.Sub(began)
	if r.cpu, err = report.CPUTime(a.PID); err != nil {
		return r, err
	}
	if r.Rest, err = report.MeasureRest(ctx, a.PID, o.Idle); err != nil || a.Address == "" {
		return r, err
	}
	for range servedLists {
		if err := a.List(ctx); err != nil {
			return r, err
		}
	}
	after, err := report.MemoryOf(a.PID)
	r.served = after.RSS - r.Memory.RSS
	return r, err
}

// serve starts the in-memory runtime and waits for its socket.
func (o Options) serve(ctx context.Context, socket string) (stop func() error, err error) {
	cmd := exec.Command(o.MemCRI[0], append(append([]string(nil), o.MemCRI[1:]...), socket)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the in-memory runtime: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return <-exited
	}
	for {
		if _, err := os.Stat(socket); err == nil {
			return stop, nil
		}
		select {
		case err := <-exited:
			return nil, fmt.Errorf("the in-memory runtime ended: %w", err)
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Lists of so many pods are served so often.
const (
	servedPods  = 100
	servedLists = 10_000
	goalServed  = 5 << 20
)

// Goals for 500 pods; 2,000 may cost as much as goalFactor times that.
const (
	goalPods       = 500
	goalManyPods   = 2000
	goalReported   = 3 * time.Second
	goalCPU        = 5 * time.Second
	goalMillicores = 5
	goalRSS        = 70 << 20
	goalFactor     = 4.5
)

func table(agent string, results []result) report.Table {
	t := report.Table{
		Title:   agent + " alone, on an in-memory runtime: from the first manifest until all pods are reported Running, and at rest after",
		Columns: []string{"pods", "reported", "CPU until then", "idle CPU", "RSS", "PSS", "goal", ""},
	}
	for _, r := range results {
		row := []string{
			strconv.Itoa(r.n), report.Duration(r.reported), fmt.Sprintf("%.2f CPU-s", r.cpu.Seconds()),
			report.Millicores(r.CPU, r.While), report.MiB(r.Memory.RSS), report.MiB(r.Memory.PSS),
		}
		if factor, ok := map[int]float64{goalPods: 1, goalManyPods: goalFactor}[r.n]; ok && agent == "deckhand" {
			row = append(row, goal(factor), report.Result(meets(r, factor)))
		}
		t.Add(row...)
	}
	return t
}

func goal(factor float64) string {
	return fmt.Sprintf("< %.1f s, %.1f CPU-s, %.1f mcores, %.0f MiB", factor*goalReported.Seconds(), factor*goalCPU.Seconds(),
		factor*goalMillicores, factor*goalRSS/(1<<20))
}

func meets(r result, factor float64) bool {
	return float64(r.reported) < factor*float64(goalReported) &&
		float64(r.cpu) < factor*float64(goalCPU) &&
		1000*float64(r.CPU) < factor*goalMillicores*float64(r.While) &&
		float64(r.Memory.RSS) < factor*goalRSS
}
