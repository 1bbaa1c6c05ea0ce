package archives

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	leases "github.com/containerd/containerd/api/services/leases/v1"
	streaming "github.com/containerd/containerd/api/services/streaming/v1"
	transfer "github.com/containerd/containerd/api/services/transfer/v1"
	"github.com/containerd/containerd/api/types"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// This file uses the generated API of containerd's transfer service, which takes less than 1 MiB of memory.
// containerd's client package offers the same functions, but takes 3 MiB more.

const (
	// namespace is containerd's namespace of the CRI's images.
	namespace = "k8s.io"
	// ManagedLabel has the value Managed on images that the CRI manages.
	ManagedLabel, Managed = "io.cri-containerd.image", "managed"
	// unnamed replaces the missing name of an image that has only a tag.
	unnamed = "deckhand.local/import"
	// chunk is the maximum payload of one message, as in containerd's own client.
	chunk = 32 << 10
	// leaseFor is how long after its creation a lease expires if the agent was killed before it released the lease.
	leaseFor = 24 * time.Hour
	// releaseIn is the timeout for releasing a lease.
	releaseIn = 5 * time.Second
)

// leased runs the function do with a lease of containerd: without a lease, containerd's garbage collector may
// remove a stream before it is used. The lease is released when do returns.
func leased(ctx context.Context, conn *grpc.ClientConn, do func(context.Context) error) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	client := leases.NewLeasesClient(conn)
	created, err := client.Create(ctx, &leases.CreateRequest{
		ID:     "deckhand-" + rand.Text(),
		Labels: map[string]string{"containerd.io/gc.expire": time.Now().Add(leaseFor).Format(time.RFC3339)},
	})
	if err != nil {
		return fmt.Errorf("ask containerd for a lease, against its garbage collector: %w", err)
	}
	id := created.GetLease().GetID()
	err = do(metadata.AppendToOutgoingContext(ctx, "containerd-lease", id))
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseIn)
	defer cancel()
	if _, releaseErr := client.Delete(release, &leases.DeleteRequest{ID: id}); releaseErr != nil && err == nil {
		err = fmt.Errorf("release the lease: %w", releaseErr)
	}
	return err
}

// send imports an archive and returns the names of its images.
func send(ctx context.Context, conn *grpc.ClientConn, archive io.Reader) (names []string, err error) {
	err = leased(ctx, conn, func(ctx context.Context) error {
		names, err = transferIn(ctx, conn, archive)
		return err
	})
	return names, err
}

func transferIn(ctx context.Context, conn *grpc.ClientConn, archive io.Reader) ([]string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	data, err := openStream(ctx, conn, "import-")
	if err != nil {
		return nil, err
	}
	progress, err := openStream(ctx, conn, "progress-")
	if err != nil {
		return nil, err
	}
	request, err := request(data.id, progress.id)
	if err != nil {
		return nil, err
	}
	var names []string
	sent, reported := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		if err := data.upload(archive); err != nil {
			cancel(fmt.Errorf("read the archive: %w", err))
		}
	}()
	go func() {
		defer close(reported)
		names = progress.saved()
	}()
	_, err = transfer.NewTransferClient(conn).Transfer(ctx, request)
	if err == nil {
		// containerd reports all images before it answers, but on another stream.
		<-reported
	}
	cause := context.Cause(ctx)
	cancel(nil)
	<-sent
	<-reported
	if err != nil && cause != nil {
		err = cause
	}
	return names, err
}

func request(archive, progress string) (*transfer.TransferRequest, error) {
	source, err := pack(&transfertypes.ImageImportStream{Stream: archive})
	if err != nil {
		return nil, err
	}
	here := &types.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	destination, err := pack(&transfertypes.ImageStore{
		Labels:    map[string]string{ManagedLabel: Managed},
		Platforms: []*types.Platform{here},
		ExtraReferences: []*transfertypes.ImageReference{
			{Name: unnamed, IsPrefix: true, AllowOverwrite: true},
		},
		// The default snapshotter is the configured one.
		Unpacks: []*transfertypes.UnpackConfiguration{{Platform: here}},
	})
	if err != nil {
		return nil, err
	}
	return &transfer.TransferRequest{
		Source: source, Destination: destination,
		Options: &transfer.TransferOptions{ProgressStream: progress},
	}, nil
}

// stream is one of containerd's byte or message streams.
type stream struct {
	id   string
	grpc streaming.Streaming_StreamClient
}

func openStream(ctx context.Context, conn *grpc.ClientConn, prefix string) (stream, error) {
	s := stream{id: prefix + rand.Text()}
	var err error
	if s.grpc, err = streaming.NewStreamingClient(conn).Stream(ctx); err != nil {
		return stream{}, fmt.Errorf("open a stream to containerd: %w", err)
	}
	if err := s.send(&streaming.StreamInit{ID: s.id}); err != nil {
		return stream{}, fmt.Errorf("open a stream to containerd: %w", err)
	}
	// containerd acknowledges the stream's ID.
	if _, err := s.grpc.Recv(); err != nil {
		return stream{}, fmt.Errorf("open a stream to containerd: %w", err)
	}
	return s, nil
}

func (s stream) send(m proto.Message) error {
	packed, err := pack(m)
	if err != nil {
		return err
	}
	return s.grpc.Send(packed)
}

// upload sends the archive as containerd's window allows. It returns only errors of reading the archive: Transfer
// reports errors of the stream better.
func (s stream) upload(archive io.Reader) error {
	defer s.grpc.CloseSend()
	var window int
	buf := make([]byte, chunk)
	for {
		for window <= 0 {
			var update transfertypes.WindowUpdate
			if !s.receive(&update) {
				return nil
			}
			window += int(update.GetUpdate())
		}
		n, err := archive.Read(buf[:min(len(buf), window)])
		if n > 0 {
			window -= n
			if s.send(&transfertypes.Data{Data: buf[:n]}) != nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// saved collects the names of the stored images.
func (s stream) saved() []string {
	defer s.grpc.CloseSend()
	var names []string
	for {
		var p transfertypes.Progress
		if !s.receive(&p) {
			return names
		}
		switch p.GetEvent() {
		case "saved":
			names = append(names, p.GetName())
		case "Completed import":
			return names
		}
	}
}

// receive returns false when the stream has ended.
func (s stream) receive(m proto.Message) bool {
	packed, err := s.grpc.Recv()
	return err == nil && proto.Unmarshal(packed.GetValue(), m) == nil
}

// pack is anypb.New with containerd's type URLs, which have no host as a prefix.
func pack(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}, nil
}
