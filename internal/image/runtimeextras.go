package image

import (
	"context"
	"errors"
	"io"

	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// RuntimeExtras is what the embedded runtime does beyond the CRI: Embedded, or NoExtras for any other runtime.
type RuntimeExtras interface {
	// Keep returns images that aren't removed, by name, with why.
	Keep() map[string]string
	// Untag removes names of images that have others; errors.ErrUnsupported where that can't be done.
	Untag(ctx context.Context, names []string) error
	// BeforePull is called before the runtime is asked to pull an image. After an error it isn't.
	BeforePull(image string) error
	// Store returns what reads and writes archives, and names images. The error says, for a person, why nothing does.
	Store() (Store, error)
	// Transfer reports how far the pull of an image is, false if that isn't known.
	Transfer(ctx context.Context, image string) (pull.Transfer, bool)
}

// Store is the runtime's store of images, as far as the CRI doesn't have it.
type Store interface {
	// ImportFrom takes in the images of an archive and returns their names.
	ImportFrom(ctx context.Context, archive io.Reader) ([]string, error)
	// ExportTo writes an archive with the images of these names, which are in full.
	ExportTo(ctx context.Context, names []string, archive io.Writer) error
	// Tag gives the image with the ID, which has one of the names, the name target too: in full, and whatever image
	// had it before.
	Tag(ctx context.Context, id string, names []string, target string) error
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
		keep[name] = "its archive is in the images directory"
	}
	keep[e.Config.PauseImage] = "the image of the pods' sandboxes"
	return keep
}

// Untag has containerd do it: the CRI removes images with all their names.
func (e Embedded) Untag(ctx context.Context, names []string) error {
	conn, err := embedded.Dial(e.Config)
	if err != nil {
		return err
	}
	defer conn.Close()
	return embedded.Untag(ctx, conn, names)
}

// BeforePull sees to it that the registry's certificate is verified.
func (e Embedded) BeforePull(name string) error { return e.Config.VerifyRegistry(name) }

// Store returns the runtime itself.
func (e Embedded) Store() (Store, error) { return e.Runtime, nil }

// Transfer asks containerd how far a pull is.
func (e Embedded) Transfer(ctx context.Context, name string) (pull.Transfer, bool) {
	conn, err := embedded.Dial(e.Config)
	if err != nil {
		return pull.Transfer{}, false
	}
	defer conn.Close()
	p, known, err := embedded.TransferOf(ctx, conn, name)
	return pull.Transfer(p), known && err == nil
}

// NoExtras is for any other runtime, which has the CRI and nothing more.
type NoExtras struct{}

// Keep returns none: such a runtime pins the images it needs.
func (NoExtras) Keep() map[string]string { return nil }

// Untag returns errors.ErrUnsupported.
func (NoExtras) Untag(context.Context, []string) error { return errors.ErrUnsupported }

// BeforePull returns nil.
func (NoExtras) BeforePull(string) error { return nil }

// Store returns ErrUnsupported.
func (NoExtras) Store() (Store, error) { return nil, ErrUnsupported }

// Transfer returns false: the CRI doesn't report it.
func (NoExtras) Transfer(context.Context, string) (pull.Transfer, bool) {
	return pull.Transfer{}, false
}
