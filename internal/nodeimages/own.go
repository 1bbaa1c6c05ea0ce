package nodeimages

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/local"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/progress"
)

// Own is what a runtime does beyond the CRI if it is deckhand's own: Embedded or Other.
type Own interface {
	// Keep returns images that aren't removed, by name, with why.
	Keep() map[string]string
	// Archives returns what takes in archives. The error says, for a person, why nothing does.
	Archives() (Importer, error)
	// Transfer tells how far the pull of an image is, false if nobody can tell.
	Transfer(ctx context.Context, image string) (image.Transfer, bool)
}

// Importer takes in the images of an archive and returns their names.
type Importer interface {
	ImportFrom(ctx context.Context, archive io.Reader) ([]string, error)
}

// Embedded is the runtime that deckhand brings.
type Embedded struct {
	Runtime *embedded.Runtime
	Config  embedded.Config
}

// Keep returns the images that came with deckhand or that a person has put beside it, and why
// each stays: with no registry to pull them from, they would be gone for good.
func (e Embedded) Keep() map[string]string {
	keep := map[string]string{}
	for _, name := range e.Runtime.Archived() {
		keep[name] = "its archive is in the images folder"
	}
	keep[e.Config.PauseImage] = "the image of the pods' sandboxes"
	return keep
}

// Archives returns the runtime itself.
func (e Embedded) Archives() (Importer, error) { return e.Runtime, nil }

// Transfer asks containerd how far a pull is.
func (e Embedded) Transfer(ctx context.Context, name string) (image.Transfer, bool) {
	conn, err := embedded.Dial(e.Config)
	if err != nil {
		return image.Transfer{}, false
	}
	defer conn.Close()
	p, known, err := progress.Of(ctx, conn, name)
	return image.Transfer(p), known && err == nil
}

// Other is any other runtime: it has the CRI and nothing more.
type Other struct{}

// Keep returns none: such a runtime pins the images it needs.
func (Other) Keep() map[string]string { return nil }

// Archives returns an error.
func (Other) Archives() (Importer, error) {
	return nil, &local.StatusError{Code: http.StatusNotImplemented, Err: errors.New(
		"only the embedded runtime can be given archives this way; the one in use has a command of its own for it, such as `ctr --namespace k8s.io images import`")}
}

// Transfer can't tell.
func (Other) Transfer(context.Context, string) (image.Transfer, bool) { return image.Transfer{}, false }
