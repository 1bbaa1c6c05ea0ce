package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

// answerTime is the timeout for the runtime's version. A runtime answers at once unless the host is very busy.
const answerTime = 3 * time.Second

// checkEndpoint checks that a container runtime answers at endpoint. If none does, the problem isn't fatal: at boot
// the runtime may start after the agent, which keeps trying.
func checkEndpoint(ctx context.Context, endpoint string) []Problem {
	conn, err := cri.New(cri.Options{Endpoint: endpoint, Timeout: answerTime})
	if err != nil {
		return fatal(err)
	}
	defer conn.Close()
	wrong := checkSocket(ctx, endpoint)
	if wrong == "" {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		_, err := conn.Version(ctx)
		wrong = explainAnswer(err)
	}
	if wrong == "" {
		return nil
	}
	return []Problem{{Message: fmt.Sprintf("no container runtime answers at %s: %s; the agent goes on asking", endpoint,
		wrong)}}
}

// checkSocket returns the reason why the endpoint's socket doesn't accept connections; "" if it does.
func checkSocket(ctx context.Context, endpoint string) string {
	path := endpoint
	if u, err := url.Parse(endpoint); err == nil {
		path = u.Path
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such socket: start the runtime (systemctl start containerd, or crio), or correct " +
			"containerRuntimeEndpoint (--container-runtime-endpoint)"
	case err != nil:
		return err.Error()
	case info.Mode().Type() != fs.ModeSocket:
		return "that isn't a socket: correct containerRuntimeEndpoint (--container-runtime-endpoint)"
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "the socket is left from a runtime that doesn't run: see why (systemctl status containerd, or crio) " +
			"and start it"
	case err != nil:
		return err.Error()
	}
	_ = conn.Close()
	return ""
}

// explainAnswer explains the error of a Version call; "" without an error.
func explainAnswer(err error) string {
	switch {
	case err == nil:
		return ""
	case cri.IsUnimplemented(err):
		return "something answers, but doesn't speak CRI v1: containerd (from 1.6) has to have its cri plugin " +
			"enabled (disabled_plugins in /etc/containerd/config.toml, which some packages set)"
	case status.Code(err) == codes.DeadlineExceeded:
		return fmt.Sprintf("the socket accepts connections, but nothing answers within %s: see the runtime's log "+
			"(journalctl -u containerd, or crio)", answerTime)
	default:
		return fmt.Sprintf("%v: see the runtime's log (journalctl -u containerd, or crio), or correct "+
			"containerRuntimeEndpoint", err)
	}
}
