package cri

import (
	"context"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
)

func dialRuntime(endpoint string, timeout time.Duration,
	tracer trace.TracerProvider) func(context.Context) (internalapi.RuntimeService, error) {
	return func(ctx context.Context) (internalapi.RuntimeService, error) {
		err := ask(ctx, endpoint, timeout, func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(ctx, &runtimeapi.VersionRequest{})
			return err
		})
		if err != nil {
			return nil, err
		}
		return criclient.NewRemoteRuntimeService(ctx, endpoint, timeout, tracer, false)
	}
}

func dialImage(endpoint string, timeout time.Duration,
	tracer trace.TracerProvider) func(context.Context) (internalapi.ImageManagerService, error) {
	return func(ctx context.Context) (internalapi.ImageManagerService, error) {
		err := ask(ctx, endpoint, timeout, func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := runtimeapi.NewImageServiceClient(conn).ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
			return err
		})
		if err != nil {
			return nil, err
		}
		return criclient.NewRemoteImageService(ctx, endpoint, timeout, tracer, false)
	}
}

// ask makes one call over a separate connection. cri-client's constructors make the same call themselves, but if it
// fails, they leave behind a connection that redials forever. So they are only called after ask has succeeded.
func ask(ctx context.Context, endpoint string, timeout time.Duration,
	question func(context.Context, *grpc.ClientConn) error) error {
	conn, err := connect(endpoint)
	if err != nil {
		return err
	}
	// Closing fails only if the connection is closed already.
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return question(ctx, conn)
}

// connect returns a connection to a unix socket, which is established by the first call.
func connect(endpoint string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(endpoint,
		append(more, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))...)
}

// traced returns the options that trace calls in the same way as cri-client.
func traced(tracer trace.TracerProvider) []grpc.DialOption {
	if tracer == nil {
		return nil
	}
	return []grpc.DialOption{
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(tracer),
			otelgrpc.WithPropagators(propagation.TraceContext{})))}
}
