package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// execEnd is how a command in a container ended.
type execEnd struct {
	// timeout is that of the call, in seconds.
	timeout int64
	// running says that its container ran on.
	running bool
}

// newHookRig is a rig whose runtime tells how commands in containers end.
func newHookRig(t *testing.T) (*rig, <-chan execEnd) {
	t.Helper()
	r := prepareRig(t, "")
	ends := make(chan execEnd, 100)
	watch := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		resp, err := next(ctx, req)
		if q, ok := req.(*runtimeapi.ExecSyncRequest); ok {
			end := execEnd{timeout: q.Timeout}
			for _, c := range r.Containers() {
				end.running = end.running || c.Id == q.ContainerId && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
			}
			ends <- end
		}
		return resp, err
	}
	socket, err := net.Listen("unix", r.path("cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(r.Unary, watch), grpc.ChainStreamInterceptor(r.Stream))
	runtimeapi.RegisterRuntimeServiceServer(server, r.Node)
	runtimeapi.RegisterImageServiceServer(server, r.Images)
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	t.Cleanup(func() {
		r.stop()
		r.EndStreams()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r, ends
}

const hookedSpec = `  terminationGracePeriodSeconds: %d
  containers:
  - {name: main, image: "IMAGE", command: [ignore-term], lifecycle: {preStop: {exec: {command: [drain]}}}}
`

// A preStop hook isn't given a time: it ends with its container, which is killed after the grace and 2 s.
func TestPreStopHookEndsWithItsContainer(t *testing.T) {
	r, ends := newHookRig(t)
	r.SetExec(func(*runtimeapi.ContainerStatus, []string) memcri.ExecResult {
		return memcri.ExecResult{Takes: time.Hour}
	})
	r.up()
	r.want("a", fmt.Sprintf(hookedSpec, 1))
	r.await("up", r.running("a/main"))
	r.unwant("a")
	r.await("gone", r.nothing("a"))
	if end := <-ends; end.running || end.timeout != 0 {
		t.Errorf("the hook ended before its container, or had a time-out: %+v", end)
	}
}

// An agent that ends waits for no hook, and leaves none behind.
func TestPreStopHookEndsWithTheAgent(t *testing.T) {
	r, ends := newHookRig(t)
	r.SetExec(func(*runtimeapi.ContainerStatus, []string) memcri.ExecResult {
		return memcri.ExecResult{Takes: time.Hour}
	})
	r.up()
	r.want("a", fmt.Sprintf(hookedSpec, 3600))
	r.await("up", r.running("a/main"))
	r.unwant("a")
	if err := r.AwaitCalls(t.Context(), "ExecSync", 1); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if end := <-ends; !end.running {
		t.Error("the container was killed")
	}
}

// What hooks and probes print may be a secret: a probe's event has it, as a kubelet's does, and nothing else.
func TestOutputOfCommandsIsKeptToEvents(t *testing.T) {
	const canary = "SECRET-CANARY"
	r, _ := newHookRig(t)
	r.SetExec(func(*runtimeapi.ContainerStatus, []string) memcri.ExecResult {
		return memcri.ExecResult{Stdout: canary, Stderr: canary, Code: 3}
	})
	var mu sync.Mutex
	var log strings.Builder
	r.log = funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(&log, prefix, args)
	}, funcr.Options{Verbosity: 10})
	r.up()
	r.want("a", `  terminationGracePeriodSeconds: 30
  containers:
  - {name: started, image: "IMAGE", lifecycle: {postStart: {exec: {command: [warm-up]}}}}
  - {name: probed, image: "IMAGE", readinessProbe: {exec: {command: [check]}, periodSeconds: 1, failureThreshold: 1}, lifecycle: {preStop: {exec: {command: [drain]}}}}
  - {name: sick, image: "IMAGE", livenessProbe: {exec: {command: [check]}, periodSeconds: 1, failureThreshold: 1}}
`)
	client := r.client()
	told := func(reason, message string) {
		t.Helper()
		r.await(reason, func() string {
			list, err := client.Events(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if strings.Contains(e.Message, canary) && e.Reason != "Unhealthy" {
					t.Errorf("an event tells it: %+v", e)
				}
				if e.Reason == reason && e.Message == message {
					return ""
				}
			}
			return fmt.Sprintf("no %q", message)
		})
	}
	told("FailedPostStartHook", `PostStartHook failed: command "warm-up" exited with 3`)
	told("Unhealthy", "Readiness probe failed: "+canary+canary)
	told("Unhealthy", "Liveness probe failed: "+canary+canary)
	r.awaitPod("a", func(v local.PodView) string {
		if !strings.Contains(v.Waiting(), "its readiness probe fails") || !strings.Contains(v.Waiting(), `: command "check" exited with 3`) {
			return v.Waiting()
		}
		return ""
	})
	where := map[string]string{}
	for name, ask := range map[string]func() (any, error){
		"snapshot": func() (any, error) { return client.Snapshot(t.Context()) },
		"why":      func() (any, error) { return client.Why(t.Context(), "default", "a-n") },
		"journal": func() (any, error) {
			body, err := client.Journal(t.Context(), "default", "a-n", false)
			if err != nil {
				return nil, err
			}
			defer body.Close()
			text, err := io.ReadAll(body)
			return string(text), err
		},
	} {
		got, err := ask()
		if err != nil {
			t.Fatal(name, err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(name, err)
		}
		where[name] = string(text)
	}
	r.unwant("a")
	told("FailedPreStopHook", `PreStopHook failed: command "drain" exited with 3`)
	r.await("gone", r.nothing("a"))
	r.stop()
	where["log"] = log.String()
	err := filepath.WalkDir(r.path("root"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		where[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range where {
		if strings.Contains(text, canary) {
			t.Errorf("%s has what a command printed", name)
		}
	}
	for _, name := range []string{"snapshot", "why", "journal", "log"} {
		if !strings.Contains(where[name], "exited with 3") {
			t.Errorf("%s doesn't say what happened", name)
		}
	}
}
