package pull

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// Manager makes images present. It is safe for concurrent use and holds no
// goroutine while nobody waits for it.
type Manager struct {
	cfg      Config
	slots    slots
	throttle *throttle
	// key makes fingerprints of credentials, that stay in memory.
	key      []byte
	failures *backoff
	status   shared[string, Stored]
	pulls    shared[pullKey, pulled]

	// mu guards active, the pulls under way and waiting, in the order they came.
	mu     sync.Mutex
	active []*activePull
}

// New makes a manager.
func New(c Config) *Manager {
	return &Manager{cfg: c, slots: slots{limit: c.MaxParallelPulls}, throttle: newThrottle(c.PullsPerSecond, c.Burst),
		key: []byte(rand.Text()), failures: newBackoff()}
}

// SetLimits changes what Config has under these names. Pulls that wait go on at once where
// the new limits let them, and those under way aren't stopped by lower ones.
func (m *Manager) SetLimits(maxParallelPulls, pullsPerSecond, burst int) {
	m.slots.setLimit(maxParallelPulls)
	m.throttle.set(pullsPerSecond, burst)
}

// Ensure makes the image present. Requests for one image with the same credentials at
// the same time share one pull; it goes on while anybody waits for it. An image that is
// there is used without a pull only by those who may (Access).
//
// After a failure an image isn't pulled again for a while: 10 s, then twice as long
// after each further one, up to 5 minutes. Requests with the same credentials fail at
// once then, but for those that want it Now.
//
// The error is a *pod.Failure with one of the kubelet's waiting reasons, or the
// context's error if that ended first.
func (m *Manager) Ensure(ctx context.Context, r Request) (Image, error) {
	a := asked{policy: policyOf(r.Policy), present: unknown, pull: unknown}
	img, err := m.ensure(ctx, r, &a)
	m.cfg.Meter.Asked(strings.ToLower(string(a.policy)), a.present, a.pull)
	return img, err
}

// RetryAll forgets all failures, as when images were imported: what is asked for next is
// pulled at once.
func (m *Manager) RetryAll() { m.failures.Clear() }

// asked are the labels of the metric.
type asked struct {
	policy        v1.PullPolicy
	present, pull string
}

// The values of its labels.
const (
	unknown = "unknown"
	yes     = "true"
	no      = "false"
)

func policyOf(p v1.PullPolicy) v1.PullPolicy {
	if p == "" {
		return v1.PullIfNotPresent
	}
	return p
}

// pullKey is what requests have in common that share a pull. One with policy Always has
// to have seen a pull, others may find the image there when their turn comes.
type pullKey struct {
	image, logins string
	always        bool
}

// wish is a request on its way.
type wish struct {
	Request
	// name is the image with its tag.
	name string
	// present says that the image was on the node.
	present bool

	logins  []credentials.Credential
	keyErr  error
	haveKey bool
}

// credentials asks the keyring, once.
func (w *wish) credentials(ctx context.Context, k Keyring) ([]credentials.Credential, error) {
	if !w.haveKey {
		w.logins, w.keyErr = k.For(ctx, w.Pod, w.Objects, w.name)
		w.haveKey = true
	}
	return w.logins, w.keyErr
}

func (m *Manager) ensure(ctx context.Context, r Request, a *asked) (Image, error) {
	name, err := withTag(r.Image)
	if err != nil {
		return Image{}, err
	}
	w := &wish{Request: r, name: name}
	stored, err := m.look(ctx, w, a)
	if err != nil {
		return Image{}, err
	}
	if a.policy != v1.PullAlways && w.present {
		usable, err := m.mayUse(ctx, w, stored)
		if err != nil {
			return Image{}, err
		}
		if usable {
			a.pull = no
			return Image{Stored: stored}, nil
		}
	}
	if a.policy == v1.PullNever {
		a.pull = no
		return Image{}, neverFailure(name, w.present)
	}
	a.pull = yes
	return m.fetch(ctx, w)
}

// look finds out whether the image is there.
func (m *Manager) look(ctx context.Context, w *wish, a *asked) (Stored, error) {
	stored, err := m.status.do(ctx, w.name, func(ctx context.Context) (Stored, error) {
		return m.cfg.Runtime.ImageStatus(ctx, w.name)
	})
	if ctx.Err() != nil {
		return Stored{}, ctx.Err()
	}
	if err != nil {
		return Stored{}, inspectFailure(w.name, err)
	}
	w.present = stored.Ref != ""
	a.present = no
	if w.present {
		a.present = yes
	}
	return stored, nil
}

// mayUse finds out whether the one who asks may use the image that is there.
func (m *Manager) mayUse(ctx context.Context, w *wish, stored Stored) (bool, error) {
	usable, err := m.cfg.Access.MayUse(w.name, stored.Ref, func() ([]credentials.Credential, error) {
		return w.credentials(ctx, m.cfg.Keyring)
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return false, keyringFailure(w.name, err)
	}
	return usable, nil
}

// fetch waits for a pull, joining one that is under way with the same credentials.
func (m *Manager) fetch(ctx context.Context, w *wish) (Image, error) {
	logins, err := w.credentials(ctx, m.cfg.Keyring)
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if err != nil {
		return Image{}, keyringFailure(w.name, err)
	}
	failures := backoffKey{Image: w.name, Login: m.names(logins)}
	if s, ok := m.failures.Get(failures); ok && !w.Now && time.Now().Before(s.Until) {
		return Image{}, backoffFailure(w.name, s)
	}
	if w.Pulling != nil {
		w.Pulling()
	}
	began := time.Now()
	always := w.Policy == v1.PullAlways
	p, err := m.pulls.do(ctx, pullKey{w.name, m.fingerprint(logins), always},
		func(ctx context.Context) (pulled, error) {
			return m.pull(ctx, failures, logins, always, w.Pod)
		})
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if err != nil {
		return Image{}, err
	}
	if p.failure != nil {
		more := ""
		if w.present {
			more = hint(w.Policy)
		}
		return Image{}, failed(*p.failure, more, p.until)
	}
	waited := time.Since(began)
	return Image{Stored: p.Stored, Pulled: !p.found, Took: min(p.took, waited), Waited: waited}, nil
}

// fingerprint tells what is secret in credentials, in their order, from anything else:
// equal ones open the same doors.
func (m *Manager) fingerprint(logins []credentials.Credential) string {
	var b strings.Builder
	for _, login := range logins {
		b.WriteString(login.Hash(m.key))
	}
	return b.String()
}

// names returns under which names failures of these credentials are remembered: those of
// secrets by what is in them, so that another password is tried at once; others by where
// they come from, for a provider may make another one each time.
func (m *Manager) names(logins []credentials.Credential) string {
	var b strings.Builder
	for _, login := range logins {
		if login.Origin.Kind == credentials.FromSecret {
			b.WriteString(login.Hash(m.key))
		} else {
			fmt.Fprintf(&b, "%q", []string{login.Origin.String(), login.Origin.UID, login.Username})
		}
	}
	return b.String()
}
