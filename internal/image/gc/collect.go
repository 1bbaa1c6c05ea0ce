package gc

import (
	"context"
	"errors"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Failure is an image that couldn't be removed.
type Failure struct {
	Removal
	Err error
}

// Report is the result of a run.
type Report struct {
	// Removed are the removed images; in a dry run, those that would be removed.
	Removed []Removal
	// Failed are the images that couldn't be removed.
	Failed []Failure
	// Retained are the other images with the reasons, including those that came into use meanwhile.
	Retained []Retained
	// Freed is the size of the removed images, as the runtime counts it. The disk gains less if images share layers.
	Freed uint64
	// Missing is how many bytes are still missing to reach imageGCLowThresholdPercent, if a disk was too full.
	Missing uint64
}

// collect does one regular run and logs its failures.
func (c *Collector) collect(ctx context.Context) {
	_, err := c.run(ctx, regularRun, true)
	switch {
	case err == nil, ctx.Err() != nil:
	case errors.Is(err, ErrUsesUnknown):
		c.cfg.Log.V(4).Info("No images are collected yet", "err", err.Error())
	default:
		c.cfg.Log.Error(err, "Images can't be collected as they should be")
	}
}

// run chooses the images to remove and, if act is true, removes them. The report is valid also with an error.
func (c *Collector) run(ctx context.Context, extent extent, act bool) (Report, error) {
	if act {
		if err := c.acquire(ctx); err != nil {
			return Report{}, err
		}
		defer c.release()
	}
	r, err := c.attempt(ctx, extent, act)
	if act && extent != byHandRun && ctx.Err() == nil && !errors.Is(err, ErrUsesUnknown) {
		c.recordEvent(r, err)
	}
	return r, err
}

func (c *Collector) attempt(ctx context.Context, extent extent, act bool) (Report, error) {
	began := time.Now()
	images, err := c.listImages(ctx)
	if err != nil {
		return Report{}, err
	}
	if act {
		ids := make([]string, len(images))
		for n := range images {
			ids[n] = images[n].ID
		}
		c.cfg.Listener.Present(ctx, ids, began)
	}
	c.mu.Lock()
	facts := facts{Now: time.Now(), Began: c.began, Extent: extent, Policy: *c.policy.Load(), Images: images}
	c.mu.Unlock()
	var errs []error
	if extent == regularRun && facts.Policy.High < 100 {
		// Age-based removal works even if the disk can't be measured.
		disks, err := c.disks(ctx)
		facts.Disks, errs = disks, append(errs, err)
	}
	plan := decide(facts)
	if !act {
		return Report{Removed: plan.Removals, Retained: plan.Retained, Freed: plan.Freed}, nil
	}
	r := Report{Retained: plan.Retained}
	c.carryOut(ctx, facts, plan, &r)
	if r.Missing > 0 {
		errs = append(errs, shortage(r, facts.Policy))
	}
	return r, errors.Join(append(errs, ctx.Err())...)
}

// carryOut removes the planned images one by one, until enough space is free.
func (c *Collector) carryOut(ctx context.Context, f facts, p plan, r *Report) {
	for n, removal := range slices.Concat(p.Removals, p.Fallback) {
		fallback := n >= len(p.Removals)
		switch {
		case ctx.Err() != nil:
			return
		case fallback && r.Freed >= p.Missing,
			// Images are often far larger on disk than the runtime reports, so the disk is measured again.
			p.Missing > 0 && removal.Reason == Space && c.missing(f) == 0:
			r.Retained = append(r.Retained, Retained{Image: removal.Image,
				Why: "unused, but the disk has space for it again"})
		default:
			c.carryOutOne(ctx, removal, r)
		}
	}
	if p.Missing > r.Freed {
		r.Missing = min(c.missing(f), p.Missing-r.Freed)
	}
}

func (c *Collector) carryOutOne(ctx context.Context, removal Removal, r *Report) {
	stays, err := c.remove(ctx, removal.Image)
	switch {
	case err != nil:
		c.cfg.Log.Error(err, "Image can't be removed", "image", removal.Name(), "imageID", removal.ID,
			"reason", removal.Reason)
		r.Failed = append(r.Failed, Failure{Removal: removal, Err: err})
	case stays != "":
		r.Retained = append(r.Retained, Retained{Image: removal.Image, Why: stays})
	default:
		c.cfg.Log.V(2).Info("Removed image", "image", removal.Name(), "imageID", removal.ID, "size", removal.Size,
			"reason", removal.Reason, "message", removal.Why)
		if removal.Reason != Asked {
			c.cfg.Meter.ImageCollected(string(removal.Reason), removal.Size)
		}
		r.Removed = append(r.Removed, removal)
		r.Freed += removal.Size
	}
}

// missing returns how many bytes the full disks still need. If a disk can't be measured, its previous measurement
// counts.
func (c *Collector) missing(f facts) uint64 {
	var most uint64
	for _, was := range f.Disks {
		if !f.Policy.Full(was) {
			continue
		}
		is, err := c.cfg.Measure(was.Path)
		if err != nil {
			is = was
		}
		most = max(most, f.Policy.Missing(is))
	}
	return most
}

// remove removes an image, unless it has come into use: then it returns why it stays. It reads the users after
// startRemoval, because no new hold of the image can start from then on.
func (c *Collector) remove(ctx context.Context, i Image) (stays string, err error) {
	under, holders := c.cfg.Guard.startRemoval(keys(i.ID, i.Tags, i.Digests))
	if under == nil {
		return inUseBy(holders), nil
	}
	tried := false
	defer func() { c.cfg.Guard.end(under, tried) }()
	spec := &runtimeapi.ImageSpec{Image: i.ID}
	now, err := c.cfg.Runtime.ImageStatus(ctx, spec)
	if err != nil {
		return "", err
	}
	if now == nil {
		return "it is gone already", nil
	}
	if stays, err = c.whyStays(ctx, now); err != nil || stays != "" {
		return stays, err
	}
	tried = true
	return "", c.cfg.Runtime.RemoveImage(ctx, spec)
}

// whyStays returns why an image mustn't be removed, or "" if it may be.
func (c *Collector) whyStays(ctx context.Context, i *runtimeapi.Image) (string, error) {
	if i.GetPinned() {
		return pinnedByRuntime, nil
	}
	uses, err := c.uses(ctx)
	if err != nil {
		return "", err
	}
	return inUseBy(usersOf(i, uses)), nil
}

func usersOf(i *runtimeapi.Image, uses []Use) []User {
	known := keys(i.GetId(), i.GetRepoTags(), i.GetRepoDigests())
	var users []User
	read := reading{}
	for _, use := range uses {
		if slices.Contains(known, read.key(use.Image)) {
			users = append(users, use.User)
		}
	}
	return users
}

// inUseBy formats the users of an image as the reason why it stays. It returns "" if there are none.
func inUseBy(users []User) string {
	if len(users) == 0 {
		return ""
	}
	return "in use by " + listUsers(users)
}
