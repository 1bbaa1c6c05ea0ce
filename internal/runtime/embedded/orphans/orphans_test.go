package orphans_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	sandboxes "github.com/containerd/containerd/api/services/sandbox/v1"
	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/embeddedtest"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/remains"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// host is a running containerd with a sweeper of its own; the runtime's doesn't run.
type host struct {
	*embeddedtest.Instance
	*orphans.Sweeper
	layout layout.Layout
	cri    cri.RuntimeServiceClient
	// gate is a FIFO: while it is there, runc creates no container, or has created
	// it and doesn't end, until somebody writes to it.
	gate string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir() // Before Prepare, whose take-down still needs it.
	in := embeddedtest.Prepare(t)
	h := &host{Instance: in, gate: filepath.Join(dir, "gate")}
	runc := fmt.Sprintf(`#!/bin/sh
case " $* " in *' create '*)
	%[1]s "$@" || exit
	[ ! -e %[2]s ] || read x <%[2]s
	exit 0
esac
exec %[1]s "$@"
`, filepath.Join(embeddedtest.Bin(t), "runc"), h.gate)
	if err := os.WriteFile(filepath.Join(dir, "runc"), []byte(runc), 0o755); err != nil {
		t.Fatal(err)
	}
	in.Config.BinDirs = append([]string{dir}, in.Config.BinDirs...)
	in.Launch(t)
	in.StopRun(t)
	var err error
	if h.layout, err = in.Config.Layout(); err != nil {
		t.Fatal(err)
	}
	h.Sweeper = orphans.New(h.layout, func() (*grpc.ClientConn, error) { return embedded.Dial(in.Config) }, logr.Discard())
	h.cri = cri.NewRuntimeServiceClient(in.Connect(t))
	return h
}

func (h *host) close(t *testing.T) {
	t.Helper()
	if err := unix.Mkfifo(h.gate, 0o600); err != nil {
		t.Fatal(err)
	}
}

// open returns when runc waits at the gate, which is open now.
func (h *host) open(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(h.gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.gate); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// look looks at the given time after the first look, and says whether it has to
// look again.
func (h *host) look(t *testing.T, after time.Duration, again bool) {
	t.Helper()
	got, err := h.Look(t.Context(), time.Unix(1000, 0).Add(after))
	if err != nil {
		t.Fatal(err)
	}
	if got != again {
		t.Errorf("after %v the sweeper wants to look again: %v", after, got)
	}
}

// shims are the shims that run for this containerd, by ID.
func (h *host) shims(t *testing.T) map[string]remains.Shim {
	t.Helper()
	list, err := remains.Shims(h.layout.Socket())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]remains.Shim{}
	for _, s := range list {
		found[s.ID] = s
	}
	return found
}

// mounts are the mount points with text in them.
func mounts(t *testing.T, text string) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range bytes.Lines(table) {
		if bytes.Contains(line, []byte(text)) {
			found = append(found, string(line))
		}
	}
	return found
}

// gone checks that nothing of the sandbox is left.
func (h *host) gone(t *testing.T, id string) {
	t.Helper()
	if s, ok := h.shims(t)[id]; ok {
		t.Errorf("the shim %d of %s still runs", s.PID, id)
	}
	for _, m := range mounts(t, id) {
		t.Errorf("still mounted: %s", m)
	}
	for _, dir := range h.layout.Of(id) {
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
	cgroups, err := filepath.Glob("/sys/fs/cgroup/*" + h.CgroupRoot + "/kubepods/*/" + id)
	if err != nil || len(cgroups) > 0 {
		t.Errorf("still there: %q, error %v", cgroups, err)
	}
}

func (h *host) runs(t *testing.T, pod embeddedtest.Pod) {
	t.Helper()
	status, err := h.cri.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: pod.Container})
	if err != nil || status.GetStatus().GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the live pod's container is %v, error %v", status.GetStatus().GetState(), err)
	}
	if s, ok := h.shims(t)[pod.Sandbox]; !ok || !s.Lives() {
		t.Error("the live pod's shim is gone")
	}
}

func randomID() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // Never fails.
	return hex.EncodeToString(raw)
}

// stray starts something that looks like a shim, with a child.
func stray(t *testing.T, id, socket string) remains.Process {
	t.Helper()
	cmd := exec.Command("/bin/sh")
	cmd.Args = []string{"containerd-shim-runc-v2", "-c", "echo; sleep 1000 & wait", "-namespace", "k8s.io", "-id", id, "-address", socket}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // It is killed.
	}()
	// Only now it is the shell.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	shims, err := remains.Shims(socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shims {
		if s.ID == id {
			t.Cleanup(func() {
				children, err := remains.Descendants(s.Process)
				if err != nil {
					t.Error(err)
				}
				if err := remains.Kill(append(children, s.Process)); err != nil {
					t.Error(err)
				}
				<-ended
			})
			return s.Process
		}
	}
	t.Fatal("the stray shim isn't found")
	return remains.Process{}
}

