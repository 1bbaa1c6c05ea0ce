package access

import (
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

type meter struct {
	mu   sync.Mutex
	last Result
}

func (m *meter) Checked(r Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = r
}

// load opens the records in dir as an agent does that is started.
func load(t testing.TB, dir string, policy v1beta1.ImagePullCredentialsVerificationPolicy, allowlist ...string) *Records {
	t.Helper()
	p, err := NewPolicy(policy, allowlist)
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{RootDir: dir, Policy: p, Meter: &meter{}, Log: logr.Discard()})
	if err := r.Load(); err != nil {
		t.Fatal(err)
	}
	return r
}

func secret(name, uid, password string) credentials.Credential {
	return credentials.Credential{Username: "u", Password: password, Origin: credentials.Origin{Kind: credentials.FromSecret, Namespace: "ns", Name: name, UID: uid}}
}

func account(name, uid string) credentials.Credential {
	return credentials.Credential{Username: "u", Password: "by-" + name, Origin: credentials.Origin{Kind: credentials.FromServiceAccount, Namespace: "ns", Name: name, UID: uid}}
}

// pull records a pull that succeeded.
func pull(t testing.TB, r *Records, image, ref string, with ...credentials.Credential) {
	t.Helper()
	if err := r.Intend(image); err != nil {
		t.Fatal(err)
	}
	var login *credentials.Credential
	if len(with) > 0 {
		login = &with[0]
	}
	if err := r.Pulled(image, ref, login); err != nil {
		t.Fatal(err)
	}
}

func may(t testing.TB, r *Records, image, ref string, have ...credentials.Credential) bool {
	t.Helper()
	ok, err := r.MayUse(image, ref, func() ([]credentials.Credential, error) { return have, nil })
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func wantCounts(t testing.TB, r *Records, intents, records int) {
	t.Helper()
	if i, n := r.Counts(); i != intents || n != records {
		t.Errorf("%d intents and %d records, want %d and %d", i, n, intents, records)
	}
}
