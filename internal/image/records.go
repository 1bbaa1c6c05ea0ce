package image

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/image/access"
)

// Records updates the access records to match the runtime's images. It implements gc.Listener.
type Records struct {
	Access  *access.Records
	Runtime Runtime
	Log     logr.Logger
}

func (r *Records) load() {
	if err := r.Access.Load(); err != nil {
		r.Log.Error(err, "Failed to read the records of image pulls: pods have to present credentials for each image")
	}
}

// Present resolves pull intents and prunes records; ids are the images that the runtime had at the time since or later.
func (r *Records) Present(ctx context.Context, ids []string, since time.Time) {
	if err := errors.Join(r.Access.ResolveIntents(ctx, r.refOf), r.Access.Prune(ids, since)); err != nil &&
		ctx.Err() == nil {
		r.Log.Error(err, "Failed to clean up the records of image pulls")
	}
}

// imported records that an image arrived without a pull.
func (r *Records) imported(ctx context.Context, name string) {
	ref, err := r.refOf(ctx, name)
	if err == nil && ref != "" {
		err = r.Access.Imported(name, ref)
	}
	if err != nil && ctx.Err() == nil {
		r.Log.Error(err, "Can't record that an image was imported", "image", name)
	}
}

// refOf returns the runtime's reference of the named image, or "" if there is no such image.
func (r *Records) refOf(ctx context.Context, name string) (string, error) {
	stored, err := r.Runtime.ImageStatus(ctx, name)
	return stored.Ref, err
}
