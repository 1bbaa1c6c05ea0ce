package archives_test

import (
	"context"
	"path/filepath"
	"testing"

	images "github.com/containerd/containerd/api/services/images/v1"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// sandbox is a pod that needs no network.
func (f *directory) sandbox(t *testing.T, conn *grpc.ClientConn) (*cri.PodSandboxConfig, string) {
	t.Helper()
	config := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "uid-1"},
		LogDirectory: t.TempDir(),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: f.in.CgroupRoot + "/kubepods/poduid-1",
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{
				Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER,
			}},
		},
	}
	runtime := cri.NewRuntimeServiceClient(conn)
	run, err := runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	id := run.GetPodSandboxId()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
		if _, err := runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
	})
	return config, id
}

// id is the runtime's own reference of an image.
func (f *directory) id(t *testing.T, ref string) string {
	t.Helper()
	status, err := f.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
	if err != nil || status.GetImage() == nil {
		t.Fatalf("%s: %v, %v", ref, status, err)
	}
	return status.GetImage().GetId()
}

// writeIndexed writes an OCI archive of an image that is there for two platforms.
func writeIndexed(t *testing.T, path, ref string) {
	t.Helper()
	here, there := image(t), image(t)
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: there, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: here, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	tree := t.TempDir()
	out, err := layout.Write(tree, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.AppendIndex(index, layout.WithAnnotations(map[string]string{"io.containerd.image.name": ref})); err != nil {
		t.Fatal(err)
	}
	packTree(t, tree, path)
}

// TestAnImportedImageIsMounted: an image volume names its image by the runtime's own reference.
func TestAnImportedImageIsMounted(t *testing.T) {
	f := newDir(t)
	conn := f.in.Connect(t)
	writeArchive(t, filepath.Join(f.dir, "docker.tar"), "example.org/docker:1")
	writeIndexed(t, filepath.Join(f.dir, "oci.tar"), "example.org/oci:1")
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	pod, sandbox := f.sandbox(t, conn)
	for _, ref := range []string{"example.org/docker:1", "example.org/oci:1"} {
		_, err := cri.NewRuntimeServiceClient(conn).CreateContainer(t.Context(), &cri.CreateContainerRequest{
			PodSandboxId: sandbox, SandboxConfig: pod,
			Config: &cri.ContainerConfig{
				Metadata: &cri.ContainerMetadata{Name: filepath.Base(ref)},
				Image:    &cri.ImageSpec{Image: embeddedtest.WebImage}, Command: []string{"/web"}, LogPath: filepath.Base(ref),
				Mounts: []*cri.Mount{{ContainerPath: "/data", Readonly: true, Image: &cri.ImageSpec{Image: f.id(t, ref)}}},
			},
		})
		if err != nil {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// TestImagesOfBeforeAreMounted: those that an earlier agent imported, too.
func TestImagesOfBeforeAreMounted(t *testing.T) {
	f := newDir(t)
	writeArchive(t, filepath.Join(f.dir, "a.tar"), "example.org/a:1")
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := f.id(t, "example.org/a:1")
	named := func() bool {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
		_, err := images.NewImagesClient(f.in.Connect(t)).Get(ctx, &images.GetImageRequest{Name: id})
		if err != nil && status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
		return err == nil
	}
	if !named() {
		t.Fatal("an imported image hasn't its ID as a name")
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "containerd-namespace", "k8s.io")
	if _, err := images.NewImagesClient(f.in.Connect(t)).Delete(ctx, &images.DeleteImageRequest{Name: id, Sync: true}); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !named() {
		t.Error("an image that was imported before hasn't its ID as a name")
	}
	if got := len(f.told); got != 1 {
		t.Errorf("it was imported %d times", got)
	}
}
