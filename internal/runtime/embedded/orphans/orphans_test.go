package orphans_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func randomID() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // Never fails.
	return hex.EncodeToString(raw)
}

// stray starts something that looks like a shim, with a child.
func stray(t *testing.T, id, socket string) orphans.Process {
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
	shims, err := orphans.Shims(socket)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shims {
		if s.ID == id {
			t.Cleanup(func() {
				children, err := orphans.Descendants(s.Process)
				if err != nil {
					t.Error(err)
				}
				if err := orphans.Kill(append(children, s.Process)); err != nil {
					t.Error(err)
				}
				<-ended
			})
			return s.Process
		}
	}
	t.Fatal("the stray shim isn't found")
	return orphans.Process{}
}

// A shim with an unknown ID is swept when it was unknown twice, with what it
// started and mounted; a live pod, others' shims and the shim of a container that
// isn't the CRI's are left alone.
func TestStrayShim(t *testing.T) {
	h := newHost(t)
	pod := h.RunPod(t, "live", nil)
	id, foreign := randomID(), randomID()
	_, err := containers.NewContainersClient(h.Connect(t)).Create(namespaced(t), &containers.CreateContainerRequest{
		Container: &containers.Container{
			ID: foreign, Runtime: &containers.Container_Runtime{Name: "io.containerd.runc.v2"}, Spec: &anypb.Any{TypeUrl: "x"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ours := stray(t, id, h.layout.Socket())
	others := []orphans.Process{
		stray(t, randomID(), h.layout.Socket()+"x"),
		stray(t, "../../root", h.layout.Socket()),
		stray(t, foreign, h.layout.Socket()),
	}
	children, err := orphans.Descendants(ours)
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

// The leak itself, in both its forms: the caller goes away while a sandbox is
// being created.
func TestCallerGoesAway(t *testing.T) {
	h := newHost(t)
	pod := h.RunPod(t, "live", nil)
	before := h.snapshots(t)
	const calls = 20
	for i := range calls {
		h.lose(t, fmt.Sprint("lost-", i), time.Duration(i%10)*200*time.Microsecond)
	}
	lost := h.shims(t)
	delete(lost, pod.Sandbox)
	if len(lost) == 0 {
		t.Fatalf("containerd has lost no shim in %d calls: is this sweeper still needed?", calls)
	}
	t.Logf("%d shims lost, %d of them with a container", len(lost), len(h.containers(t))-2)
	h.look(t, 0, true)
	h.look(t, orphans.Patience, false)
	for id := range lost {
		h.gone(t, id)
	}
	if left := h.shims(t); len(left) != 1 {
		t.Errorf("the shims left are %v", left)
	}
	if left := h.containers(t); len(left) != 2 {
		t.Errorf("the containers left are %q, not those of the live pod", left)
	}
	if left := h.snapshots(t); len(left) != len(before) {
		t.Errorf("the snapshots left are %q, were %q", left, before)
	}
	h.look(t, time.Hour, false)
	h.runs(t, pod)
}
