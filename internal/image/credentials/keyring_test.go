package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// objects are Secrets and ServiceAccounts by "namespace/name".
type objects struct {
	Objects
	secrets  map[string]*v1.Secret
	accounts map[string]*v1.ServiceAccount
	fail     error
	admitted bool
}

func (o *objects) Admitted() bool { return o.admitted }

func (o *objects) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if s, ok := o.secrets[namespace+"/"+name]; ok {
		return s, nil
	}
	if o.fail != nil {
		return nil, o.fail
	}
	return nil, apierrors.NewNotFound(v1.Resource("secrets"), name)
}

func (o *objects) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	if s, ok := o.accounts[namespace+"/"+name]; ok {
		return s, nil
	}
	return nil, apierrors.NewNotFound(v1.Resource("serviceaccounts"), name)
}

func (o *objects) add(namespace, name, text string) {
	if o.secrets == nil {
		o.secrets = map[string]*v1.Secret{}
	}
	o.secrets[namespace+"/"+name] = &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u"},
		Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(text)}}
}

type nodeEntries []Entry

func (n nodeEntries) Entries() []Entry { return n }

type providers struct {
	list []Credential
	err  error
}

func (p providers) Credentials(context.Context, *v1.Pod, Objects, Image) ([]Credential, error) {
	return p.list, p.err
}

type recorder struct{ events []string }

func (r *recorder) Event(p *v1.Pod, e pod.Event) {
	r.events = append(r.events, p.Name+": "+e.Type+" "+string(e.Reason)+" "+e.Message)
}

func podWith(secrets ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	for _, s := range secrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: s})
	}
	return p
}

func names(list []Credential) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Username)
	}
	return strings.Join(out, " ")
}

func TestKeyringOrder(t *testing.T) {
	o := &objects{}
	o.add("ns", "one", `{"auths": {"*.io": {"username": "one-glob"}, "a.io/team": {"username": "one-team"}}}`)
	o.add("ns", "two", `{"auths": {"a.io/team": {"username": "two-team"}, "a.io": {"username": "two"}, "b.io": {"username": "no"}}}`)
	o.add("other", "three", `{"auths": {"a.io": {"username": "of another namespace"}}}`)
	var r recorder
	k := NewKeyring(Options{Recorder: &r, Log: logr.Discard(),
		Node:      nodeEntries{{pattern(t, "a.io"), Credential{Username: "node"}}, {pattern(t, "a.io/team/app"), Credential{Username: "node-app"}}},
		Providers: providers{list: []Credential{{Username: "provider"}}}})
	got, err := k.For(t.Context(), podWith("one", "", "two"), o, "a.io/team/app:1")
	if want := "one-team two-team two one-glob node-app node provider"; err != nil || names(got) != want {
		t.Errorf("tried are %q, %v; want %q", names(got), err, want)
	}
	if len(r.events) > 0 {
		t.Errorf("events: %q", r.events)
	}
	// A person's own pull.
	if got, err := k.For(t.Context(), nil, nil, "a.io/team/app:1"); err != nil || names(got) != "node-app node provider" {
		t.Errorf("without a pod: %q, %v", names(got), err)
	}
}

func TestKeyringReportsAndTriesTheOthers(t *testing.T) {
	o := &objects{}
	o.add("ns", "good", auths("a.io", "good"))
	o.add("ns", "broken", `{"auths": geheim}`)
	o.add("ns", "half", `{"auths": {"a.io": {"username": "half"}, "b.io": {"auth": "geheim"}}}`)
	var r recorder
	var log logged
	k := NewKeyring(Options{Recorder: &r, Log: log.logger(), Node: nodeEntries{},
		Providers: providers{list: []Credential{{Username: "provider"}}, err: errors.New("plugin x failed")}})
	got, err := k.For(t.Context(), podWith("gone", "broken", "half", "lost", "good"), o, "a.io/app")
	if err != nil || names(got) != "half good provider" {
		t.Errorf("tried are %q, %v", names(got), err)
	}
	if missing := k.MissingSecrets(t.Context(), podWith("gone", "broken", "half", "lost", "good"), o); !slices.Equal(missing, []string{"gone", "lost"}) {
		t.Errorf("missing: %q", missing)
	}
	want := []string{
		`web: Warning InvalidImagePullSecret Pull secret "broken" can't be used as it is: its .dockerconfigjson: it isn't JSON: line 1 has an error`,
		`web: Warning InvalidImagePullSecret Pull secret "half" can't be used as it is: entry "b.io": auth isn't the base64 of user:password: there is no colon in it`,
		`web: Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (gone, lost); attempting to pull the image may not succeed.`,
		`web: Warning FailedCredentialProvider No credentials for image "a.io/app" from a credential provider: plugin x failed`,
	}
	if strings.Join(r.events, "\n") != strings.Join(want, "\n") {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(r.events, "\n"), strings.Join(want, "\n"))
	}
	if lines := log.take(); len(lines) != 1 || !strings.Contains(lines[0], "plugin x failed") {
		t.Errorf("logged: %q; what is missing is no error of the agent's", lines)
	}
	// A store that can't be asked is one.
	o.fail = errors.New("the store is down")
	if got, err := k.For(t.Context(), podWith("gone", "good"), o, "a.io/app"); err != nil || names(got) != "good provider" {
		t.Errorf("tried are %q, %v", names(got), err)
	}
	if lines := log.take(); len(lines) != 2 || !strings.Contains(lines[0], "the store is down") {
		t.Errorf("logged: %q", lines)
	}
}

