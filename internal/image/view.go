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

// progressPeriod is how often a person who waits for a pull is shown how far it is.
const progressPeriod = 500 * time.Millisecond

// startPatience is how long a person waits for an agent that is just starting.
const startPatience = 10 * time.Second

// Errors of those who ask for a person, beside those of package imagegc.
var (
	// ErrStarting: nobody may ask for images yet.
	ErrStarting = errors.New("the agent is still starting; `deckhand version` says what it is waiting for")
	// ErrArchive: what was to be imported can't be.
	ErrArchive = errors.New("no archive of images")
	// ErrName: an image can't be called so.
	ErrName = errors.New("that can't be the name of an image")
	// ErrUnsupported: the runtime has the CRI and nothing more.
	ErrUnsupported = errors.New("only the embedded runtime can import, save and tag images this way; " +
		"the one in use has commands of its own for it, such as `ctr --namespace k8s.io images import`, export and tag")
)

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
	// where the runtime doesn't report it.
	Done       int64 `json:"done,omitempty"`
	Total      int64 `json:"total,omitempty"`
	LayersDone int   `json:"layersDone,omitempty"`
	Layers     int   `json:"layers,omitempty"`
}

// RemovedImage is what became of an image that was to be removed.
type RemovedImage struct {
	Image Image `json:"image"`
	// Removed says that it is gone, or would be if this weren't a dry run.
	Removed bool `json:"removed"`
	// Untagged are names that it had, where it stays by others.
	Untagged []string `json:"untagged,omitempty"`
	// Why says why it went, or stays.
	Why string `json:"why,omitempty"`
}

// TaggedImage is an image that has got a further name.
type TaggedImage struct {
	// Name is the further name, in full.
	Name  string `json:"name"`
	Image Image  `json:"image"`
	// Before is the ID of another image that had the name before; empty if none had.
	Before string `json:"before,omitempty"`
}

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
		return ErrStarting
	}
}

// List lists the runtime's images, and who uses them.
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

// Pull fetches an image with the node's own credentials.
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
	// What else there is to know of it isn't worth failing for.
	list, err := in.List(ctx)
	if err != nil {
		in.cfg.Log.Error(err, "Can't list the images after a pull", "image", name)
	}
	if at := slices.IndexFunc(list, func(i Image) bool { return i.ID == img.Ref }); at >= 0 {
		return list[at], nil
	}
	return Image{ID: img.Ref, Refs: []string{name}, Size: uint64(max(img.Size, 0))}, nil
}

// progressOf is how far the pull of an image is that was asked for at that time: of several,
// with other credentials, the one that is furthest.
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

// archiveError is an ErrArchive that says what is wrong, and nothing else.
type archiveError struct{ error }

func (archiveError) Is(target error) bool { return target == ErrArchive }

func (e archiveError) Unwrap() error { return e.error }

// Import takes in an archive.
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

// Save writes an archive with images, each given by a name or an ID, which is for all its names. Meanwhile none of
// them is removed.
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
		hold, err := in.cfg.Guard.Hold(ctx, image, gc.User{How: "a command that saves it"})
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

// held finds the image that a person means, and has the hold keep it.
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

// Tag gives an image, which a person means by source, a further name; another image that had it loses it. Who may use
// the image stays as it is: what was pulled with a pull secret needs that by every name of the repository, and by names
// of another repository it isn't to be had.
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

// nameToGive is the full form of a name that an image may be given, by docker's rules.
func nameToGive(text string) (string, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return "", fmt.Errorf("%w: %q: %w", ErrName, text, err)
	}
	if _, digested := named.(reference.Digested); digested {
		return "", fmt.Errorf("%w: %q: a digest can't be given: leave out the @ and what follows", ErrName, text)
	}
	if slices.Contains([]string{"sha256", "sha384", "sha512"}, reference.FamiliarName(named)) {
		return "", fmt.Errorf("%w: %q: it would be taken for a digest", ErrName, text)
	}
	return reference.TagNameOnly(named).String(), nil
}

// Remove removes an image for a person, or one of its names.
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
	in.cfg.Collector.Wake() // so that its records go too
	return RemovedImage{Image: viewOfImage(&img), Removed: true, Why: string(gc.Asked)}, nil
}

// Prune removes what nothing uses.
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
	for i := range report.Kept {
		out = append(out, RemovedImage{Image: viewOfImage(&report.Kept[i].Image), Why: report.Kept[i].Why})
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
