// Package exec measures how long a command in a container takes through deckhand, beside plain CRI calls for the
// same (the floor), in one container of one containerd, in turns.
package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/bench/rig"
	"github.com/deckhand-node/deckhand/cmd/deckhand/command/streams"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

const (
	// goal is what deckhand has set out to reach, in times of the floor.
	goal = 1.1
	// patience is how long the pod may take to come up, and one command to end.
	patience = time.Minute
	// of the measured pod, on an agent of this node name
	namespace, pod, container = "default", "bench-0000-bench", "main"
)

// command is what is run. It prints itself.
var command = []string{"/web", "cat", "/proc/self/cmdline"}

// Options say what to measure.
type Options struct {
	// BinDir has deckhand, the runtime's programs and, in images, its images.
	BinDir string
	// Rounds is how often each way takes its turn; medians are reported.
	Rounds int
	// Out gets progress and tables.
	Out io.Writer
}

// A way has the command run.
type way struct {
	name string
	// more says that it does more than the floor, and so has no goal.
	more bool
	run  func(ctx context.Context, out io.Writer) error
	took []time.Duration
}

// Run measures and prints. It needs root and takes down all it made.
func Run(ctx context.Context, o Options) (err error) {
	st, err := rig.StartStage(ctx, o.BinDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	binary := filepath.Join(o.BinDir, "deckhand")
	a, err := rig.StartAgent(ctx, rig.AgentOptions{Binary: binary, Dir: st.Dir, Endpoint: st.Endpoint, CgroupRoot: st.CgroupRoot, Serve: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	cri := runtimeapi.NewRuntimeServiceClient(st.CRI)
	id, err := startPod(ctx, a, cri)
	if err != nil {
		return err
	}
	ways := ways(cri, id, a, binary)
	for round := range o.Rounds + 1 {
		for i := range ways {
			w := &ways[(i+round)%len(ways)] // none is always the one after the same other
			took, err := w.once(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 { // the first of each is slower
				w.took = append(w.took, took)
			}
		}
	}
	t := table(ways)
	_, err = t.WriteTo(o.Out)
	return err
}

// startPod has the agent start a pod, and returns the ID of its container.
func startPod(ctx context.Context, a *rig.Agent, cri runtimeapi.RuntimeServiceClient) (string, error) {
	if err := errors.Join(a.Stage(1, rig.Image, rig.Sleep()), a.Drop()); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := a.Await(ctx, 5*time.Millisecond, func(c rig.Counts) bool { return c.Ready == 1 }); err != nil {
		return "", err
	}
	r, err := cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil || len(r.GetContainers()) != 1 {
		return "", fmt.Errorf("find the container among %d: %w", len(r.GetContainers()), err)
	}
	return r.GetContainers()[0].GetId(), nil
}

// ways are the floor, which does what crictl does, and those through deckhand.
func ways(cri runtimeapi.RuntimeServiceClient, id string, a *rig.Agent, binary string) []way {
	query := url.Values{v1.ExecCommandParam: command, v1.ExecStdoutParam: {"1"}, v1.ExecStderrParam: {"1"}}
	served := &url.URL{Scheme: "https", Host: a.Address, Path: fmt.Sprintf("/exec/%s/%s/%s", namespace, pod, container), RawQuery: query.Encode()}
	client := &rest.Config{Host: served.Host, TLSClientConfig: rest.TLSClientConfig{Insecure: true}} // its certificate is its own
	socket := local.NewClient(a.Socket())
	return []way{
		{name: "CRI calls, SPDY", run: func(ctx context.Context, out io.Writer) error {
			r, err := cri.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: command, Stdout: true, Stderr: true})
			if err != nil {
				return err
			}
			at, err := url.Parse(r.GetUrl())
			if err != nil {
				return err
			}
			return stream(ctx, out)(remotecommand.NewSPDYExecutor(&rest.Config{Host: at.Host}, "POST", at))
		}},
		{name: "HTTPS, SPDY", run: func(ctx context.Context, out io.Writer) error {
			return stream(ctx, out)(remotecommand.NewSPDYExecutor(client, "POST", served))
		}},
		{name: "HTTPS, WebSocket", run: func(ctx context.Context, out io.Writer) error {
			return stream(ctx, out)(remotecommand.NewWebSocketExecutor(client, "GET", served.String()))
		}},
		{name: "local socket", run: func(ctx context.Context, out io.Writer) error {
			ends := streams.Ends{Out: out, Err: io.Discard}
			query := ends.Query()
			query[v1.ExecCommandParam] = command
			session, err := socket.Exec(ctx, namespace, pod, container, query, streams.Protocol)
			if err != nil {
				return err
			}
			return ends.Join(ctx, session)
		}},
		{name: "deckhand exec, the program's start included", more: true, run: func(ctx context.Context, out io.Writer) error {
			cmd := exec.CommandContext(ctx, binary, append([]string{"exec", "--root-dir", a.RootDir(), pod, "--"}, command...)...)
			cmd.Stdout = out
			return cmd.Run()
		}},
	}
}

// stream has the command run by what client-go makes for it.
func stream(ctx context.Context, out io.Writer) func(remotecommand.Executor, error) error {
	return func(e remotecommand.Executor, err error) error {
		if err != nil {
			return err
		}
		return e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: io.Discard})
	}
}

func (w *way) once(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out, want bytes.Buffer
	for _, arg := range command {
		want.WriteString(arg + "\x00")
	}
	began := time.Now()
	err := w.run(ctx, &out)
	took := time.Since(began)
	if err == nil && !bytes.Equal(out.Bytes(), want.Bytes()) {
		err = fmt.Errorf("the command printed %q", out.Bytes())
	}
	return took, err
}

// table compares the ways with the first.
func table(ways []way) report.Table {
	t := report.Table{Title: "A command in a container, until its exit code is known (medians)", Columns: []string{"", "took", "ratio", "goal", ""}}
	floor := report.Median(ways[0].took)
	for i, w := range ways {
		took := report.Median(w.took)
		row := []string{w.name, report.Duration(took)}
		if i > 0 {
			row = append(row, report.Ratio(took, floor))
		}
		if i > 0 && !w.more {
			row = append(row, fmt.Sprintf("≤ %.2fx", goal), report.Result(float64(took) <= goal*float64(floor)))
		}
		t.Add(row...)
	}
	return t
}
