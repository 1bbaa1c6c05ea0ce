package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Images is what the server needs to know of the node's images. All methods may be
// called concurrently.
type Images interface {
	// List lists the runtime's images.
	List(ctx context.Context) ([]Image, error)
	// Pull fetches an image, or finds that the newest is there. It calls progress, from
	// one goroutine at a time, when there is something new to tell.
	Pull(ctx context.Context, name string, progress func(PullProgress)) (Image, error)
	// Import takes in the images of an archive and returns their names.
	Import(ctx context.Context, archive io.Reader) ([]string, error)
	// Remove removes an image by name, digest or ID. The error for one in use should be a
	// *StatusError with 409, for one that isn't there with 404.
	Remove(ctx context.Context, name string) (RemovedImage, error)
	// Prune removes the images that nothing uses, or says what it would do.
	Prune(ctx context.Context, dryRun bool) ([]RemovedImage, error)
}

// Image is one image in the runtime's store.
type Image struct {
	ID string `json:"id"`
	// Refs are its names with tags, Digests those with digests.
	Refs    []string `json:"refs,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// Size is in bytes.
	Size   uint64 `json:"size"`
	Pinned bool   `json:"pinned,omitempty"`
	// UsedBy names pods as namespace/name.
	UsedBy []string `json:"usedBy,omitempty"`
	// LastUsed is when a pod last needed it, or somebody pulled it by hand; zero if none did
	// since the agent knows of the image, which is since Detected.
	LastUsed time.Time `json:"lastUsed,omitzero"`
	Detected time.Time `json:"detected,omitzero"`
}

// PullProgress is how far a pull is.
type PullProgress struct {
	// Waiting says that it waits for other pulls to end.
	Waiting bool `json:"waiting,omitempty"`
	// Since is when the pull was asked for.
	Since time.Time `json:"since,omitzero"`
	// Done and Total are bytes, Layers counts the layers that are there and to come; all 0
	// where the runtime doesn't tell.
	Done       int64 `json:"done,omitempty"`
	Total      int64 `json:"total,omitempty"`
	LayersDone int   `json:"layersDone,omitempty"`
	Layers     int   `json:"layers,omitempty"`
}

// PullUpdate is one line of a pull's progress. The last one has either Image or Error.
type PullUpdate struct {
	Progress *PullProgress `json:"progress,omitempty"`
	Image    *Image        `json:"image,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// RemovedImage is what became of an image that was to be removed.
type RemovedImage struct {
	Image Image `json:"image"`
	// Removed says that it is gone, or would be if this weren't a dry run.
	Removed bool `json:"removed"`
	// Why says why it went, or stays.
	Why string `json:"why,omitempty"`
}

func (s *Server) listImages(w http.ResponseWriter, r *http.Request) error {
	images, err := s.images.List(r.Context())
	if err != nil {
		return err
	}
	return answer(w, images)
}

// pullImage streams the progress of a pull. It goes on for as long as the client stays.
func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	if name == "" {
		return &StatusError{http.StatusBadRequest, fmt.Errorf("which image is to be pulled?")}
	}
	w.Header().Set("Content-Type", ndjson)
	var mu sync.Mutex
	flusher, encoder := http.NewResponseController(w), json.NewEncoder(w)
	send := func(u PullUpdate) {
		mu.Lock()
		defer mu.Unlock()
		// A client that has gone ends the request, and with it the pull.
		if encoder.Encode(u) == nil {
			_ = flusher.Flush()
		}
	}
	image, err := s.images.Pull(r.Context(), name, func(p PullProgress) { send(PullUpdate{Progress: &p}) })
	if err != nil {
		if r.Context().Err() != nil {
			err = errors.New("the agent is stopping; the pull was given up")
		}
		send(PullUpdate{Error: err.Error()})
		return nil
	}
	send(PullUpdate{Image: &image})
	return nil
}

func (s *Server) importImages(w http.ResponseWriter, r *http.Request) error {
	names, err := s.images.Import(r.Context(), r.Body)
	if err != nil {
		return err
	}
	return answer(w, names)
}

func (s *Server) removeImage(w http.ResponseWriter, r *http.Request) error {
	removed, err := s.images.Remove(r.Context(), r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	return answer(w, removed)
}

func (s *Server) pruneImages(w http.ResponseWriter, r *http.Request) error {
	dryRun, err := strconv.ParseBool(r.URL.Query().Get("dryRun"))
	if err != nil {
		return &StatusError{http.StatusBadRequest, fmt.Errorf("dryRun must be true or false")}
	}
	list, err := s.images.Prune(r.Context(), dryRun)
	if err != nil {
		return err
	}
	return answer(w, list)
}
