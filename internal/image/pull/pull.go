package pull

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// verifyWithin is how long a pull that failed may still ask what came of it.
const verifyWithin = 5 * time.Second

// pulled is what came of a pull: an image, or a failure and when it is worth another try.
type pulled struct {
	Stored
	// found says that the image had come when the pull's turn came.
	found   bool
	took    time.Duration
	failure *pod.Failure
	until   time.Time
}

// pull pulls an image for all who wait for it. The error is the context's: then nobody does.
func (m *Manager) pull(ctx context.Context, key backoffKey, logins []credentials.Credential, always bool,
	p *v1.Pod) (pulled, error) {
	active := m.join(key)
	defer m.leave(active)
	if err := m.slots.acquire(ctx); err != nil {
		return pulled{}, err
	}
	defer m.slots.release()
	m.begin(active)
	before := m.glance(ctx, key.Image)
	if !always && m.has(before, key.Image, logins) {
		return pulled{Stored: before.Stored, found: true}, nil
	}
	m.cfg.Log.V(2).Info("Pulling image", "image", key.Image, "pod", klog.KObj(p))
	out, login, attempts := m.try(ctx, key.Image, logins, before)
	if out.Ref != "" {
		m.failures.Succeeded(key)
		if openToAll(login) {
			// Now others may use it, too.
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

// seen is what the runtime said that it has under a name.
type seen struct {
	Stored
	err error
}

func (m *Manager) glance(ctx context.Context, name string) seen {
	stored, err := m.cfg.Runtime.ImageStatus(ctx, name)
	return seen{stored, err}
}

// has reports whether an image has come that those with these credentials may use.
func (m *Manager) has(s seen, name string, logins []credentials.Credential) bool {
	if s.err != nil || s.Ref == "" {
		return false
	}
	usable, err := m.cfg.Access.MayUse(name, s.Ref, func() ([]credentials.Credential, error) { return logins, nil })
	return err == nil && usable
}

// attempt is a pull that failed.
type attempt struct {
	login *credentials.Credential
	err   error
}

// try pulls with one of the credentials after the other until one is good, and keeps
// Access up to date. Where there is no image, attempts say why.
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

// recordPull records who pulled an image, and returns that as later looks at it will
// see it. Where this fails, those who wait for it have shown all the same that they may
// have it; who comes next has to again.
func (m *Manager) recordPull(ctx context.Context, name, ref string, login *credentials.Credential) Stored {
	// The image is here whether somebody still waits or not.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), verifyWithin)
	defer done()
	s := m.glance(ctx, ref)
	if s.err != nil || s.Ref == "" {
		// Under the reference that it was pulled by it may not be found again: a note under
		// that would leave it open to all.
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

// unchanged reports whether nothing came, and won't come, of a pull whose end wasn't seen.
func (m *Manager) unchanged(ctx context.Context, name string, before seen) bool {
	cancelled := ctx.Err() != nil
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), verifyWithin)
	defer done()
	now := m.glance(ctx, name)
	if before.err != nil || now.err != nil || now.Ref != before.Ref {
		return false
	}
	// A pull that was given up may just be about to end well; one that the runtime itself
	// gave up is not.
	return now.Ref != "" || !cancelled
}

// choices are the credentials to try; nil is for a pull without.
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

// openToAll reports whether what was pulled so may be used by every pod of the node.
func openToAll(login *credentials.Credential) bool {
	return login == nil || login.Origin.Kind == credentials.FromNode || login.Origin.Kind == ""
}
