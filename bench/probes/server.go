package probes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Serve answers requests on a port of loopback, which it writes to out as a line,
// until ctx ends.
func Serve(ctx context.Context, out io.Writer) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }),
	}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// start runs the command that serves. stop ends it and waits for that.
func start(ctx context.Context, command []string) (address netip.AddrPort, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return address, nil, err
	}
	if err := cmd.Start(); err != nil {
		return address, nil, fmt.Errorf("start the server: %w", err)
	}
	stop = func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("the server: %w", err)
		}
		return nil
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		address, err = netip.ParseAddrPort(strings.TrimSpace(line))
	}
	if err != nil {
		return address, nil, errors.Join(fmt.Errorf("the server didn't tell its address: %w", err), stop())
	}
	return address, stop, nil
}
