package archives

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	images "github.com/containerd/containerd/api/services/images/v1"
	transfer "github.com/containerd/containerd/api/services/transfer/v1"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"github.com/distribution/reference"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// window is the flow-control window: how many bytes containerd sends before it needs an update.
const window = 32 * chunk

// ExportTo writes an uncompressed archive with the images of these names, as the CRI lists them. The archive is an OCI
// layout that docker can also read; it includes only this platform's content of the images. After an error, a part of
// the archive may have been written.
func (im *Importer) ExportTo(ctx context.Context, names []string, w io.Writer) error {
	conn, err := im.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	return leased(ctx, conn, func(ctx context.Context) error {
		list, err := images.NewImagesClient(conn).List(ctx, &images.ListImagesRequest{})
		if err != nil {
			return fmt.Errorf("list the images: %w", err)
		}
		source := &transfertypes.ImageStore{}
		for _, name := range names {
			found := Record(list.GetImages(), name)
			if found == nil {
				return fmt.Errorf("containerd doesn't have image %s any more", name)
			}
			source.ExtraReferences = append(source.ExtraReferences,
				&transfertypes.ImageReference{Name: found.GetName()})
		}
		return transferOut(ctx, conn, source, w)
	})
}

// Canonical returns an image's name in the CRI's form: archives may have another form.
func Canonical(name string) string {
	if named, err := reference.ParseDockerRef(name); err == nil {
		return named.String()
	}
	return name
}

// Record returns containerd's record of an image, found by the first of its names that has a record; nil if there
// is none. A record with exactly the name takes precedence over a record with a short form of the name, which may
// belong to another image.
func Record(list []*images.Image, names ...string) *images.Image {
	for _, name := range names {
		for _, is := range []func(string) bool{
			func(recorded string) bool { return recorded == name },
			func(recorded string) bool { return Canonical(recorded) == name },
		} {
			if at := slices.IndexFunc(list, func(i *images.Image) bool { return is(i.GetName()) }); at >= 0 {
				return list[at]
			}
		}
	}
	return nil
}

func transferOut(ctx context.Context, conn *grpc.ClientConn, source *transfertypes.ImageStore, w io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	data, err := openStream(ctx, conn, "export-")
	if err != nil {
		return err
	}
	from, err := pack(source)
	if err != nil {
		return err
	}
	to, err := pack(&transfertypes.ImageExportStream{Stream: data.id})
	if err != nil {
		return err
	}
	received := make(chan struct{})
	var wrong error
	go func() {
		defer close(received)
		if wrong = data.download(w); wrong != nil {
			cancel(wrong)
		}
	}()
	_, err = transfer.NewTransferClient(conn).Transfer(ctx, &transfer.TransferRequest{Source: from, Destination: to})
	if err != nil {
		cause := context.Cause(ctx)
		cancel(nil)
		<-received
		if cause != nil {
			return cause
		}
		return fmt.Errorf("containerd can't export it: %w", err)
	}
	<-received // containerd has sent all messages, but on the other stream
	return wrong
}

// download writes the archive that containerd sends to w. containerd doesn't close the stream, so download returns at
// the end of the archive.
func (s stream) download(w io.Writer) error {
	defer s.grpc.CloseSend()
	in := tar.NewReader(io.TeeReader(&reader{stream: s}, w))
	for {
		_, err := in.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, in)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// reader reads the bytes of a stream.
type reader struct {
	stream stream
	// open is how many bytes containerd may still send without a window update. rest is the unread part of the
	// received bytes.
	open int
	rest []byte
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.open < window/2 {
			// If this fails, Recv fails as well.
			_ = r.stream.send(&transfertypes.WindowUpdate{Update: int32(window - r.open)})
			r.open = window
		}
		packed, err := r.stream.grpc.Recv()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, fmt.Errorf("receive the archive from containerd: %w", err)
		}
		var data transfertypes.Data
		if err := proto.Unmarshal(packed.GetValue(), &data); err != nil {
			return 0, fmt.Errorf("receive the archive from containerd: %w", err)
		}
		r.rest = data.GetData()
		r.open -= len(r.rest)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
