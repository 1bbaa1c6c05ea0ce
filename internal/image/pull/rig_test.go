package pull

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/image/access"
	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runtime is a node's image store with a registry behind it. Times are virtual.
type runtime struct {
	mu       sync.Mutex
	local    map[string]string
	sizes    map[string]int64 // by reference
	registry map[string]string
	locked   map[string][]string // passwords that open an image; one that isn't here is open
	pullErr  error
	lookErr  error
	lookTime time.Duration
	pullTime time.Duration

	looks, pulls, cancelled atomic.Int32
	pulling, mostPulling    int      // guarded by mu
	order                   []string // images pulled, guarded by mu
}

func (r *runtime) ImageStatus(ctx context.Context, image string) (Stored, error) {
	r.looks.Add(1)
	if err := sleep(ctx, r.lookTime); err != nil {
		return Stored{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ref := range r.local {
		if ref == image {
			return Stored{ref, r.sizes[ref]}, r.lookErr
		}
	}
	ref := r.local[image]
	return Stored{ref, r.sizes[ref]}, r.lookErr
}

func (r *runtime) PullImage(ctx context.Context, image string, login *credentials.Credential) (string, error) {
	r.pulls.Add(1)
	r.count(1, image)
	defer r.count(-1, image)
	if err := sleep(ctx, r.pullTime); err != nil {
		r.cancelled.Add(1)
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pullErr != nil {
		return "", r.pullErr
	}
	ref, ok := r.registry[image]
	if !ok {
		return "", status.Error(codes.NotFound, "no such image in the registry")
	}
	if err := r.open(image, login); err != nil {
		return "", err
	}
	if r.local == nil {
		r.local = map[string]string{}
	}
	r.local[image] = ref
	return ref, nil
}

func (r *runtime) open(image string, login *credentials.Credential) error {
	keys, locked := r.locked[image]
	if !locked {
		return nil
	}
	if login == nil {
		return status.Error(codes.Unknown, "401 without authorization")
	}
	for _, k := range keys {
		if k == login.Password {
			return nil
		}
	}
	// Registries have been seen to repeat what they were sent.
	return status.Errorf(codes.Unknown, "401 for %s:%s", login.Username, login.Password)
}

func (r *runtime) count(delta int, image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulling += delta
	r.mostPulling = max(r.mostPulling, r.pulling)
	if delta > 0 {
		r.order = append(r.order, image)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keyring holds credentials by pod, under "" those of the node.
type keyring map[string][]credentials.Credential

func (k keyring) For(_ context.Context, p *v1.Pod, _ credentials.Objects, _ string) ([]credentials.Credential, error) {
	if p == nil {
		return k[""], nil
	}
	list, ok := k[p.Name]
	if p.Name == "broken" {
		return nil, errors.New("the plugin crashed")
	}
	if !ok {
		return k[""], nil
	}
	return list, nil
}

func secretLogin(namespace, name, password string) credentials.Credential {
	return credentials.Credential{Username: "u", Password: password, Origin: credentials.Origin{Kind: credentials.FromSecret, Namespace: namespace, Name: name, UID: namespace + "-" + name}}
}

func nodeLogin(password string) credentials.Credential {
	return credentials.Credential{Username: "node", Password: password, Origin: credentials.Origin{Kind: credentials.FromNode}}
}

func named(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
}

// meter keeps what it was told.
type meter struct {
	mu    sync.Mutex
	asked []string
	sizes []int64
}

func (m *meter) Asked(policy, present, pull string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, policy+" "+present+" "+pull)
}

func (m *meter) Pulled(_ time.Duration, size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sizes = append(m.sizes, size)
}

type unmetered struct{}

func (unmetered) Checked(access.Result) {}

// open lets everybody use every image and remembers nothing.
type open struct{}

func (open) MayUse(string, string, func() ([]credentials.Credential, error)) (bool, error) {
	return true, nil
}
func (open) Intend(string) error                                  { return nil }
func (open) Pulled(string, string, *credentials.Credential) error { return nil }
func (open) NotPulled(string, bool)                               {}

func config(rt *runtime) Config {
	return Config{Runtime: rt, Keyring: keyring{}, Access: open{}, Meter: &meter{}, Log: logr.Discard()}
}

// records are real ones on disk, loaded.
func records(t *testing.T, dir string) *access.Records {
	t.Helper()
	r := access.New(access.Config{RootDir: dir, Meter: unmetered{}, Log: logr.Discard()})
	if err := r.Load(); err != nil {
		t.Fatal(err)
	}
	return r
}

func wantFailure(t *testing.T, err error, reason pod.Reason, message ...string) *pod.Failure {
	t.Helper()
	var f *pod.Failure
	if !errors.As(err, &f) || f.Reason != reason {
		t.Fatalf("got %v, want reason %s", err, reason)
	}
	for _, m := range message {
		if !strings.Contains(f.Message, m) {
			t.Errorf("got %q, want it to say %q", f.Message, m)
		}
	}
	return f
}
