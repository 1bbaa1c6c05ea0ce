package pull

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/kit/gate"
)

// Manager makes images present. It is safe for concurrent use. It runs goroutines only while requests wait.
type Manager struct {
	cfg      Config
	slots    *gate.Gate
	throttle *throttle
	// key is the HMAC key for fingerprints of credentials. Neither the key nor a fingerprint is written to disk.
	key      []byte
	failures *backoff
	status   shared[string, Stored]
	pulls    shared[pullKey, pulled]

	// mu guards active: the running and queued pulls in the order of their requests.
	mu     sync.Mutex
	active []*activePull
}

// New returns a Manager.
func New(c Config) *Manager {
	return &Manager{cfg: c, slots: gate.New(slots(c.MaxParallelPulls)),
		throttle: newThrottle(c.PullsPerSecond, c.Burst), key: []byte(rand.Text()), failures: newBackoff()}
}

// slots is the number of concurrent pulls for a limit of Config: none means any number.
func slots(maxParallelPulls int) int {
	if maxParallelPulls <= 0 {
		return math.MaxInt32
	}
	return maxParallelPulls
}

// SetLimits changes the limits of Config. Queued pulls that the new limits permit start at once. Lower limits don't
// stop running pulls.
func (m *Manager) SetLimits(maxParallelPulls, pullsPerSecond, burst int) {
	m.slots.Resize(slots(maxParallelPulls))
	m.throttle.set(pullsPerSecond, burst)
}

// Ensure makes the image present. Concurrent requests for one image with the same credentials share one pull, which
// continues while any of them waits. An image that is already on the node is used without a pull only if Access
// permits it.
//
// After a failure, the image isn't pulled again for 10 s, and for twice as long after each further failure, up to 5
// minutes. Meanwhile requests with the same credentials fail at once, unless Now is set.
//
// The error is a *pod.Failure with one of the kubelet's waiting reasons, or the context's error if that ended first.
func (m *Manager) Ensure(ctx context.Context, r Request) (Image, error) {
	a := asked{policy: cmp.Or(r.Policy, v1.PullIfNotPresent), present: unknown, pull: unknown}
	img, err := m.ensure(ctx, r, &a)
	m.cfg.Meter.Asked(strings.ToLower(string(a.policy)), a.present, a.pull)
	return img, err
}

// RetryAll clears the backoff of all images, for example after an import: the next requests pull at once.
func (m *Manager) RetryAll() { m.failures.Clear() }

// DiskFreed ends the delays after pulls that failed because a disk couldn't be written.
func (m *Manager) DiskFreed() { m.failures.DiskFreed() }

// asked contains the labels of the request metric.
type asked struct {
	policy        v1.PullPolicy
	present, pull string
}

// Values of the labels present and pull.
const (
	unknown = "unknown"
	yes     = "true"
	no      = "false"
)

// pullKey identifies requests that share a pull. Requests with policy Always need a pull; others may find that the
// image is present when their turn comes.
type pullKey struct {
	image, logins string
	always        bool
}

// wish is a request in progress.
type wish struct {
	Request
	// name is the image's name with its tag.
	name string
	// present means that the image was on the node when the request began.
	present bool

	logins  []credentials.Credential
	keyErr  error
	haveKey bool
}

// credentials queries the keyring on the first call and caches the result.
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
	stored, err := m.imageStatus(ctx, w, a)
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

// imageStatus reads whether the image is on the node.
func (m *Manager) imageStatus(ctx context.Context, w *wish, a *asked) (Stored, error) {
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

// mayUse reports whether the request may use the image on the node.
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

// fetch pulls the image. If a pull with the same credentials is queued or running, it waits for that one.
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

// fingerprint identifies the secrets of the credentials, in their order. Equal fingerprints give the same access.
func (m *Manager) fingerprint(logins []credentials.Credential) string {
	var b strings.Builder
	for _, login := range logins {
		b.WriteString(login.Hash(m.key))
	}
	return b.String()
}

// names returns the Login of a backoffKey for these credentials. Credentials from secrets are identified by their
// content, so a changed password is tried at once; others by their origin, because a provider may issue different
// ones each time.
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
