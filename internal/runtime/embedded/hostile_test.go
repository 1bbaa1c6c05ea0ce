package embedded

import (
	"context"
	"io"
	"strings"
	"testing"

	content "github.com/containerd/containerd/api/services/content/v1"
	"google.golang.org/grpc"
)

// manifest is a content store that has one manifest, and is asked for nothing else.
type manifest struct {
	content.ContentClient
	content.Content_ReadClient
	text []byte
}

func (m *manifest) Read(context.Context, *content.ReadContentRequest, ...grpc.CallOption) (content.Content_ReadClient, error) {
	return m, nil
}

func (m *manifest) Recv() (*content.ReadContentResponse, error) {
	if m.text == nil {
		return nil, io.EOF
	}
	r := &content.ReadContentResponse{Data: m.text}
	m.text = nil
	return r, nil
}

// TestManyLayers: a manifest comes from whoever made the image.
func TestManyLayers(t *testing.T) {
	layer := `{"digest": "sha256:1", "size": 1},`
	m := &manifest{text: []byte(`{"layers": [` + strings.TrimSuffix(strings.Repeat(layer, most+1), ",") + `]}`)}
	_, err := store{m}.manifest(t.Context(), &content.Info{Digest: "sha256:m", Size: int64(len(m.text))}, nil)
	if err == nil || err.Error() != "manifest sha256:m has 1001 layers" {
		t.Errorf("got %v", err)
	}
}
