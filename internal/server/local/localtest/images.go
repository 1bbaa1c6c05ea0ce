package localtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	internalimage "github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// List implements local.Images.
func (a *Agent) List(context.Context) ([]internalimage.Image, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.images, nil
}

// Pull implements local.Images: it adds an image of that name, unless the name contains "none".
func (a *Agent) Pull(_ context.Context, name string,
	progress func(internalimage.PullProgress)) (internalimage.Image, error) {
	progress(internalimage.PullProgress{Layers: 2, LayersDone: 1, Done: 500, Total: 1000})
	if strings.Contains(name, "none") {
		return internalimage.Image{}, fmt.Errorf("failed to pull image %q: not found", name)
	}
	image := internalimage.Image{ID: "sha256:pulled", Refs: []string{name}, Size: 1000}
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

// Save implements local.Images: an archive is a list of names, as for Import. An image with "broken" in its name
// fails after it was written; one with "endless" is written until a write fails.
func (a *Agent) Save(_ context.Context, names []string, archive io.Writer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		if !slices.ContainsFunc(a.images, func(i internalimage.Image) bool { return slices.Contains(i.Refs, name) }) {
			return &local.StatusError{Code: http.StatusNotFound, Err: fmt.Errorf("there is no image %s", name)}
		}
	}
	for _, name := range names {
		for again := true; again; again = strings.Contains(name, "endless") {
			if _, err := fmt.Fprintln(archive, name); err != nil {
				return err
			}
		}
		if strings.Contains(name, "broken") {
			return fmt.Errorf("image %s: its layer is gone", name)
		}
	}
	return nil
}

// Tag implements local.Images.
func (a *Agent) Tag(_ context.Context, source, target string) (internalimage.TaggedImage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.images = slices.Clone(a.images)
	at := slices.IndexFunc(a.images, func(i internalimage.Image) bool { return slices.Contains(i.Refs, source) })
	if at < 0 {
		err := &local.StatusError{Code: http.StatusNotFound, Err: fmt.Errorf("there is no image %s", source)}
		return internalimage.TaggedImage{}, err
	}
	tagged := internalimage.TaggedImage{Name: target}
	is := func(name string) bool { return name == target }
	for i := range a.images {
		if refs := a.images[i].Refs; i != at && slices.ContainsFunc(refs, is) {
			tagged.Before, a.images[i].Refs = a.images[i].ID, slices.DeleteFunc(slices.Clone(refs), is)
		}
	}
	a.images[at].Refs = append(slices.Clone(a.images[at].Refs), target)
	tagged.Image = a.images[at]
	return tagged, nil
}

// Remove implements local.Images.
func (a *Agent) Remove(_ context.Context, name string) (internalimage.RemovedImage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, image := range a.images {
		switch {
		case !slices.Contains(image.Refs, name):
		case len(image.UsedBy) > 0:
			return internalimage.RemovedImage{},
				&local.StatusError{Code: http.StatusConflict,
					Err: fmt.Errorf("image %s is in use by %s", name, strings.Join(image.UsedBy, ", "))}
		default:
			a.images = slices.Delete(slices.Clone(a.images), i, i+1)
			return internalimage.RemovedImage{Image: image, Removed: true}, nil
		}
	}
	return internalimage.RemovedImage{},
		&local.StatusError{Code: http.StatusNotFound, Err: fmt.Errorf("there is no image %s", name)}
}

// Prune implements local.Images.
func (a *Agent) Prune(_ context.Context, dryRun bool) ([]internalimage.RemovedImage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []internalimage.RemovedImage
	var left []internalimage.Image
	for _, image := range a.images {
		if used := strings.Join(image.UsedBy, ", "); used != "" {
			list = append(list, internalimage.RemovedImage{Image: image, Why: "in use by " + used})
			left = append(left, image)
			continue
		}
		list = append(list, internalimage.RemovedImage{Image: image, Removed: true, Why: "nothing uses it"})
	}
	if !dryRun {
		a.images = left
	}
	return list, nil
}
