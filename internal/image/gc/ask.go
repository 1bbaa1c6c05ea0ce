package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// List lists all images on the node, sorted by name. Until all users have been listed, the images' Users are
// incomplete.
func (c *Collector) List(ctx context.Context) ([]Image, error) {
	images, err := c.listImages(ctx)
	if err != nil && !errors.Is(err, ErrUsesUnknown) {
		return nil, err
	}
	slices.SortFunc(images, func(a, b Image) int {
		return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.ID, b.ID))
	})
	return images, nil
}

// Prune removes all images that are neither in use nor pinned, of any age, at a user's request. With dryRun it only
// reports them.
func (c *Collector) Prune(ctx context.Context, dryRun bool) (Report, error) {
	return c.run(ctx, byHandRun, !dryRun)
}

// Remove removes one image at a user's request, by any of its names or a prefix of its ID. If the image has other
// names, it is only untagged; the returned names are those removed. It refuses to remove an image or name that is in
// use or pinned: the error wraps ErrRetained. It returns the image also with this error, but not if the error wraps
// ErrUnknown.
func (c *Collector) Remove(ctx context.Context, name string) (Image, []string, error) {
	if err := c.acquire(ctx); err != nil {
		return Image{}, nil, err
	}
	defer c.release()
	images, err := c.listImages(ctx)
	if err != nil {
		return Image{}, nil, err
	}
	image, err := choose(images, name)
	if err != nil {
		return Image{}, nil, err
	}
	if names := image.meant(name); len(names) > 0 {
		return image, names, c.untag(ctx, &image, names)
	}
	switch {
	case len(image.Users) > 0:
		return image, nil, retainedError(&image, inUseBy(image.Users))
	case image.Pinned != "":
		return image, nil, retainedError(&image, image.Pinned)
	}
	stays, err := c.remove(ctx, image)
	switch {
	case err != nil:
		return image, nil, fmt.Errorf("remove image %s: %w", image.Name(), err)
	case stays != "":
		return image, nil, retainedError(&image, stays)
	}
	c.cfg.Log.V(2).Info("Removed image", "image", image.Name(), "imageID", image.ID, "size", image.Size,
		"reason", Asked)
	return image, nil, nil
}

// Find returns the image with this name or with an ID that starts with it. The error wraps ErrUnknown if no image or
// several match.
func (c *Collector) Find(ctx context.Context, name string) (Image, error) {
	images, err := c.List(ctx)
	if err != nil {
		return Image{}, err
	}
	return choose(images, name)
}

// Tag adds the name target, fully qualified, to the image that source refers to, by calling tag; no image is removed
// meanwhile. It returns the image, and the ID of the image that had the name before, or "". If that image is pinned
// by this name (Config.Keep), the error wraps ErrRetained.
func (c *Collector) Tag(
	ctx context.Context, source, target string, tag func(context.Context, Image) error,
) (image Image, before string, err error) {
	if err := c.acquire(ctx); err != nil {
		return Image{}, "", err
	}
	defer c.release()
	images, err := c.List(ctx)
	if err != nil {
		return Image{}, "", err
	}
	if image, err = choose(images, source); err != nil {
		return Image{}, "", err
	}
	if at := newIndex(images)[key(target)]; len(at) > 0 {
		before = images[at[0]].ID
	}
	if before == image.ID {
		return image, before, nil
	}
	if c.cfg.Keep != nil {
		for name, why := range c.cfg.Keep() {
			if before != "" && key(name) == key(target) {
				return image, before, fmt.Errorf("%w: %s: %s; choose another name", ErrRetained, target, why)
			}
		}
	}
	if err := tag(ctx, image); err != nil {
		return image, before, fmt.Errorf("tag image %s as %s: %w", image.Name(), target, err)
	}
	c.cfg.Log.V(2).Info("Tagged image", "image", target, "imageID", image.ID)
	return image, before, nil
}

// choose returns the one image that name refers to.
func choose(images []Image, name string) (Image, error) {
	at := find(images, name)
	switch {
	case len(at) == 0:
		return Image{}, fmt.Errorf("%w: %q isn't on this node; `deckhand images` lists its images", ErrUnknown, name)
	case len(at) > 1:
		return Image{}, fmt.Errorf("%w: %q may be any of %s; say which by its ID", ErrUnknown, name,
			namesOf(images, at))
	}
	return images[at[0]], nil
}

// untag removes some of an image's names, unless one of them is in use.
func (c *Collector) untag(ctx context.Context, i *Image, names []string) error {
	known := keys("", names, nil)[1:]
	// A user that refers to the same digest in another repository isn't affected.
	is := func(by string) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			return key(n) == key(by) && repositoryOf(n) == repositoryOf(by)
		})
	}
	under, users := c.cfg.Guard.startRemoval(known)
	if under == nil {
		return retainedError(i, inUseBy(users))
	}
	defer c.cfg.Guard.end(under, true)
	uses, err := c.uses(ctx)
	if err != nil {
		return err
	}
	for _, use := range uses {
		if is(use.Image) {
			users = append(users, use.User)
		}
	}
	if len(users) > 0 {
		return retainedError(i, inUseBy(users))
	}
	if c.cfg.Keep != nil {
		for name, why := range c.cfg.Keep() {
			if is(name) {
				return retainedError(i, why)
			}
		}
	}
	err = c.cfg.Untag(ctx, names)
	if errors.Is(err, errors.ErrUnsupported) {
		return retainedError(i, fmt.Sprintf(
			"it has other names, which would go too (%s): this runtime removes images with all their names; to do so "+
				"give its ID %s", strings.Join(i.Tags, ", "), i.ID))
	}
	if err != nil {
		return fmt.Errorf("untag image %s: %w", i.Name(), err)
	}
	c.cfg.Log.V(2).Info("Untagged image", "names", names, "imageID", i.ID)
	return nil
}

func retainedError(i *Image, why string) error {
	return fmt.Errorf("%w: %s: %s", ErrRetained, i.Name(), why)
}

func namesOf(images []Image, at []int) string {
	var names []string
	for _, n := range at {
		names = append(names, images[n].Name()+" ("+images[n].ID+")")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
