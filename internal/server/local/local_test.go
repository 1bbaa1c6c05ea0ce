package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func view(name string, statuses ...v1.ContainerStatus) local.PodView {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u1"}}
	p.Status.Phase = v1.PodRunning
	p.Status.ContainerStatuses = statuses
	return local.PodView{Pod: p, Source: pod.SourceFile, Origin: "/m/" + name + ".yaml"}
}

func running(restarts int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: "c", RestartCount: restarts, ContainerID: fmt.Sprint("x://", restarts),
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func serve(t *testing.T, agent *localtest.Agent) (*local.Client, string) {
	t.Helper()
	root := localtest.Serve(t, agent)
	return local.NewClient(local.SocketPath(root)), root
}

func set(views ...local.PodView) func(*local.Snapshot) {
	return func(s *local.Snapshot) { s.Pods = views }
}

func TestAnswersComeAcrossWhole(t *testing.T) {
	agent := localtest.New()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var want local.Snapshot
	agent.Update(func(s *local.Snapshot) {
		*s = local.Snapshot{Node: "n1",
			Agent:    local.AgentInfo{Version: "v1", PID: 7, Started: at, Synced: true, RuntimeName: "containerd", RuntimeVersion: "2", RuntimeReady: true},
			Problems: []pod.Problem{{Source: pod.SourceFile, Origin: "/m/bad.yaml", Message: "is bad", Since: at}},
			Pods:     []local.PodView{view("a", running(1)), view("b")}}
		want = *s
	})
	agent.SetImages([]image.Image{{ID: "sha256:1", Refs: []string{"r:1"}, Digests: []string{"r@sha256:1"}, Size: 5, Pinned: true, UsedBy: []string{"default/a"}}})
	agent.SetEvents([]local.Event{{Seq: 1, Time: at, First: at, Type: "Warning", Reason: "BackOff", Namespace: "default", Object: "pod/a",
		UID: "u", Part: "spec.containers{main}", Component: "deckhand", Message: "m", Count: 2}})
	client, _ := serve(t, agent)
	got, err := client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot (-sent +received):\n%s", diff)
	}
	images, err := client.Images(t.Context())
	if err != nil || len(images) != 1 || !cmp.Equal(images[0].UsedBy, []string{"default/a"}) {
		t.Errorf("images: %+v, %v", images, err)
	}
	events, err := client.Events(t.Context())
	if err != nil || !cmp.Equal(events, agent.Events()) {
		t.Errorf("events: %+v, %v", events, err)
	}
}

func TestPodNameOfAnEvent(t *testing.T) {
	for _, c := range []struct {
		event local.Event
		name  string
		ok    bool
	}{
		{local.Event{Namespace: "default", Object: "pod/a"}, "a", true},
		{local.Event{Namespace: "default", Object: "secret/a"}, "secret/a", false},
		{local.Event{Object: "pod/a"}, "a", false}, // a manifest's path
	} {
		if name, ok := c.event.PodName(); ok != c.ok || ok && name != c.name {
			t.Errorf("%+v: %q, %v", c.event, name, ok)
		}
	}
}

