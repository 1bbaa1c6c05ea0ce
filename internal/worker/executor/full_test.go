package executor

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// fullDisk is a runtime and a store of records on a disk that is full until a part of the reserve is given up.
type fullDisk struct {
	Runtime
	Observer
	Records
	reserve string
	did     []string
}

func (f *fullDisk) act(what string) error {
	f.did = append(f.did, what)
	if files, _ := filepath.Glob(filepath.Join(f.reserve, "*")); len(files) == 32 {
		return errors.New("rpc error: write: no space left on device")
	}
	return nil
}

func (f *fullDisk) StopPodSandbox(context.Context, string) error { return f.act("stop") }
func (f *fullDisk) PodSandboxStatus(context.Context, string) (*runtimeapi.PodSandboxStatus, error) {
	return &runtimeapi.PodSandboxStatus{}, nil
}
func (f *fullDisk) Save(types.UID, string, any, bool) error { return f.act("save") }
func (*fullDisk) RequestRefresh(types.UID)                  {}
func (*fullDisk) SandboxStopped(string)                     {}

// TestReserveIsGivenUp: what ends a pod gets the reserve of the disk, and nothing else does.
func TestReserveIsGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		action pod.Action
		did    []string
	}{
		"a stop":            {pod.Action{Kind: pod.StopSandbox, ID: "s"}, []string{"stop", "stop"}},
		"an end's record":   {pod.Action{Kind: pod.SaveCheckpoint, Checkpoint: &pod.Checkpoint{Termination: &pod.PodTermination{}}}, []string{"save", "save"}},
		"a final phase":     {pod.Action{Kind: pod.SaveCheckpoint, Checkpoint: &pod.Checkpoint{Terminal: v1.PodFailed}}, []string{"save", "save"}},
		"a final status":    {pod.Action{Kind: pod.SaveCheckpoint, Checkpoint: &pod.Checkpoint{Final: &v1.PodStatus{}}}, []string{"save", "save"}},
		"a deletion's time": {pod.Action{Kind: pod.SaveCheckpoint, Checkpoint: &pod.Checkpoint{EndBy: time.Unix(1, 0)}}, []string{"save", "save"}},
		"another record":    {pod.Action{Kind: pod.SaveCheckpoint, Checkpoint: &pod.Checkpoint{Ready: []string{"c"}}}, []string{"save"}},
	} {
		root := t.TempDir()
		reserve := room.NewReserve(root)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := reserve.Run(ctx); err != nil { // it makes the reserve, and ends
			t.Fatal(err)
		}
		reported := 0
		f := &fullDisk{reserve: filepath.Join(root, room.Dir)}
		r := New(Config{Runtime: f, Observer: f, Allocations: noAllocations{}, Cgroups: cgroupsOf{}, Records: f, Reserve: reserve, DiskFailed: func(error) { reported++ }, Parallel: 1, Log: logr.Discard(), Objects: seen{&sandboxWorld{}}})
		result := r.Do(t.Context(), nil, nil, "u", tc.action)
		if !slices.Equal(f.did, tc.did) || (result.Failure != nil) != (len(tc.did) == 1) {
			t.Errorf("%s: did %q, want %q; failure %+v", name, f.did, tc.did, result.Failure)
		}
		if reported > 0 != (result.Failure != nil) {
			t.Errorf("%s: %d failures were reported", name, reported)
		}
		if f := result.Failure; f != nil && !f.Disk {
			t.Errorf("%s: %+v isn't a disk's trouble", name, f)
		}
	}
}

// TestFullDiskInOthersWords: a full disk is known as such from whatever says so.
func TestFullDiskInOthersWords(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		disk bool
	}{
		"containerd": {errors.New("rpc error: code = Unknown desc = failed to write: No space left on device"), true},
		"a quota":    {errors.New("runc create failed: disk quota exceeded"), true},
		"a failure":  {&pod.Failure{Reason: pod.ReasonErrImagePull, Message: "failed to extract layer: no space left on device"}, true},
		"read-only":  {&fs.PathError{Op: "open", Path: "/x", Err: unix.EROFS}, true},
		"a disk's":   {&fs.PathError{Op: "write", Path: "/x", Err: unix.EIO}, true},
		"no program": {errors.New(`exec: "/no": no such file or directory`), false},
	} {
		if f := failure(pod.Action{Kind: pod.StartContainer}, tc.err); f.Disk != tc.disk {
			t.Errorf("%s: %+v, want a disk's trouble: %v", name, f, tc.disk)
		}
	}
}

