package cri_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

func TestExecResults(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	var asked int64
	serve(t, socket, &runtimeServer{exec: func(_ context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		asked = r.Timeout
		switch r.Cmd[0] {
		case "slow":
			time.Sleep(time.Duration(r.Timeout) * time.Second) // as long as a command may take on the wire at least
			return nil, status.Error(codes.DeadlineExceeded, "too slow")
		case "other":
			return nil, status.Error(codes.DeadlineExceeded, "connect to the shim: context deadline exceeded")
		}
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("out"), Stderr: []byte("err"), ExitCode: 3}, nil
	}})
	c := dial(t, socket, nil)
	r, err := c.ExecSync(t.Context(), "id", []string{"false"}, 300*time.Millisecond)
	if err != nil || r.ExitCode != 3 || string(r.Stdout) != "out" || string(r.Stderr) != "err" {
		t.Fatalf("got %+v, %v", r, err)
	}
	if asked != 1 {
		t.Errorf("the runtime was given %d s; a part of a second must not become 0, which is no timeout", asked)
	}
	if _, err := c.ExecSync(t.Context(), "id", []string{"slow"}, time.Second); !cri.IsExecTimeout(err) {
		t.Errorf("unexpected error: %v", err)
	}
	// The deadline of a call that the runtime makes itself isn't the command's.
	if _, err := c.ExecSync(t.Context(), "id", []string{"other"}, time.Minute); err == nil || cri.IsExecTimeout(err) || cri.IsExecUnanswered(err) {
		t.Errorf("unexpected error: %v", err)
	}
}

// Of a command of which the runtime says nothing it isn't known whether its time is over; also where the caller gives it less than a call may take.
func TestExecUnanswered(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &runtimeServer{exec: func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		<-t.Context().Done() // an answer at the call's deadline might come first
		return nil, t.Context().Err()
	}})
	c := dial(t, socket, nil)
	within := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		_, err := c.ExecSync(ctx, "id", []string{"x"}, time.Second)
		return err
	}
	if err := within(1500 * time.Millisecond); !cri.IsExecUnanswered(err) || cri.IsExecTimeout(err) {
		t.Errorf("unexpected error: %v", err)
	}
	if err := within(100 * time.Millisecond); err == nil || cri.IsExecUnanswered(err) || cri.IsExecTimeout(err) {
		t.Errorf("a call that was given up before the command's time: %v", err)
	}
}

func TestExecOutputIsBounded(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	size := 0
	serve(t, socket, &runtimeServer{exec: func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		return &runtimeapi.ExecSyncResponse{Stdout: bytes.Repeat([]byte("x"), size), Stderr: bytes.Repeat([]byte("y"), size/2), ExitCode: 1}, nil
	}})
	c := dial(t, socket, nil)
	for _, tc := range []struct{ size, want int }{{cri.ExecOutputLimit, cri.ExecOutputLimit}, {10 << 20, cri.ExecOutputLimit}} {
		size = tc.size
		r, err := c.ExecSync(t.Context(), "id", []string{"yes"}, time.Minute)
		if err != nil || r.ExitCode != 1 || len(r.Stdout) != tc.want || cap(r.Stdout) > 2*tc.want || len(r.Stderr) != min(tc.want, tc.size/2) {
			t.Errorf("of %d bytes printed: code %d, %d and %d bytes, %d in memory (%v)", tc.size, r.ExitCode, len(r.Stdout), len(r.Stderr), cap(r.Stdout), err)
		}
	}
	size = 17 << 20
	if _, err := c.ExecSync(t.Context(), "id", []string{"yes"}, time.Minute); !cri.IsExecTooMuchOutput(err) || cri.IsExecTimeout(err) {
		t.Errorf("more than a message holds: %v", err)
	}
	size = 1
	if r, err := c.ExecSync(t.Context(), "id", []string{"yes"}, time.Minute); err != nil || string(r.Stdout) != "x" {
		t.Errorf("the connection suffered: %q %v", r.Stdout, err)
	}
}

