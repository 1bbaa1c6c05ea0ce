package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// act names the variable that makes this program a plugin.
const act = "DECKHAND_TEST_PROVIDER"

func TestMain(m *testing.M) {
	if what := os.Getenv(act); what != "" {
		os.Exit(actAsPlugin(what))
	}
	goleak.VerifyTestMain(m)
}

// actAsPlugin answers with a password that says what it was asked, by the name it was called under.
func actAsPlugin(what string) int {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 3
	}
	calls, err := os.OpenFile(what, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 4
	}
	defer calls.Close()
	name := filepath.Base(os.Args[0])
	if _, err := fmt.Fprintln(calls, name); err != nil {
		return 5
	}
	if name == "broken" {
		fmt.Fprintln(os.Stderr, "no network")
		return 1
	}
	answer := map[string]any{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry",
		"auth": map[string]any{"*.io": map[string]string{"username": name, "password": string(in)}, "a.io/team": map[string]string{"username": name + "-team"}}}
	if json.NewEncoder(os.Stdout).Encode(answer) != nil {
		return 6
	}
	return 0
}

// load makes Plugins of a configuration whose plugins are this program, and tells
// the file that their calls are noted in.
func load(t *testing.T, o Options, names ...string) (s *Plugins, calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
	for _, name := range names {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		config += "- name: " + name + "\n  matchImages: ['*.io', other.example]\n  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n" +
			"  env: [{name: " + act + ", value: " + calls + "}]\n"
		if name == "account" {
			config += "  tokenAttributes: {serviceAccountTokenAudience: me, cacheType: ServiceAccount, requireServiceAccount: true}\n"
		}
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if o.Providers, err = Load(file, dir); err != nil {
		t.Fatal(err)
	}
	o.Log = logr.Discard()
	if o.Metrics == nil {
		o.Metrics = &counts{}
	}
	return New(o), calls
}

// counts are metrics.
type counts struct {
	mu            sync.Mutex
	calls, failed int
}

func (c *counts) PluginCalled(_ string, _ time.Duration, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if failed {
		c.failed++
	}
}

func (c *counts) read() (calls, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls, c.failed
}

// objects are service accounts by "namespace/name".
type objects map[string]*v1.ServiceAccount

func (o objects) Secret(context.Context, string, string) (*v1.Secret, error) {
	return nil, errors.New("it isn't for providers")
}

func (o objects) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	if sa, ok := o[namespace+"/"+name]; ok {
		return sa, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("serviceaccounts"), name)
}

func account(namespace, name, uid string, annotations map[string]string) *v1.ServiceAccount {
	return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Annotations: annotations}}
}

func (objects) Admitted() bool { return true }

// issued are accounts with tokens.
type issued struct {
	objects
	*tokens
}

// tokens issues tokens that say what for, and counts.
type tokens struct {
	mu     sync.Mutex
	issued int
	err    error
}

func (s *tokens) Token(_ context.Context, r object.TokenRequest) (object.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	return object.NewToken(strings.Join([]string{r.Namespace, r.ServiceAccount, r.Audience, r.Pod, string(r.UID)}, "|"), time.Time{}, time.Time{}), s.err
}

func podOf(serviceAccount, uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-" + uid, UID: types.UID(uid)}, Spec: v1.PodSpec{ServiceAccountName: serviceAccount}}
}

func image(t testing.TB, ref string) credentials.Image {
	t.Helper()
	i, err := credentials.ParseImage(ref)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func users(list []credentials.Credential) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Username)
	}
	return strings.Join(out, " ")
}

func TestPluginsAreProcesses(t *testing.T) {
	var metrics counts
	sas := issued{objects{"ns/robot": account("ns", "robot", "u1", nil)}, &tokens{}}
	s, calls := load(t, Options{Metrics: &metrics}, "second", "broken", "first", "account")
	for range 2 { // the second time from what is kept, but for the one that failed
		got, err := s.Credentials(t.Context(), podOf("robot", "p1"), sas, image(t, "a.io/team/app:1"))
		if want := "second-team first-team account-team second first account"; users(got) != want {
			t.Errorf("the credentials are of %q, want %q", users(got), want)
		}
		if err == nil || err.Error() != `credential provider "broken": exit status 1; the end of its standard error: no network` {
			t.Errorf("the error is %v", err)
		}
		last := got[len(got)-1]
		if last.Origin != (credentials.Origin{Kind: credentials.FromServiceAccount, Namespace: "ns", Name: "robot", UID: "u1"}) || got[0].Origin.Kind != credentials.FromNode {
			t.Errorf("they come from %v and %v", last.Origin, got[0].Origin)
		}
		if !strings.Contains(last.Password, `"serviceAccountToken":"ns|robot|me|web-p1|p1"`) {
			t.Errorf("it was asked %s", last.Password)
		}
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n != 5 {
		t.Errorf("%d calls, want 5:\n%s", n, text)
	}
	if n, failed := metrics.read(); n != 5 || failed != 2 {
		t.Errorf("metrics count %d calls, %d failed", n, failed)
	}
	// Not one for its images.
	if got, err := s.Credentials(t.Context(), podOf("robot", "p1"), sas, image(t, "a.example/app")); got != nil || err != nil {
		t.Errorf("an image that no plugin is for: %v, %v", got, err)
	}
	// The answers are for *.io, whatever the plugin was asked for.
	if got, err := s.Credentials(t.Context(), nil, nil, image(t, "other.example/app")); users(got) != "" || err == nil {
		t.Errorf("an answer for other images: %v, %v", got, err)
	}
}

func TestWithoutTokens(t *testing.T) {
	sas := object.NewLocal(func() *object.Set {
		return object.NewSet([]*object.Desired{object.NewDesired(account("ns", "robot", "u1", nil), pod.SourceFile, "f")}, true)
	})
	s, _ := load(t, Options{}, "account", "plain")
	got, err := s.Credentials(t.Context(), podOf("robot", "p1"), sas, image(t, "a.io/app"))
	if users(got) != "plain" || err == nil || !strings.HasPrefix(err.Error(), `credential provider "account": it needs a token of service account ns/robot: only an API server issues tokens, and this node has none; use a provider without tokenAttributes`) {
		t.Errorf("%q, %v", users(got), err)
	}
	// A pod without a service account isn't the plugin's.
	if got, err := s.Credentials(t.Context(), podOf("", "p1"), sas, image(t, "a.io/app")); users(got) != "plain" || err != nil {
		t.Errorf("%q, %v", users(got), err)
	}
}

func TestNoPlugins(t *testing.T) {
	if got, err := New(Options{}).Credentials(t.Context(), nil, nil, image(t, "a.io/app")); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
