package localtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/local"
)

// List implements local.Images.
func (a *Agent) List(context.Context) ([]local.Image, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.images, nil
}

// Pull implements local.Images: an image of that name comes, unless the name has
// "none" in it.
func (a *Agent) Pull(_ context.Context, name string, progress func(local.PullProgress)) (local.Image, error) {
	progress(local.PullProgress{Layers: 2, LayersDone: 1, Done: 500, Total: 1000})
	if strings.Contains(name, "none") {
		return local.Image{}, fmt.Errorf("failed to pull image %q: not found", name)
	}
	image := local.Image{ID: "sha256:pulled", Refs: []string{name}, Size: 1000}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.images = append(slices.Clone(a.images), image)
	return image, nil
}

// Import implements local.Images: an archive is a list of names.
func (a *Agent) Import(_ context.Context, archive io.Reader) ([]string, error) {
	text, err := io.ReadAll(archive)
	if names := strings.Fields(string(text)); len(names) > 0 {
		return names, err
	}
	return nil, &local.StatusError{Code: http.StatusUnprocessableEntity, Err: fmt.Errorf("no image in it has a name")}
}

// Remove implements local.Images.
func (a *Agent) Remove(_ context.Context, name string) (local.RemovedImage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, image := range a.images {
		switch {
		case !slices.Contains(image.Refs, name):
		case len(image.UsedBy) > 0:
			return local.RemovedImage{}, &local.StatusError{Code: http.StatusConflict, Err: fmt.Errorf("image %s is in use by %s", name, strings.Join(image.UsedBy, ", "))}
		default:
			a.images = slices.Delete(slices.Clone(a.images), i, i+1)
			return local.RemovedImage{Image: image, Removed: true}, nil
		}
	}
	return local.RemovedImage{}, &local.StatusError{Code: http.StatusNotFound, Err: fmt.Errorf("there is no image %s", name)}
}

// Prune implements local.Images.
func (a *Agent) Prune(_ context.Context, dryRun bool) ([]local.RemovedImage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []local.RemovedImage
	var kept []local.Image
	for _, image := range a.images {
		if used := strings.Join(image.UsedBy, ", "); used != "" {
			list = append(list, local.RemovedImage{Image: image, Why: "in use by " + used})
			kept = append(kept, image)
			continue
		}
		list = append(list, local.RemovedImage{Image: image, Removed: true, Why: "nothing uses it"})
	}
	if !dryRun {
		a.images = kept
	}
	return list, nil
}