func TestWatchEventsReportsOnlyWhatIsNew(t *testing.T) {
	agent := localtest.New()
	agent.SetEvents([]local.Event{{Seq: 7, Reason: "B"}, {Seq: 3, Reason: "A"}}) // A was seen last, but B was reported last
	client, _ := serve(t, agent)
	var got [][]local.Event
	for events, err := range client.WatchEvents(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			continue // woken for nothing
		}
		if got = append(got, events); len(got) == 2 {
			break
		}
		agent.SetEvents([]local.Event{{Seq: 7, Reason: "B"}, {Seq: 3, Reason: "A"}, {Seq: 8, Reason: "C"}})
	}
	want := [][]local.Event{{{Seq: 7, Reason: "B"}, {Seq: 3, Reason: "A"}}, {{Seq: 8, Reason: "C"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	awaitNoWatchers(t, agent)
}

func TestEmptySnapshot(t *testing.T) {
	client, _ := serve(t, localtest.New())
	got, err := client.Snapshot(t.Context())
	if err != nil || len(got.Pods) != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestWatchReportsChangesUntilLeft(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a")))
	client, _ := serve(t, agent)
	n := 0
	for snapshot, err := range client.Watch(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if len(snapshot.Pods) == 2 {
			break
		}
		agent.Update(set(view("a"), view("b")))
	}
	if n != 2 {
		t.Errorf("%d snapshots, want 2", n)
	}
	awaitNoWatchers(t, agent)
}

// Thousands of changes while a client doesn't read are one change when it does.
func TestWatchCoalescesForASlowReader(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a", running(0))))
	client, _ := serve(t, agent)
	n := 0
	for snapshot, err := range client.Watch(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			for i := range int32(5000) {
				agent.Update(set(view("a", running(i))))
			}
		}
		if snapshot.Pods[0].Pod.Status.ContainerStatuses[0].RestartCount == 4999 {
			break
		}
	}
	if n > 20 {
		t.Errorf("%d snapshots for 5000 changes at once", n)
	}
}

func TestAgentStopsInSpiteOfReadersThatDoNotRead(t *testing.T) {
	agent := localtest.New()
	agent.Update(func(s *local.Snapshot) { s.Node = strings.Repeat("n", 4<<20) })
	path := local.SocketPath(t.TempDir())
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := localtest.ServeOn(t, agent, listener, "")
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/watch HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	stop() // hangs if the blocked request isn't ended
	awaitNoWatchers(t, agent)
}

func TestWatchSaysWhenTheAgentStops(t *testing.T) {
	agent := localtest.New()
	path := local.SocketPath(t.TempDir())
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := localtest.ServeOn(t, agent, listener, "")
	client := local.NewClient(path)
	var last error
	for _, err := range client.Watch(t.Context()) {
		last = err
		stop()
	}
	if !errors.Is(last, local.ErrStopped) {
		t.Errorf("got %v, want ErrStopped", last)
	}
	_, err = client.Snapshot(t.Context())
	var none *local.NoAgentError
	if !errors.As(err, &none) || !strings.Contains(err.Error(), "--root-dir") {
		t.Errorf("after the agent's end: %v", err)
	}
}

func TestNoAgentAndCancelledContext(t *testing.T) {
	client := local.NewClient(local.SocketPath(t.TempDir()))
	_, err := client.Snapshot(t.Context())
	var none *local.NoAgentError
	if !errors.As(err, &none) || none.Path != client.Path() {
		t.Errorf("got %v, want a NoAgentError", err)
	}
	client, _ = serve(t, localtest.New())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range client.Watch(ctx) {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
		cancel()
	}
}

func TestListenReplacesADeadAgentsSocket(t *testing.T) {
	path := local.SocketPath(t.TempDir())
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	listener, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v, want a socket of mode 0600", info.Mode(), err)
	}
}

func TestListenLeavesOtherFilesAlone(t *testing.T) {
	path := local.SocketPath(t.TempDir())
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := socket.Listen(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatalf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file was harmed: %q, %v", text, err)
	}
}

func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := socket.Listen(local.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	localtest.ServeOn(t, localtest.New(), listener, "")
	if _, err := local.NewClient(local.SocketPath(dir)).Snapshot(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRunLastsAsLongAsItsClient(t *testing.T) {
	agent := localtest.New()
	run := localtest.NewRun("default", "job-n1")
	agent.OnRun = func(origin string, manifest []byte) (local.Run, error) {
		if origin != "/tmp/job.yaml" || string(manifest) != "kind: Pod" {
			t.Errorf("origin %q, manifest %q", origin, manifest)
		}
		return run, nil
	}
	client, _ := serve(t, agent)
	updates := 0
	for update, err := range client.Run(t.Context(), "/tmp/job.yaml", []byte("kind: Pod")) {
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(run.Names, update.Pods); diff != "" {
			t.Error(diff)
		}
		if updates++; len(update.Views) == 1 {
			break
		}
		mine, others := view("job-n1", running(0)), view("job-n1")
		mine.Source = pod.SourceRun
		if updates == 1 { // somebody else's pod of the name isn't the run's
			agent.Update(set(others))
		} else {
			agent.Update(set(mine, view("other")))
		}
	}
	if updates != 3 {
		t.Errorf("%d updates, want 3", updates)
	}
	<-run.Closed
}

func TestErrorsAreReturnedWithTheirStatus(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a", running(0))))
	agent.OnRun = func(string, []byte) (local.Run, error) {
		return nil, &local.StatusError{Code: http.StatusUnprocessableEntity, Err: errors.New("spec.containers: Required value")}
	}
	client, _ := serve(t, agent)
	var failures []error
	for _, err := range client.Run(t.Context(), "", nil) {
		failures = append(failures, err)
	}
	if len(failures) != 1 || failures[0].Error() != "spec.containers: Required value" {
		t.Errorf("run: %v", failures)
	}
	request := local.LogRequest{Namespace: "default", Pod: "none", Container: "c", Options: logs.Options{Tail: -1}}
	if _, err := client.Logs(t.Context(), request); !local.IsNotFound(err) {
		t.Errorf("log of no pod: %v", err)
	}
	request.Pod, request.Stream = "a", "Stdin"
	_, err := client.Logs(t.Context(), request)
	var status *local.StatusError
	if !errors.As(err, &status) || status.Code != http.StatusBadRequest {
		t.Errorf("bad stream: %v", err)
	}
}

func awaitNoWatchers(t *testing.T, agent *localtest.Agent) {
	t.Helper()
	for agent.Watchers() > 0 {
		if t.Context().Err() != nil {
			t.Fatal("the server still waits for changes for a client that went")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestAddContainer: what the client describes is what the agent gets; nothing else is taken.
func TestAddContainer(t *testing.T) {
	agent := localtest.New()
	var got v1.EphemeralContainer
	agent.OnAdd = func(pod types.NamespacedName, c v1.EphemeralContainer) error {
		if got = c; pod.String() != "default/web" {
			return &local.StatusError{Code: http.StatusConflict, Err: errors.New("it can't be added")}
		}
		return nil
	}
	path := local.SocketPath(localtest.Serve(t, agent))
	c := v1.EphemeralContainer{TargetContainerName: "main"}
	c.Name, c.Image, c.Command = "debugger", "tools:1", []string{"sh"}
	client, web := local.NewClient(path), types.NamespacedName{Namespace: "default", Name: "web"}
	if err := client.AddContainer(t.Context(), web, "u1", c); err != nil || !equality.Semantic.DeepEqual(got, c) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := client.AddContainer(t.Context(), types.NamespacedName{Namespace: "default", Name: "other"}, "", c); err == nil || err.Error() != "it can't be added" {
		t.Errorf("%v", err)
	}
	for name, request := range map[string]string{
		"an unknown field": `{"name": "a", "imagee": "b"}`, "no container": "", "too large": `{"name": "` + strings.Repeat("a", 1<<20) + `"}`,
	} {
		if code, answer := post(t, path, "/v1/pods/debug?pod=default/web", request); code != http.StatusBadRequest || !strings.Contains(answer, "read the container") {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	for _, query := range []string{"", "?pod=web", "?pod=a/b&pod=a/c"} {
		if code, answer := post(t, path, "/v1/pods/debug"+query, "{}"); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, code, answer)
		}
	}
}

// post sends a request as it is.
func post(t *testing.T, socket, path, body string) (code int, answer string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	response, err := client.Post("http://deckhand"+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
