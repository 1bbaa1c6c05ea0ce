package image

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/image/access"
)

// Records keeps in order who may use which image, by what the runtime has (gc.Listener).
type Records struct {
	Access  *access.Records
	Runtime Runtime
	Log     logr.Logger
}

func (r *Records) load() {
	if err := r.Access.Load(); err != nil {
		r.Log.Error(err, "Can't read who may use the images on this node: pods have to present credentials for each")
	}
}

// Present is called with the images there are.
func (r *Records) Present(ctx context.Context, ids []string, since time.Time) {
	if err := errors.Join(r.Access.ResolveIntents(ctx, r.refOf), r.Access.Prune(ids, since)); err != nil &&
		ctx.Err() == nil {
		r.Log.Error(err, "Can't clean up the records of who may use which image")
	}
}

// imported records that an image came by other means than a pull.
func (r *Records) imported(ctx context.Context, name string) {
	ref, err := r.refOf(ctx, name)
	if err == nil && ref != "" {
		err = r.Access.Imported(name, ref)
	}
	if err != nil && ctx.Err() == nil {
		r.Log.Error(err, "Can't record that an image was imported", "image", name)
	}
}

// refOf is what the runtime has under a name; empty for nothing.
func (r *Records) refOf(ctx context.Context, name string) (string, error) {
	stored, err := r.Runtime.ImageStatus(ctx, name)
	return stored.Ref, err
}
