package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// progressPeriod is how often the client of a pull gets a progress report.
const progressPeriod = 500 * time.Millisecond

// startPatience is how long requests wait for an agent that is starting.
const startPatience = 10 * time.Second

// Errors of the commands on images, in addition to those of package gc.
var (
	// ErrStarting: the agent doesn't serve images yet.
	ErrStarting = errors.New("the agent is still starting; `deckhand version` says what it is waiting for")
	// ErrArchive: the archive can't be imported.
	ErrArchive = errors.New("no archive of images")
	// ErrName: the image name is invalid.
	ErrName = errors.New("that can't be the name of an image")
	// ErrUnsupported: the runtime has only the CRI.
	ErrUnsupported = errors.New("only the embedded runtime can import, save and tag images this way; " +
		"the one in use has commands of its own for it, such as `ctr --namespace k8s.io images import`, export and tag")
)

// Image is one image in the runtime's store.
type Image struct {
	ID string `json:"id"`
	// Refs are names with a tag, Digests are names with a digest.
	Refs    []string `json:"refs,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// Size is in bytes.
	Size   uint64 `json:"size"`
	Pinned bool   `json:"pinned,omitempty"`
	// UsedBy names pods as namespace/name.
	UsedBy []string `json:"usedBy,omitempty"`
	// LastUsed is when a pod last needed the image or a command last pulled it. It is zero if neither has happened
	// since Detected, the time when the agent first saw the image.
	LastUsed time.Time `json:"lastUsed,omitzero"`
	Detected time.Time `json:"detected,omitzero"`
}

// PullProgress is the progress of a pull.
type PullProgress struct {
	// Waiting means that the pull is queued behind others.
	Waiting bool `json:"waiting,omitempty"`
	// Since is when the pull was requested.
	Since time.Time `json:"since,omitzero"`
	// Done and Total are bytes; LayersDone and Layers count layers. All are 0 if the runtime doesn't report progress.
	Done       int64 `json:"done,omitempty"`
	Total      int64 `json:"total,omitempty"`
	LayersDone int   `json:"layersDone,omitempty"`
	Layers     int   `json:"layers,omitempty"`
}

// RemovedImage is the result of removing an image.
type RemovedImage struct {
	Image Image `json:"image"`
	// Removed means that the image was removed, or would be if this weren't a dry run.
	Removed bool `json:"removed"`
	// Untagged are the names that were removed from an image that has others.
	Untagged []string `json:"untagged,omitempty"`
	// Why is the reason for which the image was removed or not.
	Why string `json:"why,omitempty"`
}

// TaggedImage is the result of tagging an image.
type TaggedImage struct {
	// Name is the new name, fully qualified.
	Name  string `json:"name"`
	Image Image  `json:"image"`
	// Before is the ID of the other image that had the name before, or "".
	Before string `json:"before,omitempty"`
}

// ready waits until Start has loaded the records: the agent accepts commands earlier.
func (in *Images) ready(ctx context.Context) error {
	select {
	case <-in.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(startPatience):
		return ErrStarting
	}
}

// List lists the runtime's images with the pods that use them.
func (in *Images) List(ctx context.Context) ([]Image, error) {
	if err := in.ready(ctx); err != nil {
		return nil, err
	}
	list, err := in.cfg.Collector.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Image, len(list))
	for i := range list {
		out[i] = viewOfImage(&list[i])
	}
	return out, nil
}

func viewOfImage(i *gc.Image) Image {
	v := Image{ID: i.ID, Refs: i.Tags, Digests: i.Digests, Size: i.Size, Pinned: i.Pinned != "", LastUsed: i.Used,
		Detected: i.Detected}
	for _, u := range i.Users {
		if u.Pod != "" {
			v.UsedBy = append(v.UsedBy, u.Pod)
		}
	}
	slices.Sort(v.UsedBy)
	v.UsedBy = slices.Compact(v.UsedBy)
	return v
}

// Pull pulls an image with the node's credentials.
func (in *Images) Pull(ctx context.Context, name string, report func(PullProgress)) (Image, error) {
	if err := in.ready(ctx); err != nil {
		return Image{}, err
	}
	began := time.Now()
	done := make(chan struct{})
	var img pull.Image
	var err error
	go func() {
		defer close(done)
		img, err = in.Ensure(ctx, pull.Request{Image: name, Policy: v1.PullAlways, Now: true})
	}()
	ticker := time.NewTicker(progressPeriod)
	defer ticker.Stop()
	for waits := true; waits; {
		select {
		case <-done:
			waits = false
		case <-ticker.C:
			report(progressOf(in.cfg.Manager.ProgressOf(ctx, name), began))
		}
	}
	if err != nil {
		return Image{}, err
	}
	in.arrived()
	// Failing to read the other details doesn't fail the pull.
	list, err := in.List(ctx)
	if err != nil {
		in.cfg.Log.Error(err, "Can't list the images after a pull", "image", name)
	}
	if at := slices.IndexFunc(list, func(i Image) bool { return i.ID == img.Ref }); at >= 0 {
		return list[at], nil
	}
	return Image{ID: img.Ref, Refs: []string{name}, Size: uint64(max(img.Size, 0))}, nil
}

// progressOf returns the progress of an image's pull that was requested at the time since. Of several pulls, with
// different credentials, it is the one that has transferred most.
func progressOf(list []pull.Progress, since time.Time) PullProgress {
	out := PullProgress{Since: since, Waiting: len(list) > 0}
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

// archiveError makes an error an ErrArchive without changing its message.
type archiveError struct{ error }

func (archiveError) Is(target error) bool { return target == ErrArchive }

func (e archiveError) Unwrap() error { return e.error }

// Import imports the images of an archive and returns their names.
func (in *Images) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	store, err := in.store()
	if err != nil {
		return nil, err
	}
	if err := in.ready(ctx); err != nil {
		return nil, err
	}
	names, err := store.ImportFrom(ctx, archive)
	if err != nil {
		return nil, archiveError{err}
	}
	return names, nil
}

// Save writes an archive of images. Each is given by a name, or by an ID, which selects all its names. The images are
// protected from removal meanwhile.
func (in *Images) Save(ctx context.Context, images []string, archive io.Writer) error {
	store, err := in.store()
	if err != nil {
		return err
	}
	if err := in.ready(ctx); err != nil {
		return err
	}
	var names []string
	for _, image := range images {
		hold, err := in.cfg.Guard.Acquire(ctx, image, gc.User{How: "a command that saves it"})
		if err != nil {
			return err
		}
		defer hold.Release()
		img, err := in.held(ctx, hold, image)
		if err != nil {
			return err
		}
		tags := img.Named(image)
		if len(tags) == 0 {
			return fmt.Errorf("%w: image %s has no name with a tag, by which an archive could be imported: "+
				"give it one with `deckhand images tag %s NAME`", ErrName, img.Name(), img.ID)
		}
		names = append(names, tags...)
	}
	slices.Sort(names)
	return store.ExportTo(ctx, slices.Compact(names), archive)
}

// held finds the image that name refers to and protects it with hold.
func (in *Images) held(ctx context.Context, hold *gc.Hold, name string) (gc.Image, error) {
	for {
		img, err := in.cfg.Collector.Find(ctx, name)
		if err != nil {
			return gc.Image{}, err
		}
		if gone, err := hold.Found(ctx, img.ID); err != nil || !gone {
			return img, err
		}
	}
}

// Tag adds the name target to the image that source refers to; another image that has the name loses it. Access to
// the image doesn't change: an image that was pulled with a pull secret requires it under every name of the
// repository, and can't be used under names of another repository.
func (in *Images) Tag(ctx context.Context, source, target string) (TaggedImage, error) {
	store, err := in.store()
	if err != nil {
		return TaggedImage{}, err
	}
	name, err := nameToGive(target)
	if err != nil {
		return TaggedImage{}, err
	}
	if err := in.ready(ctx); err != nil {
		return TaggedImage{}, err
	}
	img, before, err := in.cfg.Collector.Tag(ctx, source, name, func(ctx context.Context, i gc.Image) error {
		return store.Tag(ctx, i.ID, slices.Concat(i.Named(source), i.Tags, i.Digests), name)
	})
	if err != nil {
		return TaggedImage{}, err
	}
	if before == img.ID {
		before = ""
	}
	if !slices.Contains(img.Tags, name) {
		img.Tags = append(slices.Clone(img.Tags), name)
	}
	in.arrived()
	return TaggedImage{Name: name, Image: viewOfImage(&img), Before: before}, nil
}

// nameToGive returns the fully qualified form of a new image name, by Docker's rules.
func nameToGive(text string) (string, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return "", fmt.Errorf("%w: %q: %w", ErrName, text, err)
	}
	if _, digested := named.(reference.Digested); digested {
		return "", fmt.Errorf("%w: %q: a tag can't have a digest: leave out the part from @", ErrName, text)
	}
	if slices.Contains([]string{"sha256", "sha384", "sha512"}, reference.FamiliarName(named)) {
		return "", fmt.Errorf("%w: %q: it would be taken for a digest", ErrName, text)
	}
	return reference.TagNameOnly(named).String(), nil
}

// Remove removes an image, or one of its names, at a user's request.
func (in *Images) Remove(ctx context.Context, name string) (RemovedImage, error) {
	if err := in.ready(ctx); err != nil {
		return RemovedImage{}, err
	}
	img, untagged, err := in.cfg.Collector.Remove(ctx, name)
	if err != nil {
		return RemovedImage{}, err
	}
	if len(untagged) > 0 {
		is := func(name string) bool { return slices.Contains(untagged, name) }
		img.Tags, img.Digests = slices.DeleteFunc(slices.Clone(img.Tags), is),
			slices.DeleteFunc(slices.Clone(img.Digests), is)
		return RemovedImage{Image: viewOfImage(&img), Untagged: untagged, Why: string(gc.Asked)}, nil
	}
	in.cfg.Collector.Wake() // so that its records are pruned too
	return RemovedImage{Image: viewOfImage(&img), Removed: true, Why: string(gc.Asked)}, nil
}

// Prune removes unused images.
func (in *Images) Prune(ctx context.Context, dryRun bool) ([]RemovedImage, error) {
	if err := in.ready(ctx); err != nil {
		return nil, err
	}
	report, err := in.cfg.Collector.Prune(ctx, dryRun)
	if err != nil {
		return nil, err
	}
	out := []RemovedImage{}
	for i := range report.Removed {
		out = append(out, RemovedImage{Image: viewOfImage(&report.Removed[i].Image), Removed: true,
			Why: report.Removed[i].Why})
	}
	for i := range report.Failed {
		out = append(out, RemovedImage{Image: viewOfImage(&report.Failed[i].Image),
			Why: fmt.Sprintf("it can't be removed: %v", report.Failed[i].Err)})
	}
	for i := range report.Retained {
		out = append(out, RemovedImage{Image: viewOfImage(&report.Retained[i].Image), Why: report.Retained[i].Why})
	}
	return out, nil
}

// store returns the runtime's store of images, or ErrUnsupported.
func (in *Images) store() (engine.Store, error) {
	if s := in.cfg.Extras.Store(); s != nil {
		return s, nil
	}
	return nil, ErrUnsupported
}
