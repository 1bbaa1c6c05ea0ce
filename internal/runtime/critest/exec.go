package critest

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// exec runs the program with other words in a container; timeout is in seconds.
func (f *fixture) exec(id string, timeout int64, words ...string) (*runtimeapi.ExecSyncResponse, error) {
	return f.runtime.ExecSync(f.ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: append(append([]string(nil), f.Program...), words...), Timeout: timeout,
	})
}

func testExec(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "sleep", "1h")
	for _, want := range []int32{0, 7} {
		r, err := f.exec(id, 20, "exit", map[int32]string{0: "0", 7: "7"}[want])
		if err != nil || r.GetExitCode() != want {
			t.Errorf("a command that exits with %d: code %d (%v)", want, r.GetExitCode(), err)
		}
	}
	r, err := f.exec(id, 20, "logs", "3")
	if err != nil || string(r.GetStdout()) != "line 1\nline 3\n" || string(r.GetStderr()) != "line 2\n" {
		t.Errorf("its output is %q and %q (%v), want lines 1 and 3, and line 2", r.GetStdout(), r.GetStderr(), err)
	}
	_, err = f.runtime.ExecSync(f.ctx,
		&runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{missing}, Timeout: 20})
	wantCode(t, "a command that is missing", err, codes.Unknown)
	f.stopContainer(t, id, 0)
	_, err = f.exec(id, 1, "exit", "0")
	wantError(t, "a command in an exited container", err)
}

// A canceled command is killed, and its container continues.
func testExecTimeout(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "sleep", "1h")
	began := time.Now()
	_, err := f.exec(id, 1, "exit", "0", "60s")
	wantCode(t, "a command that takes longer than its timeout", err, codes.DeadlineExceeded)
	if took := time.Since(began); took < time.Second || took > 20*time.Second {
		t.Errorf("a command with a timeout of 1s was given up after %s", took)
	}
	wantState(t, f.containerStatus(t, id), runtimeapi.ContainerState_CONTAINER_RUNNING)
}

// A command's output is returned completely, or not at all.
func testExecOutput(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.start(t, "main", "sleep", "1h")
	r, err := f.exec(id, 20, "burst", "1000000")
	if err != nil || len(r.GetStdout()) != 1000000 || strings.Trim(string(r.GetStdout()), "x\n") != "" {
		t.Errorf("of 1,000,000 bytes %d arrived (%v)", len(r.GetStdout()), err)
	}
	_, err = f.exec(id, 20, "burst", "17000000")
	wantCode(t, "a command that prints more than a message holds", err, codes.ResourceExhausted)
}

// A command is killed at the end of its container, like everything else in it.
func testExecEndsWithContainer(t *testing.T, f *fixture) {
	p := f.runPod(t)
	id := p.startReady(t, "main", "ignore-term")
	type outcome struct {
		code int32
		err  error
	}
	ended := make(chan outcome, 1)
	go func() {
		r, err := f.exec(id, 60, "sleep", "60s")
		ended <- outcome{r.GetExitCode(), err}
	}()
	time.Sleep(200 * time.Millisecond) // no event reports that the command runs
	f.stopContainer(t, id, 0)
	select {
	case o := <-ended:
		// The call may also have failed because the container was already stopped.
		if o.err == nil && o.code != 137 {
			t.Errorf("the command ended with %d, want 137", o.code)
		}
	case <-time.After(patience):
		t.Error("the command outlives its container")
	}
}
