package gc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// List lists all images on the node, in the order of their names. Before all users are
// known, it lists those that are.
func (c *Collector) List(ctx context.Context) ([]Image, error) {
	images, err := c.look(ctx)
	if err != nil && !errors.Is(err, ErrUsesUnknown) {
		return nil, err
	}
	slices.SortFunc(images, func(a, b Image) int { return cmp.Or(cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.ID, b.ID)) })
	return images, nil
}

// Prune removes all images that are neither in use nor pinned, however young, for a person. With
// dryRun it only says which those are.
func (c *Collector) Prune(ctx context.Context, dryRun bool) (Report, error) {
	return c.run(ctx, byHandRun, !dryRun)
}

// Remove removes one image with all its names, for a person, who may give any name of it or
// the beginning of its ID. It refuses one that is in use or pinned, and one that
// has other tags than the one given. It returns which image was meant, also with an error
// that wraps ErrKept; with ErrUnknown there is none.
func (c *Collector) Remove(ctx context.Context, name string) (Image, error) {
	if err := c.take(ctx); err != nil {
		return Image{}, err
	}
	defer c.giveBack()
	images, err := c.look(ctx)
	if err != nil {
		return Image{}, err
	}
	at := find(images, name)
	switch {
	case len(at) == 0:
		return Image{}, fmt.Errorf("%w: %q isn't on this node; `deckhand images` lists what is", ErrUnknown, name)
	case len(at) > 1:
		return Image{}, fmt.Errorf("%w: %q may be any of %s; say which by its ID", ErrUnknown, name, namesOf(images, at))
	}
	image := images[at[0]]
	if why := refusal(&image, name); why != "" {
		return image, keptError(&image, why)
	}
	stays, err := c.remove(ctx, image)
	switch {
	case err != nil:
		return image, fmt.Errorf("remove image %s: %w", image.Name(), err)
	case stays != "":
		return image, keptError(&image, stays)
	}
	c.cfg.Log.V(2).Info("Removed image", "image", image.Name(), "id", image.ID, "size", image.Size, "reason", Asked)
	return image, nil
}

func keptError(i *Image, why string) error {
	return fmt.Errorf("%w: %s: %s", ErrKept, i.Name(), why)
}

// refusal says why an image isn't removed for a person.
func refusal(i *Image, name string) string {
	switch {
	case len(i.Users) > 0:
		return inUseBy(i.Users)
	case i.Pinned != "":
		return i.Pinned
	}
	asTag := slices.ContainsFunc(i.Tags, func(t string) bool { return key(t) == key(name) })
	if asTag && len(i.Tags) > 1 {
		return fmt.Sprintf("it has other names, which would go too (%s); to remove it with all of them give its ID %s", strings.Join(i.Tags, ", "), i.ID)
	}
	return ""
}

func namesOf(images []Image, at []int) string {
	var names []string
	for _, n := range at {
		names = append(names, images[n].Name()+" ("+images[n].ID+")")
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
