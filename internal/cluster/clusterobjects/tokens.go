package clusterobjects

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// token is the state of a service account token that is bound to a pod.
type token struct {
	known
	// value is the newest token; nil before the first one. err is why there is no newer one; again is the earliest
	// time of the next request.
	value    *object.Token
	err      error
	again    time.Time
	failures int
	// outdated says that the clock was set, or the machine suspended, since value was issued: it has to be renewed now,
	// because the time of its renewal can't be determined.
	outdated bool
}

// lastKnown is how long a stored token of an earlier agent is used if the pod's volumes are lost and the API server
// is away. The token may have expired long ago.
const lastKnown = time.Minute

// Token returns a token that isn't due for renewal.
func (v view) Token(_ context.Context, r object.TokenRequest) (object.Token, error) {
	f, key := v.finder, object.TokenKey(v.pod)
	unknown := &object.Unknown{Key: object.Key{Kind: object.Kind(key.Kind), Namespace: key.Namespace, Name: key.Name},
		Why: "the API server is being asked"}
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.user.gone {
		unknown.Why = "the pod has ended"
		return object.Token{}, unknown
	}
	t := f.tokens[r]
	if t == nil {
		t = &token{}
		f.tokens[r] = t
		v.user.of[&t.known] = func() { delete(f.tokens, r) }
	}
	now := time.Now()
	if t.value != nil && !t.outdated && now.Before(t.value.Renew()) {
		return *t.value, nil
	}
	away := f.conf.Known.Away()
	if stored, known := f.conf.Known.Token(r); known && away && t.value == nil {
		last := object.NewToken(stored.Value(), now, now.Add(lastKnown))
		t.value = &last
		return last, nil
	}
	if t.err != nil && now.Before(t.again) {
		unknown.Why, unknown.NotBefore = t.err.Error(), t.again
		if away {
			unknown.Why += f.conf.Known.WhyNoToken(r)
		}
		return object.Token{}, unknown
	}
	if !t.asking {
		t.ask()
		f.spawn(func(ctx context.Context) { f.renew(ctx, v, r, t) })
	}
	return object.Token{}, unknown
}

// renew gets a token: the one that an earlier agent obtained, or a new one.
func (f *Finder) renew(ctx context.Context, v view, r object.TokenRequest, t *token) {
	f.mu.Lock()
	first := t.value == nil && t.failures == 0
	f.mu.Unlock()
	if first {
		if stored := f.storedToken(v.pod, r); stored != nil {
			f.issued(v, r, t, stored, nil, 0)
			return
		}
	}
	for {
		got, err := f.request(ctx, r)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			f.issued(v, r, t, got, nil, 0)
			return
		}
		again, _ := apiclient.Retry(err, 0)
		f.mu.Lock()
		after := delay(err, t.failures)
		t.failures++
		early := again && !v.user.gone && time.Since(t.since) < patience && after <= lastLag
		f.mu.Unlock()
		if !early {
			f.issued(v, r, t, nil, err, after)
			return
		}
		pause(ctx, time.After(after))
	}
}

// issued records a token, or why there is none and when to request it again.
func (f *Finder) issued(v view, r object.TokenRequest, t *token, got *object.Token, err error, after time.Duration) {
	f.mu.Lock()
	t.asking, t.at, t.err = false, time.Now(), err
	if err == nil {
		t.value, t.failures, t.outdated = got, 0, false
		f.conf.Known.SetToken(r, *got)
	} else {
		t.again = t.at.Add(after)
	}
	f.mu.Unlock()
	f.notify(object.TokenKey(v.pod))
}

// ClockChanged renews every token, because the clock was set or the machine was suspended.
func (f *Finder) ClockChanged() {
	f.mu.Lock()
	var keys []pod.Object
	for r, t := range f.tokens {
		if t.value != nil {
			t.outdated = true
			of := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Pod}}
			keys = append(keys, object.TokenKey(of))
		}
	}
	f.mu.Unlock()
	for _, k := range keys {
		f.notify(k)
	}
}

