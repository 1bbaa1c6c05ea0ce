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

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// Images is the node's image service. All methods may be called concurrently. Errors wrap those of packages image and
// image/gc that clients distinguish.
type Images interface {
	// List lists the runtime's images.
	List(ctx context.Context) ([]image.Image, error)
	// Pull pulls an image, unless its newest version is present. It calls progress for each update, never
	// concurrently.
	Pull(ctx context.Context, name string, progress func(image.PullProgress)) (image.Image, error)
	// Import imports the images of an archive and returns their names.
	Import(ctx context.Context, archive io.Reader) ([]string, error)
	// Save writes an archive of images, each given by name, digest or ID.
	Save(ctx context.Context, images []string, archive io.Writer) error
	// Tag adds the name target to the image source.
	Tag(ctx context.Context, source, target string) (image.TaggedImage, error)
	// Remove removes an image by name, digest or ID.
	Remove(ctx context.Context, name string) (image.RemovedImage, error)
	// Prune removes unused images, or only lists them if dryRun is set.
	Prune(ctx context.Context, dryRun bool) ([]image.RemovedImage, error)
}

// PullUpdate is one line of a pull's progress. The last one has either Image or Error.
type PullUpdate struct {
	Progress *image.PullProgress `json:"progress,omitempty"`
	Image    *image.Image        `json:"image,omitempty"`
	Error    string              `json:"error,omitempty"`
}

// answerImages answers with the result of an image request.
func answerImages[T any](w http.ResponseWriter, value T, err error) error {
	if err != nil {
		return imagesError(err)
	}
	return answer(w, value)
}

// imagesError adds the HTTP status to an error about images that corresponds to the kind of error.
func imagesError(err error) error {
	var code int
	switch {
	case atomicfile.DiskFull(err):
		return err
	case errors.Is(err, gc.ErrUnknown):
		code = http.StatusNotFound
	case errors.Is(err, gc.ErrRetained):
		code = http.StatusConflict
	case errors.Is(err, image.ErrName):
		code = http.StatusBadRequest
	case errors.Is(err, image.ErrArchive):
		code = http.StatusUnprocessableEntity
	case errors.Is(err, image.ErrUnsupported):
		code = http.StatusNotImplemented
	case errors.Is(err, gc.ErrUsesUnknown), errors.Is(err, image.ErrStarting):
		code = http.StatusServiceUnavailable
	default:
		return err
	}
	return &StatusError{code, err}
}

func (s *Server) listImages(w http.ResponseWriter, r *http.Request) error {
	images, err := s.images.List(r.Context())
	return answerImages(w, images, err)
}

// pullImage streams the progress of a pull. It is cancelled when the client leaves.
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
		// If the client leaves, the request's context ends, and with it the pull.
		if encoder.Encode(u) == nil {
			_ = flusher.Flush()
		}
	}
	image, err := s.images.Pull(r.Context(), name, func(p image.PullProgress) { send(PullUpdate{Progress: &p}) })
	if err != nil {
		if r.Context().Err() != nil {
			err = errors.New("the agent is stopping; the pull was given up")
		}
		send(PullUpdate{Error: room.Explain(err).Error()})
		return nil
	}
	send(PullUpdate{Image: &image})
	return nil
}

func (s *Server) importImages(w http.ResponseWriter, r *http.Request) error {
	names, err := s.images.Import(r.Context(), r.Body)
	return answerImages(w, names, err)
}

// saveImages sends an archive. An error after its first byte is sent in the trailer.
func (s *Server) saveImages(w http.ResponseWriter, r *http.Request) error {
	names := r.URL.Query()["name"]
	if len(names) == 0 {
		return &StatusError{http.StatusBadRequest, errors.New("which images are to be saved?")}
	}
	archive := &archiveWriter{w: w}
	err := s.images.Save(r.Context(), names, archive)
	if err != nil && r.Context().Err() != nil {
		// If the client is gone instead, it doesn't receive this error.
		err = errors.New("the agent is stopping; the archive isn't whole")
	}
	if err != nil && archive.begun {
		w.Header().Set(errorTrailer, err.Error())
		return nil
	}
	if err != nil {
		return imagesError(err)
	}
	return nil
}

// archiveWriter sends an archive. It sends the HTTP header with the archive's first byte, so that an error before that
// byte can still set the status.
type archiveWriter struct {
	w     http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (a *archiveWriter) Write(b []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/x-tar")
		a.w.Header().Set("Trailer", errorTrailer)
	}
	return a.w.Write(b)
}

func (s *Server) tagImage(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	tagged, err := s.images.Tag(r.Context(), q.Get("source"), q.Get("target"))
	return answerImages(w, tagged, err)
}

func (s *Server) removeImage(w http.ResponseWriter, r *http.Request) error {
	removed, err := s.images.Remove(r.Context(), r.URL.Query().Get("name"))
	return answerImages(w, removed, err)
}

func (s *Server) pruneImages(w http.ResponseWriter, r *http.Request) error {
	dryRun, err := strconv.ParseBool(r.URL.Query().Get("dryRun"))
	if err != nil {
		return &StatusError{http.StatusBadRequest, fmt.Errorf("dryRun must be true or false")}
	}
	list, err := s.images.Prune(r.Context(), dryRun)
	return answerImages(w, list, err)
}
