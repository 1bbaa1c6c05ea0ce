// Package subprocess runs a program that reads a request from standard input and writes its answer to standard output.
// The answer's size is bounded, and no process of the program is left when Run returns.
package subprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

const (
	// maxAnswer bounds a program's standard output, in bytes.
	maxAnswer = 1 << 20
	// maxComplaint is the maximum number of bytes that are buffered from the end of the program's standard error,
	// shownComplaint the maximum number that are shown. The difference is longer than any token: otherwise a token
	// whose beginning was dropped could be shown, because it couldn't be recognized as secret.
	maxComplaint   = 16 << 10
	shownComplaint = 1 << 10
	// linger is how long to wait for the output's end once the program has ended. Only
	// a process that left the program's group can keep it open.
	linger = time.Second
)

// Program is a program to run. No shell is involved.
type Program struct {
	Path string
	Args []string
	// Env are additional environment variables, "NAME=value". They override this process's own.
	Env []string
}

// Run runs the program with this input, and returns its standard output. When ctx ends, the program and its process
// group are killed, and the error is the context's cause. Other errors wrap those of os/exec, and include the end of
// the program's standard error, with the secret removed if there is one.
func (p Program) Run(ctx context.Context, input []byte, secret string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer := &bounded{full: func() {
		cancel(fmt.Errorf("it wrote more than %d bytes to its standard output and was ended", maxAnswer))
	}}
	complaint := &Tail{}
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), answer, complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = linger
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start it: %w", err)
	}
	err := errors.Join(end(ctx, cmd.Process.Pid), cmd.Wait())
	if errors.Is(err, exec.ErrWaitDelay) {
		err = errors.New("it left a process behind that keeps its output open")
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if text := complaint.Shown(secret); text != "" {
			err = fmt.Errorf("%w; the end of its standard error: %s", err, text)
		}
		return nil, err
	}
	return answer.text.Bytes(), nil
}

// end waits until the process has ended, or ends it when the context ends, and then ends its process group. The process
// is reaped only after that, so that no other group can get its ID.
func end(ctx context.Context, pid int) error {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		killGroup(pid)
	})
	var err error
	for {
		if err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if !stop() {
		<-ended
	}
	killGroup(pid)
	if err != nil {
		return fmt.Errorf("wait for it: %w", err)
	}
	return nil
}

// killGroup kills the remaining processes of a group. The only possible error is that there are none.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// bounded buffers the written bytes, and calls full instead of buffering more than maxAnswer.
type bounded struct {
	text bytes.Buffer
	full func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > maxAnswer {
		b.full()
	} else {
		b.text.Write(p)
	}
	return len(p), nil // the rest is dropped, so that the program is never blocked
}

// Tail keeps the end of a program's standard error. A process that has left the program's group may still write to it
// while it is shown.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if extra := len(t.text) - maxComplaint; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(p), nil
}

// Shown returns the end of the standard error as one line, at most shownComplaint bytes of it, without the secret.
func (t *Tail) Shown(secret string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.text)
	if secret != "" {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	if len(text) > shownComplaint {
		text = "..." + strings.ToValidUTF8(text[len(text)-shownComplaint:], "")
	}
	return terminal.Line(text)
}
