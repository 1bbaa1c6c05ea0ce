package pull

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// verifyWithin is the time limit for checking the image's status after a pull.
const verifyWithin = 5 * time.Second

// pulled is the result of a pull: an image, or a failure and the time of the next retry.
type pulled struct {
	Stored
	// found means that the image was already present when the pull's turn came.
	found   bool
	took    time.Duration
	failure *pod.Failure
	until   time.Time
}

// pull pulls an image for all requests that wait for it. It returns an error only if the context has ended: then no
// request waits any more.
func (m *Manager) pull(ctx context.Context, key backoffKey, logins []credentials.Credential, always bool,
	p *v1.Pod) (pulled, error) {
	active := m.join(key)
	defer m.leave(active)
	release, err := m.slots.Acquire(ctx, 0)
	if err != nil {
		return pulled{}, err
	}
	defer release()
	m.start(active)
	before := m.glance(ctx, key.Image)
	if !always && m.has(before, key.Image, logins) {
		return pulled{Stored: before.Stored, found: true}, nil
	}
	m.cfg.Log.V(2).Info("Pulling image", "image", key.Image, "pod", klog.KObj(p))
	out, login, attempts := m.try(ctx, key.Image, logins, before)
	if out.Ref != "" {
		m.failures.Succeeded(key)
		if openToAll(login) {
			// The image is now public, so other credentials can be tried again.
			m.failures.Forget(key.Image)
		}
		m.cfg.Meter.Pulled(out.took, out.Size)
		return out, nil
	}
	if err := ctx.Err(); err != nil {
		return pulled{}, err
	}
	f := pullFailure(key.Image, attempts)
	return pulled{failure: &f, until: m.failures.Failed(key, f)}, nil
}

// seen is the result of an ImageStatus call.
type seen struct {
	Stored
	err error
}

func (m *Manager) glance(ctx context.Context, name string) seen {
	stored, err := m.cfg.Runtime.ImageStatus(ctx, name)
	return seen{stored, err}
}

// has reports whether the image is present and these credentials give access to it.
func (m *Manager) has(s seen, name string, logins []credentials.Credential) bool {
	if s.err != nil || s.Ref == "" {
		return false
	}
	usable, err := m.cfg.Access.MayUse(name, s.Ref, func() ([]credentials.Credential, error) { return logins, nil })
	return err == nil && usable
}

// attempt is a failed pull.
type attempt struct {
	login *credentials.Credential
	err   error
}

// try pulls with one credential after the other until one succeeds, and updates Access. If all fail, attempts has the
// errors.
func (m *Manager) try(ctx context.Context, name string, logins []credentials.Credential,
	before seen) (out pulled, login *credentials.Credential, attempts []attempt) {
	if err := m.cfg.Access.Intend(name); err != nil {
		return pulled{}, nil, []attempt{{err: err}}
	}
	known, began := true, time.Now()
	for _, login := range choices(logins) {
		if err := m.throttle.wait(ctx); err != nil {
			attempts = append(attempts, attempt{login, err})
			break
		}
		ref, err := m.cfg.Runtime.PullImage(ctx, name, login)
		if err == nil {
			took := time.Since(began)
			return pulled{took: took, Stored: m.recordPull(ctx, name, ref, login)}, login, nil
		}
		attempts = append(attempts, attempt{login, err})
		known = known && !unclear(err)
		if ctx.Err() != nil {
			break
		}
	}
	m.cfg.Access.NotPulled(name, known || m.unchanged(ctx, name, before))
	return pulled{}, nil, attempts
}

// recordPull records who pulled the image, and returns it as later ImageStatus calls will. If recording fails, the
// requests that wait for this pull may still use the image; later ones have to pull it again.
func (m *Manager) recordPull(ctx context.Context, name, ref string, login *credentials.Credential) Stored {
	// The image is present even if no request waits any more.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), verifyWithin)
	defer done()
	s := m.glance(ctx, ref)
	if s.err != nil || s.Ref == "" {
		// The image may not be found later by the reference that PullImage returned. With a record under that reference
		// only, it would be accessible to all under its later reference.
		m.cfg.Access.NotPulled(name, false)
		m.cfg.Log.Error(s.err, "Image pulled, but the runtime doesn't say what it has; others will have to pull it "+
			"again", "image", name, "ref", ref)
		return Stored{Ref: ref}
	}
	if err := m.cfg.Access.Pulled(name, s.Ref, login); err != nil {
		m.cfg.Log.Error(err, "Image pulled, but others will have to pull it again")
	}
	return s.Stored
}

// unchanged reports whether a pull with an unknown result didn't change the image, and won't change it later.
func (m *Manager) unchanged(ctx context.Context, name string, before seen) bool {
	cancelled := ctx.Err() != nil
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), verifyWithin)
	defer done()
	now := m.glance(ctx, name)
	if before.err != nil || now.err != nil || now.Ref != before.Ref {
		return false
	}
	// A cancelled pull may be about to succeed; one that the runtime itself aborted isn't.
	return now.Ref != "" || !cancelled
}

// choices returns the credentials to try; nil stands for an anonymous pull.
func choices(logins []credentials.Credential) []*credentials.Credential {
	if len(logins) == 0 {
		return []*credentials.Credential{nil}
	}
	out := make([]*credentials.Credential, len(logins))
	for i := range logins {
		out[i] = &logins[i]
	}
	return out
}

// openToAll reports whether an image that was pulled with login may be used by every pod of the node.
func openToAll(login *credentials.Credential) bool {
	return login == nil || login.Origin.Kind == credentials.FromNode || login.Origin.Kind == ""
}
