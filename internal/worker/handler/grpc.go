package handler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/utils/ptr"
)

// Limits of a health check's connection, in bytes. A response has only a few bytes.
const (
	grpcBuffer  = 4 << 10
	grpcMessage = 10 << 10
	grpcHeaders = 64 << 10
)

// probeGRPC calls the server's health service (KEP-2727) on the pod's address, without TLS. Everything but SERVING is
// a failure, also a server without that service.
func probeGRPC(ctx context.Context, t Target, action *v1.GRPCAction, timeout time.Duration) Outcome {
	at, err := t.grpcEndpoint(action)
	if err != nil {
		return unknown(err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := net.JoinHostPort(at.host, strconv.Itoa(at.port))
	conn, err := dialTCP(ctx, at.host, at.port)
	if err != nil {
		if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
			return failure(noConnection(address, timeout))
		}
		return unanswered(fmt.Errorf("error: failed to connect service at %q: %w", address, err))
	}
	client, err := grpcClient(address, conn)
	if err != nil {
		return unknown(errors.Join(err, conn.Close()))
	}
	answer, err := grpc_health_v1.NewHealthClient(client).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: ptr.Deref(action.Service, "")})
	connected := client.GetState() == connectivity.Ready
	// Errors of closing say nothing about the server.
	_ = client.Close()
	_ = conn.Close()
	switch {
	case err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING:
		return Outcome{State: Success}
	case err == nil:
		return failure(fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus()))
	case status.Code(err) == codes.DeadlineExceeded && !connected:
		return failure(noConnection(address, timeout))
	case status.Code(err) == codes.DeadlineExceeded:
		return failure(fmt.Sprintf("timeout: health rpc did not complete within %s", timeout))
	case status.Code(err) == codes.Unimplemented:
		const what = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
		return Outcome{State: Failure, Message: what, Output: text(what + ": " + status.Convert(err).Message())}
	}
	const what = "error: health rpc failed: "
	return Outcome{State: Failure, Message: what + status.Code(err).String(), Output: text(what + err.Error())}
}

func noConnection(address string, timeout time.Duration) string {
	return fmt.Sprintf("timeout: failed to connect service %q within %s", address, timeout)
}

// grpcClient returns a client that uses only conn.
func grpcClient(address string, conn net.Conn) (*grpc.ClientConn, error) {
	var used atomic.Bool
	once := func(context.Context, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errors.New("the connection was lost")
		}
		return conn, nil
	}
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(once),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(probeAgent),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(grpcBuffer), grpc.WithWriteBufferSize(grpcBuffer),
		grpc.WithMaxHeaderListSize(grpcHeaders), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(grpcMessage)))
}
