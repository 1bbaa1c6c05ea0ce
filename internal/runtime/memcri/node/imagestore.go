package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PullBehaviour is the behaviour of an image's pull.
type PullBehaviour struct {
	// Takes is how long a pull lasts.
	Takes time.Duration
	// Err, if set, is the error of the pull after Takes.
	Err error
	// Size of the image in bytes; 0 means 1 MiB.
	Size uint64
	// User is the image's user: a number or a name; empty means none.
	User string
}

// Store stores images and serves the CRI ImageService. Every reference can be pulled unless Script makes it fail.
// The zero value is not usable; see NewImageStore. All methods may be called concurrently.
type Store struct {
	runtimeapi.UnimplementedImageServiceServer

	mountpoint string

	mu     sync.Mutex
	images map[string]*runtimeapi.Image // by ID; values are immutable
	byRef  map[string]string            // normalized reference -> ID
	script map[string]PullBehaviour     // normalized reference
}

// NewImageStore returns a Store; mountpoint is the one in its file system info.
func NewImageStore(mountpoint string) *Store {
	return &Store{
		mountpoint: mountpoint,
		images:     make(map[string]*runtimeapi.Image),
		byRef:      make(map[string]string),
		script:     make(map[string]PullBehaviour),
	}
}

// Script sets the behaviour of pulls of ref. An invalid ref is used unchanged.
func (s *Store) Script(ref string, b PullBehaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script[normalize(ref)] = b
}

// Add adds the image, as if it had been imported, and returns its ID. pinned sets the flag that protects the image
// from garbage collection.
func (s *Store) Add(ref string, pinned bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(normalize(ref), pinned)
}

func (s *Store) add(ref string, pinned bool) string {
	b := s.script[ref]
	repo := ref
	var tags []string
	digest := "sha256:" + hash("manifest", ref)
	if at := strings.LastIndex(ref, "@"); at > 0 {
		repo, digest = ref[:at], ref[at+1:]
	} else {
		tags = []string{ref}
		if colon := strings.LastIndex(ref, ":"); colon > strings.LastIndex(ref, "/") {
			repo = ref[:colon]
		}
	}
	img := &runtimeapi.Image{
		Id:          "sha256:" + hash("config", ref),
		RepoTags:    tags,
		RepoDigests: []string{repo + "@" + digest},
		Size:        cmp.Or(b.Size, 1<<20),
		Pinned:      pinned,
	}
	if uid, ok := userNumber(b.User); ok {
		img.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		img.Username = b.User
	}
	s.images[img.Id] = img
	s.byRef[ref] = img.Id
	s.byRef[img.RepoDigests[0]] = img.Id
	return img.Id
}

// Resolve finds an image by ID or reference. The result is read-only.
func (s *Store) Resolve(ref string) (*runtimeapi.Image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resolve(ref)
}

func (s *Store) resolve(ref string) (*runtimeapi.Image, bool) {
	if img, ok := s.images[ref]; ok {
		return img, true
	}
	if img, ok := s.images["sha256:"+ref]; ok {
		return img, true
	}
	img, ok := s.images[s.byRef[normalize(ref)]]
	return img, ok
}

// PullImage adds the image after the duration of its PullBehaviour.
func (s *Store) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref := r.GetImage().GetImage()
	if _, err := reference.ParseDockerRef(ref); err != nil {
		return nil, status.Errorf(codes.Unknown, "failed to parse image reference %q: %v", ref, err)
	}
	ref = normalize(ref)
	s.mu.Lock()
	b := s.script[ref]
	s.mu.Unlock()
	if b.Takes > 0 {
		select {
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-time.After(b.Takes):
		}
	}
	if b.Err != nil {
		return nil, b.Err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &runtimeapi.PullImageResponse{ImageRef: s.add(ref, false)}, nil
}

// ImageStatus returns the image, or an empty answer if it doesn't exist.
func (s *Store) ImageStatus(_ context.Context,
	r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	img, _ := s.Resolve(r.GetImage().GetImage())
	return &runtimeapi.ImageStatusResponse{Image: img}, nil
}

// ListImages returns every image; like containerd it ignores the filter.
func (s *Store) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: s.list()}, nil
}

// StreamImages is ListImages in one batch.
func (s *Store) StreamImages(_ *runtimeapi.StreamImagesRequest,
	out grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	if images := s.list(); len(images) > 0 {
		return out.Send(&runtimeapi.StreamImagesResponse{Images: images})
	}
	return nil
}

func (s *Store) list() []*runtimeapi.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	images := make([]*runtimeapi.Image, 0, len(s.images))
	for _, img := range s.images {
		images = append(images, img)
	}
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int { return cmp.Compare(a.Id, b.Id) })
	return images
}

// RemoveImage removes the image with all its references. A missing image isn't an error.
func (s *Store) RemoveImage(_ context.Context,
	r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if img, ok := s.resolve(r.GetImage().GetImage()); ok {
		delete(s.images, img.Id)
		for ref, id := range s.byRef {
			if id == img.Id {
				delete(s.byRef, ref)
			}
		}
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo returns the disk usage of images.
func (s *Store) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var used uint64
	for _, img := range s.images {
		used += img.Size
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: s.mountpoint},
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(s.images))},
	}}}, nil
}

// normalize returns the full reference, as runtimes store it: "nginx" becomes "docker.io/library/nginx:latest".
func normalize(ref string) string {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ref
	}
	return named.String()
}

func hash(kind, ref string) string {
	sum := sha256.Sum256([]byte(kind + " " + ref))
	return hex.EncodeToString(sum[:])
}

// userNumber parses a numeric user ("65532", "65532:65532"); false for a name.
func userNumber(user string) (int64, bool) {
	user, _, _ = strings.Cut(user, ":")
	n, err := strconv.ParseInt(user, 10, 64)
	return n, err == nil
}
