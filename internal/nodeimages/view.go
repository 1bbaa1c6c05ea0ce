package nodeimages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/imagegc"
	"github.com/deckhand-node/deckhand/internal/imagegc/choice"
	"github.com/deckhand-node/deckhand/internal/local"
)

// progressPeriod is how often a person who waits for a pull is told how far it is.
const progressPeriod = 500 * time.Millisecond

// startPatience is how long a person waits for an agent that is just starting.
const startPatience = 10 * time.Second

// What the local API shows and does about images.
var _ local.Images = (*Images)(nil)

// ready waits until images may be asked for: commands are answered from the beginning.
func (in *Images) ready(ctx context.Context) error {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-in.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-patience.C:
		return &local.StatusError{Code: http.StatusServiceUnavailable, Err: errors.New("the agent is still starting; `deckhand version` tells what it waits for")}
	}
}

// List lists the runtime's images, and who uses them.
func (in *Images) List(ctx context.Context) ([]local.Image, error) {
	if err := in.ready(ctx); err != nil {
		return nil, err
	}
	list, err := in.cfg.Collector.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]local.Image, len(list))
	for i := range list {
		out[i] = viewOfImage(&list[i])
	}
	return out, nil
}

func viewOfImage(i *choice.Image) local.Image {
	v := local.Image{ID: i.ID, Refs: i.Tags, Digests: i.Digests, Size: i.Size, Pinned: i.Pinned != "", LastUsed: i.Used, Detected: i.Detected}
	for _, u := range i.Users {
		if u.Pod != "" {
			v.UsedBy = append(v.UsedBy, u.Pod)
		}
	}
	slices.Sort(v.UsedBy)
	v.UsedBy = slices.Compact(v.UsedBy)
	return v
}

// Pull fetches an image with the node's own credentials.
func (in *Images) Pull(ctx context.Context, name string, tell func(local.PullProgress)) (local.Image, error) {
	if err := in.ready(ctx); err != nil {
		return local.Image{}, err
	}
	began := time.Now()
	done := make(chan struct{})
	var img image.Image
	var err error
	go func() {
		defer close(done)
		img, err = in.Ensure(ctx, image.Request{Image: name, Policy: v1.PullAlways, Now: true})
	}()
	ticker := time.NewTicker(progressPeriod)
	defer ticker.Stop()
	for waits := true; waits; {
		select {
		case <-done:
			waits = false
		case <-ticker.C:
			tell(progressOf(in.cfg.Manager.ProgressOf(ctx, name), began))
		}
	}
	if err != nil {
		return local.Image{}, err
	}
	in.arrived()
	// What else there is to know of it isn't worth failing for.
	list, err := in.List(ctx)
	if err != nil {
		in.cfg.Log.Error(err, "Can't list the images after a pull", "image", name)
	}
	if at := slices.IndexFunc(list, func(i local.Image) bool { return i.ID == img.Ref }); at >= 0 {
		return list[at], nil
	}
	return local.Image{ID: img.Ref, Refs: []string{name}, Size: uint64(max(img.Size, 0))}, nil
}

// progressOf is how far the pull of an image is that was asked for at that time: of several,
// with other credentials, the one that is furthest.
func progressOf(list []image.Progress, since time.Time) local.PullProgress {
	out := local.PullProgress{Since: since, Waiting: len(list) > 0}
	for _, p := range list {
		if p.Position > 0 {
			continue
		}
		out.Waiting = false
		if t := p.Transfer; t != nil && t.BytesDone >= out.Done {
			out.Done, out.Total, out.LayersDone, out.Layers = t.BytesDone, t.Bytes, t.LayersDone, t.Layers
		}
	}
	return out
}

// Import takes in an archive.
func (in *Images) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	archives, err := in.cfg.Own.Archives()
	if err != nil {
		return nil, err
	}
	if err := in.ready(ctx); err != nil {
		return nil, err
	}
	names, err := archives.ImportFrom(ctx, archive)
	if err != nil {
		return nil, &local.StatusError{Code: http.StatusUnprocessableEntity, Err: err}
	}
	return names, nil
}

// Remove removes an image for a person.
func (in *Images) Remove(ctx context.Context, name string) (local.RemovedImage, error) {
	if err := in.ready(ctx); err != nil {
		return local.RemovedImage{}, err
	}
	img, err := in.cfg.Collector.Remove(ctx, name)
	switch {
	case errors.Is(err, imagegc.ErrUnknown):
		return local.RemovedImage{}, &local.StatusError{Code: http.StatusNotFound, Err: err}
	case errors.Is(err, imagegc.ErrKept):
		return local.RemovedImage{}, &local.StatusError{Code: http.StatusConflict, Err: err}
	case errors.Is(err, imagegc.ErrUnsettled):
		return local.RemovedImage{}, &local.StatusError{Code: http.StatusServiceUnavailable, Err: err}
	case err != nil:
		return local.RemovedImage{}, err
	}
	in.cfg.Collector.Wake() // so that its records go too
	return local.RemovedImage{Image: viewOfImage(&img), Removed: true, Why: string(choice.Asked)}, nil
}

// Prune removes what nothing uses.
func (in *Images) Prune(ctx context.Context, dryRun bool) ([]local.RemovedImage, error) {
	if err := in.ready(ctx); err != nil {
		return nil, err
	}
	report, err := in.cfg.Collector.Prune(ctx, dryRun)
	if errors.Is(err, imagegc.ErrUnsettled) {
		return nil, &local.StatusError{Code: http.StatusServiceUnavailable, Err: err}
	}
	if err != nil {
		return nil, err
	}
	out := []local.RemovedImage{}
	for i := range report.Removed {
		out = append(out, local.RemovedImage{Image: viewOfImage(&report.Removed[i].Image), Removed: true, Why: report.Removed[i].Why})
	}
	for i := range report.Failed {
		out = append(out, local.RemovedImage{Image: viewOfImage(&report.Failed[i].Image), Why: fmt.Sprintf("it can't be removed: %v", report.Failed[i].Err)})
	}
	for i := range report.Kept {
		out = append(out, local.RemovedImage{Image: viewOfImage(&report.Kept[i].Image), Why: report.Kept[i].Why})
	}
	return out, nil
}
