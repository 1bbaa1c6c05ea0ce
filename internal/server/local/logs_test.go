package local_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

func writeLog(t *testing.T, root, name string, lines ...string) {
	t.Helper()
	dir := filepath.Join(root, "logs", "default_a_u1", "c")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, line := range lines {
		if _, err := f.WriteString("2026-01-02T03:04:05Z stdout F " + line + "\n"); err != nil {
			t.Fatal(err)
		}
	}
}

func request(change func(*local.LogRequest)) local.LogRequest {
	r := local.LogRequest{Namespace: "default", Pod: "a", Container: "c", Options: logs.Options{Tail: -1}}
	if change != nil {
		change(&r)
	}
	return r
}

func waiting(restarts int32, id, lastID string) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: "c", RestartCount: restarts, ContainerID: id,
		State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
	if lastID != "" {
		s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: lastID}
	}
	return s
}

func runningAfter(restarts int32) v1.ContainerStatus {
	s := running(restarts)
	s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: "x://dead"}
	return s
}

func previous(r *local.LogRequest) { r.Previous = true }

// Which instance's log is shown, with kubectl's meaning of "previous".
func TestLogsOfTheRightInstance(t *testing.T) {
	for name, tc := range map[string]struct {
		status  v1.ContainerStatus
		change  func(*local.LogRequest)
		want    string
		wantErr string
	}{
		"running":                      {runningAfter(1), nil, "log 1\n", ""},
		"before the running one":       {runningAfter(1), previous, "log 0\n", ""},
		"in back-off":                  {waiting(1, "x://1", "x://1"), nil, "log 1\n", ""},
		"previous in back-off":         {waiting(1, "x://1", "x://1"), previous, "log 1\n", ""},
		"made but not started":         {waiting(2, "x://2", "x://1"), nil, "log 1\n", ""},
		"never started":                {waiting(2, "", ""), nil, "", `container "c" in pod "a" is waiting to start: CrashLoopBackOff`},
		"no previous":                  {running(0), previous, "", `previous terminated container "c" in pod "a" not found`},
		"log removed":                  {running(7), nil, "", "the log of container c in pod a is gone"},
		"all":                          {runningAfter(1), func(r *local.LogRequest) { r.AllInstances = true }, "log 0\nlog 1\n", ""},
		"of a number":                  {runningAfter(1), func(r *local.LogRequest) { r.AtLeast = 1 }, "log 1\n", ""},
		"of a number that is too high": {runningAfter(1), func(r *local.LogRequest) { r.AtLeast = 2 }, "", "is gone"},
		"a number and previous":        {runningAfter(1), func(r *local.LogRequest) { r.AtLeast, r.Previous = 1, true }, "", "can't be combined"},
		"no such container":            {running(0), func(r *local.LogRequest) { r.Container = "x" }, "", `pod a has no container "x"`},
		"options come across":          {running(1), func(r *local.LogRequest) { r.Tail, r.LimitBytes, r.Timestamps = 1, 10, true }, "2026-01-02", ""},
		"previous and all contradict":  {running(0), func(r *local.LogRequest) { r.Previous, r.AllInstances = true, true }, "", "can't be combined"},
	} {
		t.Run(name, func(t *testing.T) {
			agent := localtest.New()
			agent.Update(set(view("a", tc.status)))
			client, root := serve(t, agent)
			writeLog(t, root, "0.log", "log 0")
			writeLog(t, root, "1.log", "log 1")
			text, err := client.Logs(t.Context(), request(tc.change))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("got error %v, want %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer text.Close()
			if got, err := io.ReadAll(text); err != nil || string(got) != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestFollowedLogEndsWithTheContainer(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a", running(0))))
	client, root := serve(t, agent)
	writeLog(t, root, "0.log", "first")
	text, err := client.Logs(t.Context(), request(func(r *local.LogRequest) { r.Follow = true }))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	expect(t, text, "first\n")
	writeLog(t, root, "0.log", "second")
	expect(t, text, "second\n")
	agent.Update(set(view("a", waiting(0, "x://0", "x://0"))))
	expectEnd(t, text)
	awaitNoWatchers(t, agent)
}

func TestFollowedLogOfAllInstancesEndsWithThePod(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a", waiting(0, "", ""))))
	client, root := serve(t, agent)
	writeLog(t, root, "0.log", "first")
	text, err := client.Logs(t.Context(), request(func(r *local.LogRequest) { r.Follow, r.AllInstances = true, true }))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	expect(t, text, "first\n")
	agent.Update(set(view("a", waiting(0, "x://0", "x://0"))))
	agent.Update(set(view("a", waiting(1, "x://1", "x://0"))))
	writeLog(t, root, "1.log", "second")
	agent.Update(set(view("a", runningAfter(1))))
	expect(t, text, "second\n")
	agent.Update(set())
	expectEnd(t, text)
}

func TestFollowedLogSaysWhenTheAgentStops(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a", running(0))))
	root := t.TempDir()
	listener, err := socket.Listen(local.SocketPath(root))
	if err != nil {
		t.Fatal(err)
	}
	stop := localtest.ServeOn(t, agent, listener, filepath.Join(root, "logs"))
	writeLog(t, root, "0.log", "first")
	text, err := local.NewClient(local.SocketPath(root)).Logs(t.Context(), request(func(r *local.LogRequest) { r.Follow = true }))
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	expect(t, text, "first\n")
	stop()
	if _, err := text.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %v, want that the agent stopped", err)
	}
}

func expect(t *testing.T, text io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(text, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func expectEnd(t *testing.T, text io.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(text); err != nil || len(rest) > 0 {
		t.Fatalf("got %q, %v, want the end", rest, err)
	}
}

// follow copies a followed log, and returns what was restarted.
func follow(t *testing.T, client *local.Client, r local.LogRequest) (out *io.PipeReader, restarted chan int, done chan error) {
	out, w := io.Pipe()
	restarted, done = make(chan int, 9), make(chan error, 1)
	go func() {
		done <- client.FollowLogs(t.Context(), r, w, func(instance int) { restarted <- instance })
		w.Close()
	}()
	t.Cleanup(func() { out.Close() })
	return out, restarted, done
}

func TestFollowingARestartingContainer(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a", running(0))))
	client, root := serve(t, agent)
	writeLog(t, root, "0.log", "first")
	out, restarted, done := follow(t, client, request(func(r *local.LogRequest) { r.LimitBytes = 15; r.Tail = 1 }))
	expect(t, out, "first\n")
	agent.Update(set(view("a", waiting(0, "x://0", "x://0"))))
	writeLog(t, root, "1.log", "second", "third")
	agent.Update(set(view("a", runningAfter(1))))
	expect(t, out, "second\nth")
	if n := <-restarted; n != 1 {
		t.Errorf("restarted as %d, want 1", n)
	}
	expectEnd(t, out)
	if err := <-done; err != nil {
		t.Error(err)
	}
	awaitNoWatchers(t, agent)
}

func TestFollowingEndsWithThePod(t *testing.T) {
	for name, end := range map[string]func(agent *localtest.Agent){
		"removed between two instances": func(agent *localtest.Agent) {
			agent.Update(set(view("a", waiting(0, "x://0", "x://0"))))
			agent.Update(set())
		},
		"removed while it runs": func(agent *localtest.Agent) { agent.Update(set()) },
	} {
		t.Run(name, func(t *testing.T) {
			agent := localtest.New()
			agent.Update(set(view("a", running(0))))
			client, root := serve(t, agent)
			writeLog(t, root, "0.log", "first")
			out, _, done := follow(t, client, request(nil))
			expect(t, out, "first\n")
			end(agent)
			expectEnd(t, out)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFollowingAPreviousInstanceEnds(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a", runningAfter(1))))
	client, root := serve(t, agent)
	writeLog(t, root, "0.log", "first")
	out, restarted, done := follow(t, client, request(previous))
	expect(t, out, "first\n")
	expectEnd(t, out)
	if err := <-done; err != nil || len(restarted) > 0 {
		t.Errorf("%v, restarted %d times", err, len(restarted))
	}
}
