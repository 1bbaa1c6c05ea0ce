package embedded

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// A silent containerd is hung after a minute in which it stands still, or five in which it works; never while it answers,
// nor while a disk keeps it.
func TestWhenContainerdIsHung(t *testing.T) {
	// cpu is how much of a CPU it uses, blocked says when the kernel holds it.
	for name, c := range map[string]struct {
		cpu     float64
		blocked func(time.Duration) bool
		limits  patience      // whileRunning if zero
		answers time.Duration // 0 for never
		want    time.Duration // when it counts as hung; 0 for never
	}{
		"stopped":                          {want: time.Minute},
		"as good as stopped":               {cpu: 0.002, want: time.Minute},
		"stopped, and goes on":             {answers: 59 * time.Second},
		"slow on a busy machine":           {cpu: 0.03, answers: 4*time.Minute + 50*time.Second},
		"in a loop":                        {cpu: 1, want: 5 * time.Minute},
		"the disk doesn't answer":          {blocked: func(time.Duration) bool { return true }},
		"the disk is back, and it stopped": {blocked: func(d time.Duration) bool { return d <= time.Hour }, want: time.Hour + time.Minute},
		"starting, and waits for shims":    {limits: whileStarting, answers: 14 * time.Minute},
		"it never starts":                  {limits: whileStarting, want: 15 * time.Minute},
		"in a loop when adopted":           {limits: whileAdopted, cpu: 1, want: 2 * time.Minute},
		"stopped when adopted":             {limits: whileAdopted, want: time.Minute},
		"it answers after an hour":         {blocked: func(d time.Duration) bool { return d < time.Hour }, answers: time.Hour + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.limits == (patience{}) {
					c.limits = whileRunning
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
				defer cancel()
				answered := make(chan struct{})
				if c.answers > 0 {
					time.AfterFunc(c.answers, func() { close(answered) })
				}
				err := listen(ctx, answered, func() child.Activity {
					d := time.Since(began)
					return child.Activity{CPU: time.Duration(c.cpu * float64(d)), Blocked: c.blocked != nil && c.blocked(d)}
				}, c.limits)
				took := time.Since(began)
				switch {
				case c.want > 0:
					if err == nil || !strings.Contains(err.Error(), "it has answered nothing for") || took != c.want {
						t.Errorf("after %s: %v, want it to be hung after %s", took, err, c.want)
					}
				case c.answers > 0:
					if err != nil || took != c.answers {
						t.Errorf("after %s: %v, want an answer after %s", took, err, c.answers)
					}
				case !errors.Is(err, context.DeadlineExceeded):
					t.Errorf("after %s: %v", took, err)
				}
			})
		})
	}
}

// While the agent stood still nobody looked at what containerd did.
func TestATimeWithoutTheAgentDoesntCount(t *testing.T) {
	s := silence{limits: whileRunning}
	if s.add(24*time.Hour, child.Activity{}) {
		t.Error("a machine that wakes up kills containerd")
	}
	for range s.limits.still/lookEvery - 2 {
		if s.add(lookEvery, child.Activity{}) {
			t.Error("too soon")
		}
	}
	if !s.add(lookEvery, child.Activity{}) {
		t.Error("it isn't hung after a minute")
	}
}

// A containerd whose CRI still recovers containers answers all CRI calls with Unavailable; it isn't hung.
func TestAStartingContainerdAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "containerd.sock")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if listens(ctx, path) {
		t.Error("a process listens at a socket that isn't there")
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if !listens(ctx, path) {
		t.Error("nothing listens, though the connection is only not accepted yet")
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, starting{})
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	if askHealth(ctx, path); ctx.Err() != nil {
		t.Error("a containerd that starts counts as silent")
	}
}

// starting is the CRI of a containerd that isn't done with starting.
type starting struct {
	cri.UnimplementedRuntimeServiceServer
}

func (starting) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return nil, status.Error(codes.Unavailable, "server is not initialized yet")
}

// An agent that starts doesn't wait for the answer of a containerd that has ended meanwhile, nor for that of one which
// has just been started and has no socket yet.
func TestAdoptedContainerdEnds(t *testing.T) {
	program := filepath.Join(t.TempDir(), "containerd")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	layout, err := Config{RootDir: t.TempDir()}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	p, err := child.Spawn(program, "none", "/bin", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Reap()
	r := &Runtime{layout: layout, log: logr.Discard()}
	if err := r.awaitAdopted(t.Context(), p); err != nil {
		t.Errorf("without a socket: %v", err)
	}
	if err := os.MkdirAll(filepath.Dir(layout.Socket()), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", layout.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	time.AfterFunc(100*time.Millisecond, func() { _ = p.Kill() })
	began := time.Now()
	if err := r.awaitAdopted(t.Context(), p); !errors.Is(err, errEnded) || time.Since(began) > 30*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
