package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

// askAgain is the polling interval while containerd answers but its CRI service is still starting: no event reports
// the end of that start.
const askAgain = 20 * time.Millisecond

// DialSocket returns a connection to containerd, which is established once the socket answers.
func DialSocket(socket string) (*grpc.ClientConn, error) {
	// grpc's own unix resolver would parse the path as part of a URL.
	conn, err := grpc.NewClient("passthrough:///containerd",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// The socket is local: frequent attempts cost nothing.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: askAgain, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: 20 * time.Second}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd: %w", err)
	}
	return conn, nil
}

// Dial connects to the containerd of a configuration, without waiting for it to run. The caller closes the
// connection.
func Dial(c Config) (*grpc.ClientConn, error) {
	l, err := c.Layout()
	if err != nil {
		return nil, err
	}
	return DialSocket(l.Socket())
}

// listens reports whether a process listens on the socket, even if it hangs.
func listens(ctx context.Context, socket string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED)
}

// waitForSocket returns when a connection to the socket is accepted.
func waitForSocket(ctx context.Context, files *filewatch.Instance, socket string) error {
	watcher := files.Open(func(t filewatch.Trail) { t.Path(socket) })
	defer watcher.Close()
	for {
		unwatched := watcher.Arm()
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn.Close()
		}
		// The file exists a moment before containerd listens on it.
		pause := time.NewTimer(askAgain)
		if errors.Is(err, unix.ENOENT) && unwatched == nil {
			pause.Stop()
		}
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-watcher.Events():
			pause.Stop()
		case <-pause.C:
		}
	}
}

// errNoCRI means that containerd runs without its CRI service, which couldn't start: it needs an inotify instance, for
// example. containerd only tries to start the service when containerd itself starts.
var errNoCRI = errors.New("its CRI service couldn't start")

// waitForCRI returns when the CRI service reports that it can run pods, or doesn't exist.
func waitForCRI(ctx context.Context, client cri.RuntimeServiceClient) error {
	for {
		err := askCRI(ctx, client)
		if err == nil {
			return nil
		}
		if status.Code(err) == codes.Unimplemented {
			return errNoCRI
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

func askCRI(ctx context.Context, client cri.RuntimeServiceClient) error {
	if _, err := client.Version(ctx, &cri.VersionRequest{}); err != nil {
		return fmt.Errorf("ask for its version: %w", err)
	}
	answer, err := client.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask for its status: %w", err)
	}
	for _, c := range answer.GetStatus().GetConditions() {
		if !c.GetStatus() && (c.GetType() == "RuntimeReady" || c.GetType() == "NetworkReady") {
			return fmt.Errorf("%s is false: %s: %s", c.GetType(), c.GetReason(), c.GetMessage())
		}
	}
	return nil
}