func TestKeyringTakesTheServiceAccountsSecrets(t *testing.T) {
	o := &objects{accounts: map[string]*v1.ServiceAccount{
		"ns/default": {ImagePullSecrets: []v1.LocalObjectReference{{Name: "of-default"}}},
		"ns/robot":   {ImagePullSecrets: []v1.LocalObjectReference{{Name: "of-robot"}}},
	}}
	o.add("ns", "of-default", auths("a.io", "default"))
	o.add("ns", "of-robot", auths("a.io", "robot"))
	o.add("ns", "own", auths("a.io", "own"))
	for _, c := range []struct {
		account string
		own     []string
		want    string
	}{
		{"", nil, "default"}, {"robot", nil, "robot"}, {"robot", []string{"own"}, "own"}, {"nobody", nil, ""},
	} {
		var r recorder
		k := NewKeyring(Options{Recorder: &r, Log: logr.Discard(), Node: nodeEntries{}, Providers: providers{}})
		p := podWith(c.own...)
		p.Spec.ServiceAccountName = c.account
		if got, err := k.For(t.Context(), p, o, "a.io/app"); err != nil || names(got) != c.want || len(r.events) > 0 {
			t.Errorf("account %q, own secrets %v: %q, %v, events %q; want %q", c.account, c.own, names(got), err, r.events, c.want)
		}
		// An API server has copied them.
		o.admitted = true
		if got, err := k.For(t.Context(), p, o, "a.io/app"); err != nil || names(got) != strings.Join(c.own, "") {
			t.Errorf("account %q, own secrets %v, admitted: %q, %v", c.account, c.own, names(got), err)
		}
		o.admitted = false
	}
}

// A pull without a secret that may be there could fail, and count.
func TestKeyringWaitsForASecretOfWhichNobodyCanTell(t *testing.T) {
	o := &objects{fail: &object.Unknown{Key: object.Key{Kind: object.Secret, Namespace: "ns", Name: "gone"}, Why: "it was asked for"}}
	o.add("ns", "good", auths("a.io", "good"))
	var r recorder
	k := NewKeyring(Options{Recorder: &r, Log: logr.Discard(), Node: nodeEntries{}, Providers: providers{}})
	if got, err := k.For(t.Context(), podWith("good", "gone"), o, "a.io/app"); !object.IsUnknown(err) || got != nil || len(r.events) > 0 {
		t.Errorf("tried are %q, %v; events %q", names(got), err, r.events)
	}
	// The same for a service account or a token that a provider needs.
	k = NewKeyring(Options{Recorder: &r, Log: logr.Discard(), Node: nodeEntries{}, Providers: providers{err: fmt.Errorf("provider x: %w", o.fail)}})
	if got, err := k.For(t.Context(), podWith("good"), o, "a.io/app"); !object.IsUnknown(err) || got != nil || len(r.events) > 0 {
		t.Errorf("of a provider: tried are %q, %v; events %q", names(got), err, r.events)
	}
}

func TestKeyringErrors(t *testing.T) {
	var r recorder
	o := &objects{}
	k := NewKeyring(Options{Recorder: &r, Log: logr.Discard(), Node: nodeEntries{}, Providers: providers{err: errors.New("cut off")}})
	if _, err := k.For(t.Context(), podWith(), o, "NOT an image"); err == nil || !strings.Contains(err.Error(), `"NOT an image"`) {
		t.Errorf("a bad name: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.For(ctx, podWith("x"), o, "a.io/app"); !errors.Is(err, context.Canceled) || len(r.events) > 0 {
		t.Errorf("given up: %v, events %q", err, r.events)
	}
}
