package agent_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	internalimage "github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// client is the local API of the rig's agent, once it answers.
func (r *rig) client() *local.Client {
	r.t.Helper()
	c := local.NewClient(local.SocketPath(r.path("root")))
	r.await("the agent answers", func() string {
		if _, err := c.Snapshot(r.t.Context()); err != nil {
			return err.Error()
		}
		return ""
	})
	return c
}

// pull pulls an image by hand.
func pull(ctx context.Context, c *local.Client, name string) (*internalimage.Image, error) {
	for u, err := range c.PullImage(ctx, name) {
		if err != nil || u.Image != nil {
			return u.Image, err
		}
	}
	return nil, errors.New("the pull ended without an answer")
}

// TestImagesWhileASourceIsSilent: what can be done by hand doesn't wait for a URL; only
// what would need to know all pods is refused.
func TestImagesWhileASourceIsSilent(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	r := prepareRig(t, "staticPodURL: http://"+closed.Addr().String()+"/pods.yaml\n")
	if err := r.Start(r.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	r.up()
	r.want("a", plainSpec)
	r.await("a pod of the directory runs", r.running("a/main"))
	c := r.client()
	if got, err := pull(t.Context(), c, "example.com/new:1"); err != nil || !slices.Contains(got.Refs, "example.com/new:1") {
		t.Errorf("pulled %+v, %v", got, err)
	}
	list, err := c.Images(t.Context())
	if err != nil || len(list) != 2 || list[0].Refs[0] != image || !slices.Equal(list[0].UsedBy, []string{"default/a-n"}) {
		t.Errorf("images are %+v, %v", list, err)
	}
	want := "the images in use aren't determined yet: not all sources of pods have reported"
	var refused *local.StatusError
	if _, err := c.PruneImages(t.Context(), true); !errors.As(err, &refused) || refused.Code != 503 || err.Error() != want {
		t.Errorf("pruning: %v, want %s", err, want)
	}
	if _, err := c.RemoveImage(t.Context(), "example.com/new:1"); !errors.As(err, &refused) || refused.Code != 503 || err.Error() != want {
		t.Errorf("removing: %v, want %s", err, want)
	}
}

// TestWhatTheRuntimeSaysOfAPull is reported once, with its reason, and by hand it is tried
// again at once.
func TestWhatTheRuntimeSaysOfAPull(t *testing.T) {
	r := newRig(t)
	r.up()
	c := r.client()
	const name = "example.com/app:2"
	r.Images.Script(name, node.PullBehaviour{Err: status.Error(codes.Unknown, "RegistryUnavailable: no route")})
	want := `RegistryUnavailable: failed to pull image "example.com/app:2": RegistryUnavailable: no route`
	for range 2 {
		if _, err := pull(t.Context(), c, name); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	r.Images.Script(name, node.PullBehaviour{})
	if _, err := pull(t.Context(), c, name); err != nil {
		t.Errorf("once the registry is back: %v", err)
	}
}

// TestTheAgentStopsDuringAPull says so to who waits for it.
func TestTheAgentStopsDuringAPull(t *testing.T) {
	r := newRig(t)
	r.up()
	c := r.client()
	r.Images.Script("example.com/slow:1", node.PullBehaviour{Takes: time.Hour})
	ended := make(chan error, 1)
	go func() {
		_, err := pull(context.Background(), c, "example.com/slow:1")
		ended <- err
	}()
	r.await("the pull begins", func() string {
		if r.Calls("PullImage") == 0 {
			return "nothing is pulled"
		}
		return ""
	})
	r.stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the agent is stopping") {
		t.Errorf("got %v", err)
	}
}
