package observed_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// host is a store at work on a real containerd.
type host struct {
	t        *testing.T
	in       *embeddedtest.Instance
	conn     *cri.Conn
	store    *observed.Store
	settings translate.Settings
	wakes    chan types.UID
}

func newHost(t *testing.T) *host {
	in := embeddedtest.Start(t)
	conn, err := cri.Dial(t.Context(), cri.Options{Endpoint: in.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, in: in, conn: conn, wakes: make(chan types.UID, 1000), settings: translate.Settings{PodLogsDir: in.PodLogs, MemoryCapacity: 1 << 33}}
	log := funcr.New(func(_, args string) { t.Log(args) }, funcr.Options{})
	h.store = observed.New(conn, observed.Options{Log: log, Wake: func(uid types.UID) { h.wakes <- uid }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		conn.Close()
	})
	<-h.store.Synced()
	return h
}

// await waits, driven by wake-ups alone, until the pod is as wanted.
func (h *host) await(uid types.UID, what string, ok func(*pod.Observed) bool) {
	h.t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok(h.store.Get(uid)) {
		select {
		case <-h.wakes:
		case <-deadline:
			h.t.Fatalf("pod %s isn't %s: %+v", uid, what, h.store.Get(uid))
		}
	}
}

// run makes a pod with one container of the web image as the agent would, telling the store nothing.
func (h *host) run(name string, args ...string) (uid types.UID, sandbox, container string) {
	h.t.Helper()
	ctx := h.t.Context()
	grace := int64(30)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{
				Name: "web", Image: embeddedtest.WebImage, Args: args,
				TerminationMessagePath: "/dev/termination-log",
			}},
		},
		Status: v1.PodStatus{QOSClass: v1.PodQOSBestEffort},
	}
	logs := filepath.Join(layout.PodDir(h.settings.PodLogsDir, layout.Pod{UID: p.UID, Name: name, Namespace: "default"}), "web")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		h.t.Fatal(err)
	}
	sbConf, err := translate.SandboxConfig(&h.settings, translate.SandboxInput{Pod: p, CgroupParent: h.in.CgroupRoot + "/kubepods/besteffort/pod" + string(p.UID)})
	if err != nil {
		h.t.Fatal(err)
	}
	if sandbox, err = h.conn.RunPodSandbox(ctx, sbConf, ""); err != nil {
		h.t.Fatal(err)
	}
	conf, err := translate.ContainerConfig(&h.settings, translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Attempt: 3,
		ImageRef: embeddedtest.WebImage, Backoff: 20 * time.Second})
	if err != nil {
		h.t.Fatal(err)
	}
	if container, err = h.conn.CreateContainer(ctx, sandbox, conf, sbConf); err != nil {
		h.t.Fatal(err)
	}
	if err := h.conn.StartContainer(ctx, container); err != nil {
		h.t.Fatal(err)
	}
	return p.UID, sandbox, container
}

func inState(s pod.ContainerState) func(*pod.Observed) bool {
	return func(o *pod.Observed) bool {
		c := o.Newest("web")
		return c != nil && c.State == s
	}
}

func TestContainerdReportsByItself(t *testing.T) {
	h := newHost(t)
	uid, sandbox, id := h.run("one", "exit", "3", "100ms")
	h.await(uid, "running", func(o *pod.Observed) bool { return inState(pod.ContainerRunning)(o) || inState(pod.ContainerExited)(o) })
	o := h.store.Get(uid)
	if o.Name != "one" || o.Namespace != "default" || len(o.Sandboxes) != 1 || len(o.Sandboxes[0].IPs) == 0 || o.Sandboxes[0].State != pod.SandboxReady {
		t.Errorf("%+v", o)
	}
	h.await(uid, "ended", inState(pod.ContainerExited))
	c := h.store.Get(uid).Containers[0]
	if c.ID != id || c.SandboxID != sandbox || c.ExitCode != 3 || c.Attempt != 3 || c.Backoff != 20*time.Second || c.Grace == nil || *c.Grace != 30 ||
		c.Image != embeddedtest.WebImage || c.ImageRef == "" || c.FinishedAt.Before(c.StartedAt) || c.StartedAt.IsZero() || c.Reason != "Error" || c.Hash == "" {
		t.Errorf("%+v", c)
	}
	if want := filepath.Join(h.in.PodLogs, "default_one_uid-one", "web", "3.log"); c.LogPath != want {
		t.Errorf("log at %s, want %s", c.LogPath, want)
	}
	before := *h.store.Get(uid)
	if err := h.store.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := h.store.Get(uid); after.Containers[0] != before.Containers[0] || len(after.Sandboxes) != 1 {
		t.Errorf("a list tells otherwise than the events:\n%+v\n%+v", before, *after)
	}
	if err := h.conn.RemovePodSandbox(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	h.await(uid, "gone", func(o *pod.Observed) bool { return o == nil })
}

func TestContainerdKilled(t *testing.T) {
	h := newHost(t)
	uid, _, _ := h.run("stays", "sleep", "1h")
	short, shortSandbox, shortID := h.run("ends", "exit", "5", "100ms")
	h.await(uid, "running", inState(pod.ContainerRunning))
	if err := syscall.Kill(h.in.Runtime.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.await(short, "ended", inState(pod.ContainerExited))
	// An end that nobody saw costs the exit code (containerd then says 255, "Unknown"): what containerd tells is right.
	st, err := h.conn.ContainerStatus(t.Context(), shortID)
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := translate.ContainerStatus(st, shortSandbox, "")
	if c := h.store.Get(short).Containers[0]; c.ExitCode != want.ExitCode || c.ExitCode == 0 || !c.FinishedAt.Equal(want.FinishedAt) || c.Reason != want.Reason {
		t.Errorf("have %+v\nwant %+v", c, want)
	}
	if c := h.store.Get(uid).Containers[0]; c.State != pod.ContainerRunning || c.Attempt != 3 {
		t.Errorf("%+v", c)
	}
	// Events flow again.
	again, _, _ := h.runUntil("again", "exit", "6")
	h.await(again, "ended", inState(pod.ContainerExited))
}

// runUntil is run, waiting for containerd first.
func (h *host) runUntil(name string, args ...string) (types.UID, string, string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	for {
		_, err := h.conn.Version(ctx)
		if err == nil {
			break
		}
		if !cri.IsUnavailable(err) {
			h.t.Fatal(err)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			h.t.Fatal("containerd doesn't come back")
		}
	}
	h.t.Logf("waited %s for containerd", time.Since(begin))
	return h.run(name, args...)
}