// TestNoProcesses: if no process can be created, the action waits, whether the agent, the shim or runc reports that.
func TestNoProcesses(t *testing.T) {
	for text, want := range map[string]pod.WaitFor{
		"rpc error: code = Unknown desc = failed to start shim: fork/exec /bin/shim: resource temporarily unavailable": pod.WaitForProcesses,
		`run "x" in the container: unable to spawn stage-1: Resource temporarily unavailable`:                          pod.WaitForProcesses,
		"dial unix /run/x.sock: connect: resource temporarily unavailable":                                             "",
	} {
		for _, err := range []error{errors.New(text), &pod.Failure{Reason: pod.ReasonFailedMount, Message: text}} {
			if f := failure(pod.Action{Kind: pod.PreparePod}, err); f.Wait != want {
				t.Errorf("%v: waits for %q, want %q", err, f.Wait, want)
			}
		}
	}
	start := pod.Action{Kind: pod.StartContainer}
	if f := failure(start, redacted(errors.New("hunter2: fork/exec /x: resource temporarily unavailable"))); f.Wait != pod.WaitForProcesses || strings.Contains(f.Message, "hunter2") {
		t.Errorf("redacted: %+v", f)
	}
	if f := failure(start, redacted(errors.New("hunter2: no such file"))); f.Wait != "" || f.Message != translate.ErrRedacted.Error() {
		t.Errorf("redacted: %+v", f)
	}
	if f := failure(pod.Action{Kind: pod.AdmitPod}, &pod.Failure{Wait: pod.WaitForRoom}); f.Wait != pod.WaitForRoom {
		t.Errorf("waits for %q", f.Wait)
	}
}

// stuck is a runtime that stops a container, and can't note that.
type stuck struct {
	Runtime
	Observer
}

func (stuck) StopContainer(context.Context, string, time.Duration) error {
	return nil
}
func (stuck) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	return &runtimeapi.ContainerStatus{Id: id, State: runtimeapi.ContainerState_CONTAINER_RUNNING, Metadata: &runtimeapi.ContainerMetadata{Name: "web"},
		Labels: map[string]string{"io.kubernetes.pod.uid": "u", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "n", "io.kubernetes.container.name": "web"}}, nil
}
func (stuck) ContainerCreated(types.UID, string, string, pod.Container) {}
func (stuck) RequestRefresh(types.UID)                                  {}

// TestStopThatIsNotNoted: a runtime that can't write down that a container has stopped is asked again after a pause, not at once.
func TestStopThatIsNotNoted(t *testing.T) {
	r := New(Config{Runtime: stuck{}, Observer: stuck{}, Allocations: noAllocations{}, Cgroups: cgroupsOf{}, Parallel: 1, Log: logr.Discard(), Objects: seen{&sandboxWorld{}},
		Settings: func() *translate.Settings { return &translate.Settings{} }})
	result := r.Do(t.Context(), nil, nil, "u", pod.Action{Kind: pod.StopContainer, ID: "c", Container: "web"})
	if f := result.Failure; f == nil || !strings.Contains(f.Message, "still reports it as running") {
		t.Errorf("%+v", f)
	}
}

// stored has this checkpoint of each pod.
type stored struct {
	Records
	pod.Checkpoint
}

func (s stored) Load(_ types.UID, _ string, into any) (bool, error) {
	*into.(*pod.Checkpoint) = s.Checkpoint
	return true, nil
}

// TestCheckpointIsOnTheMonotonicClock: a pod's deadline, and the end of one that an earlier agent stopped, stay when the clock is set.
func TestCheckpointIsOnTheMonotonicClock(t *testing.T) {
	at := time.Now().Round(0)
	r := &Executor{cfg: Config{Records: stored{Checkpoint: pod.Checkpoint{EndBy: at.Add(time.Minute), DeadlineFrom: at.Add(-time.Minute), Termination: &pod.PodTermination{At: at}}}}}
	k := r.Checkpoint("u1")
	for got, want := range map[time.Time]time.Time{k.EndBy: at.Add(time.Minute), k.DeadlineFrom: at.Add(-time.Minute), k.Termination.At: at} {
		if got == got.Round(0) || !got.Equal(want) {
			t.Errorf("%v, want %v with a monotonic reading", got, want)
		}
	}
	r.cfg.Records = stored{Checkpoint: pod.Checkpoint{}}
	if k := r.Checkpoint("u1"); !k.EndBy.IsZero() || k.Termination != nil {
		t.Errorf("a pod that doesn't end has %+v", k)
	}
}