// A shim with a foreign ID is swept when it was unknown twice, with what it
// started and mounted; a live pod and others' shims are left alone.
func TestStrayShim(t *testing.T) {
	h := newHost(t)
	pod := h.RunPod(t, "live", nil)
	id := randomID()
	ours := stray(t, id, h.layout.Socket())
	others := []remains.Process{
		stray(t, randomID(), h.layout.Socket()+"x"),
		stray(t, "../../root", h.layout.Socket()),
	}
	children, err := remains.Descendants(ours)
	if err != nil || len(children) == 0 {
		t.Fatalf("the stray shim has the children %v, error %v", children, err)
	}
	rootfs := filepath.Join(h.layout.Bundles(), id, "rootfs")
	if err := os.MkdirAll(rootfs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", rootfs, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}

	h.look(t, 0, true)
	h.look(t, orphans.Patience-time.Second, false)
	if !ours.Lives() {
		t.Fatal("a shim was killed that had been unknown for less than it takes")
	}
	h.look(t, orphans.Patience, false)
	h.gone(t, id)
	for _, p := range append(children, ours) {
		if p.Lives() {
			t.Errorf("process %d still runs", p.PID)
		}
	}
	for _, p := range others {
		if !p.Lives() {
			t.Error("someone else's process was killed")
		}
	}
	h.look(t, time.Hour, false)
	h.runs(t, pod)
}

// run calls RunPodSandbox and returns when the sandbox's shim runs and runc is
// held up by the gate.
func (h *host) run(ctx context.Context, t *testing.T, name string) (id string, answer chan error) {
	t.Helper()
	before := h.shims(t)
	answer = make(chan error, 1)
	config := h.SandboxConfig(name, nil)
	if err := os.MkdirAll(config.GetLogDirectory(), 0o755); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := h.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
		answer <- err
	}()
	await(t, "runc waits at the gate", func() bool {
		for now, shim := range h.shims(t) {
			if _, ok := before[now]; ok {
				continue
			}
			started, err := remains.Descendants(shim.Process)
			if err == nil && len(started) > 0 {
				id = now
				return true
			}
		}
		return false
	})
	return id, answer
}

// stored is how many sandboxes containerd has stored, those under way included.
func (h *host) stored(t *testing.T) int {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	list, err := sandboxes.NewStoreClient(h.Connect(t)).List(ctx, &sandboxes.StoreListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.GetList())
}

// await asks again and again: for what another process does there is no event.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// However long creating a sandbox takes, its shim isn't an orphan.
func TestSandboxUnderCreation(t *testing.T) {
	h := newHost(t)
	h.close(t)
	id, answer := h.run(t.Context(), t, "slow")
	h.look(t, 0, false)
	h.look(t, time.Hour, false)
	h.open(t)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	h.look(t, 2*time.Hour, false)
	status, err := h.cri.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil || status.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox is %v, error %v", status.GetStatus().GetState(), err)
	}
}

// lose asks for a sandbox and goes away in the moment when runc has created its
// container. It returns when containerd is done with that.
func (h *host) lose(t *testing.T, name string, after time.Duration) {
	t.Helper()
	h.close(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, answer := h.run(ctx, t, name)
	h.open(t)
	time.Sleep(after)
	cancel()
	<-answer
	await(t, "containerd is done with the sandbox", func() bool {
		list, err := h.cri.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
		if err != nil {
			t.Fatal(err)
		}
		// As an agent does with sandboxes that it didn't get.
		for _, s := range list.GetItems() {
			if s.GetMetadata().GetName() != name {
				continue
			}
			if _, err := h.cri.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: s.GetId()}); err != nil {
				t.Log(err)
			}
		}
		return h.stored(t) == 1
	})
}

// The leak itself: the caller goes away while a sandbox is being created.
func TestCallerGoesAway(t *testing.T) {
	h := newHost(t)
	pod := h.RunPod(t, "live", nil)
	n:=0
	for i := range 60 {
		h.lose(t, fmt.Sprint("lost-", i), time.Duration(i) * 100 * time.Microsecond)
		left := h.shims(t)
		delete(left, pod.Sandbox)
		if len(left)>n {
			t.Log("lost at", i, left)
			for id := range left { t.Log(mounts(t,id)) }
			n = len(left)
		}
	}
	text, _ := os.ReadFile(h.layout.Log())
	t.Log(string(text))
}