// A runtime that can't say what a container uses is alive nevertheless; one that is silent or away may not be.
func TestAnswers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := &runtimeServer{}
	stop := serve(t, socket, server)
	c := dial(t, socket, nil)
	ask := func(ctx context.Context) bool {
		_, err := c.ContainerStats(ctx, "id")
		return cri.IsAnswer(err)
	}
	for code, want := range map[codes.Code]bool{
		codes.OK: true, codes.Unimplemented: true, codes.NotFound: true, codes.Internal: true, codes.Unknown: true,
		codes.Unavailable: false, codes.DeadlineExceeded: false,
	} {
		server.statsErr = status.Error(code, "no figures")
		if got := ask(t.Context()); got != want {
			t.Errorf("%s: an answer: %t", code, got)
		}
	}
	server.statsErr = nil
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if ask(ended) {
		t.Error("the caller's end passes for an answer")
	}
	stop()
	if ask(t.Context()) {
		t.Error("a runtime that is away passes for one that answers")
	}
	c.Close()
	if ask(t.Context()) {
		t.Error("a closed connection passes for one that answers")
	}
}

// What else a runtime may run out of has nothing to do with the command.
func TestExecErrors(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &runtimeServer{exec: func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		return nil, status.Error(codes.ResourceExhausted, "no space left on device")
	}})
	c := dial(t, socket, nil)
	_, err := c.ExecSync(t.Context(), "id", []string{"x"}, time.Minute)
	if err == nil || cri.IsExecTooMuchOutput(err) || cri.IsExecTimeout(err) || err.Error() != "container runtime: exec sync id: no space left on device" {
		t.Errorf("unexpected error: %v", err)
	}
	c.Close()
	if _, err := c.ExecSync(t.Context(), "id", []string{"x"}, time.Minute); err == nil || !strings.Contains(err.Error(), "was closed") {
		t.Errorf("after the end: %v", err)
	}
}

// After the runtime was away, the first call that can be answered is.
func TestExecReconnects(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := &runtimeServer{exec: func(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		return &runtimeapi.ExecSyncResponse{ExitCode: -7}, nil
	}}
	stop := serve(t, socket, server)
	c := dial(t, socket, nil)
	exec := func() (cri.ExecResult, error) { return c.ExecSync(t.Context(), "id", []string{"x"}, time.Minute) }
	if r, err := exec(); err != nil || r.ExitCode != -7 {
		t.Fatal(r, err)
	}
	stop()
	for range 3 {
		if _, err := exec(); !cri.IsUnavailable(err) {
			t.Fatalf("unexpected error: %v", err)
		}
	}
	serve(t, socket, server)
	if _, err := exec(); err != nil {
		t.Fatal(err)
	}
}

// Commands that don't end hold up no others, however many they are.
func TestExecsDontWaitForEachOther(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	arrived, leave := make(chan struct{}), make(chan struct{})
	serve(t, socket, &runtimeServer{exec: func(_ context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		if r.Cmd[0] == "hang" {
			arrived <- struct{}{}
			<-leave
		}
		return &runtimeapi.ExecSyncResponse{}, nil
	}})
	c := dial(t, socket, nil)
	const hanging = 20
	ended := make(chan error, hanging)
	for range hanging {
		go func() {
			_, err := c.ExecSync(t.Context(), "id", []string{"hang"}, time.Minute)
			ended <- err
		}()
		<-arrived
	}
	if _, err := c.ExecSync(t.Context(), "id", []string{"quick"}, 10*time.Second); err != nil {
		t.Errorf("beside hanging commands: %v", err)
	}
	close(leave)
	for range hanging {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A runtime that doesn't answer, since a child of the command still holds the
// output, doesn't keep the caller for cri-client's two minutes.
func TestExecHasADeadline(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	var left time.Duration
	serve(t, socket, &runtimeServer{exec: func(ctx context.Context, _ *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
		left = 0
		if deadline, ok := ctx.Deadline(); ok {
			left = time.Until(deadline)
		}
		return nil, status.Error(codes.Internal, "no")
	}})
	c := dial(t, socket, nil)
	for timeout, want := range map[time.Duration]time.Duration{time.Second: 11 * time.Second, time.Hour: time.Hour + 10*time.Second, 0: 0} {
		if _, err := c.ExecSync(t.Context(), "id", []string{"sh"}, timeout); err == nil {
			t.Error("no error")
		}
		if left > want || left < want-5*time.Second {
			t.Errorf("a command with a timeout of %s has %s left when it arrives, want %s", timeout, left, want)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.ExecSync(short, "id", []string{"sh"}, time.Hour); err == nil || left > time.Minute {
		t.Errorf("the caller's own minute became %s (%v)", left, err)
	}
}
