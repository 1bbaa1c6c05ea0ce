package gc

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// containers are users as the agent finds them: by what the runtime says of containers.
type containers struct {
	conn runtimeapi.RuntimeServiceClient
	// byStatus takes the reference of a container's status, a digest, instead of the list's, an ID.
	byStatus bool
}

func (c *containers) InUse(ctx context.Context) ([]Use, error) {
	r, err := c.conn.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	var uses []Use
	for _, each := range r.GetContainers() {
		ref := each.GetImageRef()
		if c.byStatus {
			st, err := c.conn.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: each.GetId()})
			if err != nil {
				return nil, err
			}
			ref = st.GetStatus().GetImageRef()
		}
		uses = append(uses, Use{Image: ref, User: User{Pod: "default/web", How: "container"}})
	}
	return uses, nil
}

// The rules hold with containerd: what runs and what sandboxes are made from stays; the rest
// goes, with all its names, and the disk that containerd names can be measured.
func TestContainerd(t *testing.T) {
	in := embeddedtest.Start(t)
	conn, err := cri.Dial(t.Context(), cri.Options{Endpoint: in.Endpoint, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := runtimeapi.NewRuntimeServiceClient(in.Connect(t))
	users := &containers{conn: client}
	w := newWorld()
	c := New(Config{
		// Full at any use: what is removed is only up to the other rules.
		Policy: Policy{High: 0, Low: 0}, Runtime: conn, Users: users, Guard: NewGuard(), Measure: Statfs, Listener: w, Events: w, Meter: w,
		Records: filepath.Join(in.Config.RootDir, "checkpoints", "images.json"), Keep: func() map[string]string {
			return map[string]string{embeddedtest.PauseImage: "the image of the pods' sandboxes"}
		}, Log: logger(t),
	})
	pod := in.RunPod(t, "web", nil, "sleep", "1h")
	for _, users.byStatus = range []bool{false, true} {
		c.collect(t.Context())
		images, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range images {
			if inUse := slices.Contains(i.Tags, embeddedtest.WebImage); i.Size == 0 || inUse != (len(i.Users) > 0) || inUse == (i.Pinned != "") {
				t.Errorf("by status %v: %+v", users.byStatus, i)
			}
		}
		if len(images) != 2 {
			t.Errorf("%d images are left", len(images))
		}
	}
	if _, _, err := c.Remove(t.Context(), embeddedtest.WebImage); err == nil {
		t.Error("removed what runs")
	}
	if _, err := client.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.Sandbox}); err != nil {
		t.Fatal(err)
	}
	w.taken()
	c.collect(t.Context())
	st, err := conn.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: embeddedtest.WebImage})
	if err != nil || st != nil {
		t.Errorf("the image that nobody uses any more is there: %v, %v", st, err)
	}
	if st, err := conn.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: embeddedtest.PauseImage}); err != nil || st == nil {
		t.Errorf("the sandboxes' image is gone: %v", err)
	}
	if w.counts["space"] != 1 {
		t.Errorf("counted %v", w.counts)
	}
}
