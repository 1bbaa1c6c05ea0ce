package rotate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// runtimeClient reopens logs by plain CRI calls.
type runtimeClient struct{ cri.RuntimeServiceClient }

func (r runtimeClient) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := r.RuntimeServiceClient.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// TestNumberedLinesOfContainerd: the lines that a real container prints to both of its
// streams at full speed, each once, to a follower and to a reader afterwards.
func TestNumberedLinesOfContainerd(t *testing.T) {
	const lines = 150_000
	in := embeddedtest.Start(t)
	client := runtimeClient{cri.NewRuntimeServiceClient(in.Connect(t))}
	pod := in.RunPod(t, "logs", nil, "logs", fmt.Sprint(lines))
	path := filepath.Join(in.PodLogs, "default_logs_"+pod.UID, "web", "0.log")
	running := &containers{list: []Container{{ID: pod.Container, Pod: "default/logs", Name: "web", Path: path}}}
	rotator := New(Config{Root: in.PodLogs, MaxSize: 256 << 10, MaxFiles: 100, Interval: 20 * time.Millisecond, Workers: 1}, running, client, noWrites{}, logr.Discard())
	ctx, stop := context.WithCancel(t.Context())
	reader := logs.New(in.PodLogs, filewatch.New(filewatch.Every, logr.Discard()), logr.Discard())
	log := logs.Log{Namespace: "default", Pod: "logs", UID: "uid-logs", Container: "web"}
	l := &life{changed: make(chan struct{})}
	var followed bytes.Buffer
	var group sync.WaitGroup
	group.Go(func() {
		if err := rotator.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	group.Go(func() {
		defer stop()
		if err := reader.Copy(t.Context(), &followed, logs.Request{Log: log, Options: logs.Options{Follow: true, Tail: -1}}, l); err != nil {
			t.Errorf("follow: %v", err)
		}
	})
	awaitEnd(t, client, pod.Container)
	l.end()
	group.Wait()
	expectNumbers(t, "follow", &followed, lines)
	var afterwards bytes.Buffer
	if err := reader.Copy(t.Context(), &afterwards, logs.Request{Log: log, Options: logs.Options{Tail: -1}}, nil); err != nil {
		t.Fatal(err)
	}
	expectNumbers(t, "read afterwards", &afterwards, lines)
	if files := names(t, path); len(files) < 2 {
		t.Errorf("the log was never rotated: %v", files)
	}
}

// awaitEnd waits until a container has exited.
func awaitEnd(t *testing.T, client runtimeClient, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		status, err := client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		if status.GetStatus().GetState() == cri.ContainerState_CONTAINER_EXITED {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// expectNumbers demands each number once. The streams come to the log by two ways, so
// only those of one stream are in order.
func expectNumbers(t *testing.T, who string, text *bytes.Buffer, n int) {
	t.Helper()
	var got []int
	last := [2]int{}
	in := bufio.NewScanner(text)
	for in.Scan() {
		var i int
		if _, err := fmt.Sscanf(in.Text(), "line %d", &i); err != nil {
			t.Fatalf("%s: %q", who, in.Text())
		}
		if i < last[i%2] {
			t.Fatalf("%s: %d comes after %d", who, i, last[i%2])
		}
		last[i%2] = i
		got = append(got, i)
	}
	slices.Sort(got)
	if unique := len(slices.Compact(slices.Clone(got))); len(got) != n || unique != n {
		t.Errorf("%s: %d lines, %d of them different, want %d", who, len(got), unique, n)
	}
}