// Expired returns the pods whose token has expired without a newer one, as sorted namespace/name.
func (f *Finder) Expired() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, now := map[string]bool{}, time.Now()
	for r, t := range f.tokens {
		if t.value != nil && !now.Before(t.value.Until) {
			names[r.Namespace+"/"+r.Pod] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// request asks the API server for a token.
func (f *Finder) request(ctx context.Context, r object.TokenRequest) (*object.Token, error) {
	q := &authentication.TokenRequest{}
	q.Namespace, q.Name = r.Namespace, r.ServiceAccount
	q.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: r.Pod, UID: r.UID}
	if r.Audience != "" {
		q.Spec.Audiences = []string{r.Audience}
	}
	if r.Life > 0 {
		seconds := int64(r.Life / time.Second)
		q.Spec.ExpirationSeconds = &seconds
	}
	var answer authentication.TokenRequest
	if err := f.conf.API.Create(ctx, apiclient.Calls, apiclient.ServiceAccounts, r.Namespace, q, &answer,
		"token"); err != nil {
		return nil, err
	}
	now := time.Now()
	until := answer.Status.ExpirationTimestamp.Time
	if s := answer.Spec.ExpirationSeconds; s != nil { // by this node's clock
		until = now.Add(pod.Seconds(*s))
	}
	t := object.NewToken(answer.Status.Token, now, until)
	return &t, nil
}

// claims are the claims of a service account token (RFC 7519, and the private claims of Kubernetes).
type claims struct {
	Audience []string `json:"aud"`
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	Private  struct {
		Namespace string `json:"namespace"`
		Pod       struct {
			Name string    `json:"name"`
			UID  types.UID `json:"uid"`
		} `json:"pod"`
		Account struct {
			Name string `json:"name"`
		} `json:"serviceaccount"`
		// WarnAfter is set in tokens that are valid for longer than requested: it is when the token should have been
		// renewed, in Unix seconds.
		WarnAfter int64 `json:"warnafter"`
	} `json:"kubernetes.io"`
}

// storedToken is the token that an earlier agent wrote to a volume of the pod for the same request; nil if there is
// none, or if it is due for renewal. Its signature isn't verified: the token returns to the pod in which it was found.
func (f *Finder) storedToken(p *v1.Pod, r object.TokenRequest) *object.Token {
	for i := range p.Spec.Volumes {
		projected := p.Spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for j := range projected.Sources {
			s := projected.Sources[j].ServiceAccountToken
			if s == nil || s.Audience != r.Audience || s.ExpirationSeconds == nil ||
				pod.Seconds(*s.ExpirationSeconds) != r.Life {
				continue
			}
			text, err := f.conf.StoredToken(r.UID, p.Spec.Volumes[i].Name, s.Path)
			if err != nil {
				continue
			}
			if t, ok := readToken(text, r, time.Now()); ok {
				return &t
			}
		}
	}
	return nil
}

// readToken decodes a token by its own claims. ok says that it is for this request and isn't due for renewal.
func readToken(text string, r object.TokenRequest, now time.Time) (t object.Token, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return t, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return t, false
	}
	var c claims
	if json.Unmarshal(payload, &c) != nil {
		return t, false
	}
	until := time.Unix(c.Expires, 0)
	if c.Private.WarnAfter > 0 {
		until = time.Unix(c.Private.WarnAfter, 0)
	}
	t = object.NewToken(text, time.Unix(c.Issued, 0), until)
	mine := c.Private.Namespace == r.Namespace && c.Private.Account.Name == r.ServiceAccount &&
		c.Private.Pod.Name == r.Pod && c.Private.Pod.UID == r.UID &&
		(r.Audience == "" || slices.Equal(c.Audience, []string{r.Audience}))
	// A token issued in the future indicates that the clock was changed.
	const skew = time.Minute
	return t, mine && t.Issued.Before(now.Add(skew)) && t.Until.After(t.Issued) &&
		t.Until.Sub(t.Issued) <= max(r.Life, time.Hour)+skew && now.Before(t.Renew())
}
