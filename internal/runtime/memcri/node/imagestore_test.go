package node_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
)

func pull(t *testing.T, s *node.Store, ref string) (string, error) {
	t.Helper()
	r, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	return r.GetImageRef(), err
}

func TestPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := node.NewImageStore("/images")
		boom := errors.New("no such registry")
		s.Script("nginx", node.PullBehaviour{Takes: time.Hour, Err: boom})
		if _, err := pull(t, s, "docker.io/library/nginx:latest"); !errors.Is(err, boom) {
			t.Errorf("pull: %v, want %v: a script holds for every spelling of a reference", err, boom)
		}
		if _, ok := s.Resolve("nginx"); ok {
			t.Error("a failed pull left the image")
		}
		s.Script("nginx", node.PullBehaviour{Takes: time.Minute, User: "101:101", Size: 5})
		began := time.Now()
		id, err := pull(t, s, "nginx")
		if err != nil || time.Since(began) != time.Minute {
			t.Fatalf("pull: %v after %s", err, time.Since(began))
		}
		img, ok := s.Resolve(id)
		if !ok || img.GetUid().GetValue() != 101 || img.GetSize() != 5 || img.GetRepoTags()[0] != "docker.io/library/nginx:latest" {
			t.Errorf("image is %v", img)
		}
		if byDigest, ok := s.Resolve(img.GetRepoDigests()[0]); !ok || byDigest != img {
			t.Errorf("by digest %s there is %v", img.GetRepoDigests()[0], byDigest)
		}
	})
}

func TestRemove(t *testing.T) {
	s := node.NewImageStore("/images")
	s.Add("example.com/a:1", true)
	s.Add("localhost:5000/b", false)
	for range 2 { // the second finds nothing, which is fine
		if _, err := s.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "localhost:5000/b:latest"}}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.ListImages(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.GetImages()) != 1 || !r.GetImages()[0].GetPinned() {
		t.Errorf("images left: %v, want the pinned one", r.GetImages())
	}
}
