package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	content "github.com/containerd/containerd/api/services/content/v1"
	"github.com/distribution/reference"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	// namespace is containerd's namespace of the CRI's images and containers.
	namespace = "k8s.io"
	// source, followed by a registry's host without its port, is the label with the repositories that content was
	// fetched from.
	source = "containerd.io/distribution.source."
	// layers, followed by a number, is a manifest's label with the digest of a layer.
	layers = "containerd.io/gc.ref.content.l."
	// ingest, followed by a digest, is the reference of a layer that is being fetched.
	ingest = "layer-"
	// largest exceeds the size of any manifest (registries reject manifests of more than 4 MiB).
	largest = 4 << 20
	// most exceeds the number of layers of any image that can run. For each layer containerd scans all of its
	// content, and a manifest can list tens of thousands of layers.
	most = 1000
)

// Transfer is the progress of a pull.
type Transfer struct {
	// Layers is the number of the image's layers, LayersDone how many of them are complete.
	Layers, LayersDone int
	// Bytes is the compressed size of the layers, BytesDone how much of it was fetched.
	Bytes, BytesDone int64
}

// TransferOf returns the progress of an image's pull from containerd's content store, because the CRI doesn't
// report it. It returns false before the image's manifest was fetched and once all its layers are complete; for two
// images of one repository that are pulled at the same time it returns the sum.
func TransferOf(ctx context.Context, conn grpc.ClientConnInterface, image string) (Transfer, bool, error) {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return Transfer{}, false, fmt.Errorf("progress of %q: %w", image, err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	s := store{content.NewContentClient(conn)}
	t, err := s.transfer(ctx, named)
	if err != nil {
		return Transfer{}, false, fmt.Errorf("progress of %q: %w", image, err)
	}
	return t, t.Layers > 0, nil
}

// store is containerd's content store.
type store struct{ client content.ContentClient }

func (s store) transfer(ctx context.Context, image reference.Named) (Transfer, error) {
	begun, err := s.begun(ctx)
	if err != nil || len(begun) == 0 {
		return Transfer{}, err
	}
	repository := regexp.QuoteMeta(reference.Path(image))
	host := (&url.URL{Host: reference.Domain(image)}).Hostname()
	filter := fmt.Sprintf("labels.%s~=%s", strconv.Quote(source+host), strconv.Quote("(^|,)"+repository+"(,|$)"))
	fetched, err := s.list(ctx, filter)
	if err != nil {
		return Transfer{}, err
	}
	var total Transfer
	for _, info := range fetched {
		if !fetching(info.Labels, begun) {
			continue
		}
		t, err := s.manifest(ctx, info, begun)
		if err != nil {
			return Transfer{}, err
		}
		total.Layers += t.Layers
		total.LayersDone += t.LayersDone
		total.Bytes += t.Bytes
		total.BytesDone += t.BytesDone
	}
	return total, nil
}

// begun returns how many bytes of each layer in progress were fetched, by digest.
func (s store) begun(ctx context.Context) (map[string]int64, error) {
	r, err := s.client.ListStatuses(ctx, &content.ListStatusesRequest{})
	if err != nil {
		return nil, err
	}
	begun := map[string]int64{}
	for _, st := range r.GetStatuses() {
		if digest, ok := strings.CutPrefix(st.GetRef(), ingest); ok {
			begun[digest] = st.GetOffset()
		}
	}
	return begun, nil
}

// list returns the complete content that matches one of the filters.
func (s store) list(ctx context.Context, filters ...string) ([]*content.Info, error) {
	stream, err := s.client.List(ctx, &content.ListContentRequest{Filters: filters})
	if err != nil {
		return nil, err
	}
	var out []*content.Info
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, r.GetInfo()...)
	}
}

// fetching reports whether the labels are those of a manifest with a layer in progress.
func fetching(labels map[string]string, begun map[string]int64) bool {
	for k, digest := range labels {
		if _, ok := begun[digest]; ok && strings.HasPrefix(k, layers) {
			return true
		}
	}
	return false
}

// manifest sums up the layers of one manifest.
func (s store) manifest(ctx context.Context, info *content.Info, begun map[string]int64) (Transfer, error) {
	text, err := s.read(ctx, info)
	if err != nil {
		return Transfer{}, err
	}
	var m struct {
		Layers []struct {
			Digest string `json:"digest"`
			Size   int64  `json:"size"`
		} `json:"layers"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return Transfer{}, fmt.Errorf("manifest %s: %w", info.GetDigest(), err)
	}
	if len(m.Layers) > most {
		return Transfer{}, fmt.Errorf("manifest %s has %d layers", info.GetDigest(), len(m.Layers))
	}
	var filters []string
	for _, l := range m.Layers {
		filters = append(filters, "digest=="+strconv.Quote(l.Digest))
	}
	fetched, err := s.list(ctx, filters...)
	if err != nil {
		return Transfer{}, err
	}
	done := map[string]bool{}
	for _, info := range fetched {
		done[info.GetDigest()] = true
	}
	t := Transfer{Layers: len(m.Layers)}
	for _, l := range m.Layers {
		t.Bytes += l.Size
		if done[l.Digest] {
			t.LayersDone++
			t.BytesDone += l.Size
		} else {
			t.BytesDone += min(begun[l.Digest], l.Size)
		}
	}
	return t, nil
}

func (s store) read(ctx context.Context, info *content.Info) ([]byte, error) {
	if info.GetSize() > largest {
		return nil, fmt.Errorf("manifest %s is of %d bytes", info.GetDigest(), info.GetSize())
	}
	stream, err := s.client.Read(ctx, &content.ReadContentRequest{Digest: info.GetDigest()})
	if err != nil {
		return nil, err
	}
	var text []byte
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, nil
		}
		if err != nil {
			return nil, err
		}
		text = append(text, r.GetData()...)
	}
}
