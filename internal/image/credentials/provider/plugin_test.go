package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/config/v1"
	pluginv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/credentials/provider/execplugin"
)

// fake is a program in memory: it takes a second and answers with the number of
// its call as user and the token it was given as password.
type fake struct {
	key      pluginv1.PluginCacheKeyType
	duration *time.Duration
	err      error

	mu              sync.Mutex
	calls, running  int
	most, cancelled int
	asked           []execplugin.Request
}

func (f *fake) Ask(ctx context.Context, r execplugin.Request) (execplugin.Response, error) {
	f.mu.Lock()
	f.calls++
	n := f.calls
	f.running++
	f.most = max(f.most, f.running)
	f.asked = append(f.asked, r)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running--
	}()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		f.mu.Lock()
		defer f.mu.Unlock()
		f.cancelled++
		return execplugin.Response{}, context.Cause(ctx)
	}
	pattern, err := credentials.ParsePattern("*.io")
	if err != nil || f.err != nil {
		return execplugin.Response{}, errors.Join(err, f.err)
	}
	return execplugin.Response{Key: f.key, Duration: f.duration,
		Entries: []credentials.Entry{{Pattern: pattern, Credential: credentials.Credential{Username: fmt.Sprint(n), Password: r.Token}}}}, nil
}

func (f *fake) plugin(attributes *kubeletv1.ServiceAccountTokenAttributes, most int64) *plugin {
	config := Provider{CredentialProvider: kubeletv1.CredentialProvider{Name: "fake", DefaultCacheDuration: &metav1.Duration{Duration: time.Hour}, TokenAttributes: attributes}}
	return newPlugin(config, f, semaphore.NewWeighted(most), &counts{}, logr.Discard())
}

// plain is an asker without a service account.
func plain(t *testing.T, ref string) asker { return asker{image: image(t, ref)} }

func (p *plugin) user(ctx context.Context, t *testing.T, a asker) string {
	t.Helper()
	entries, err := p.ask(ctx, a)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
		return ""
	}
	return entries[0].Credential.Username
}

func TestCacheKeysAndDurations(t *testing.T) {
	zero, minute := time.Duration(0), time.Minute
	for _, c := range []struct {
		name     string
		key      pluginv1.PluginCacheKeyType
		duration *time.Duration
		wait     time.Duration
		want     string // the calls that answer for a.io/x:1, a.io/x:2, a.io/y, b.io/x and, after wait, a.io/x
	}{
		{"by image", pluginv1.ImagePluginCacheKeyType, nil, 50 * time.Minute, "1 1 2 3 1"},
		{"by image, expired", pluginv1.ImagePluginCacheKeyType, nil, time.Hour, "1 1 2 3 4"},
		{"by registry", pluginv1.RegistryPluginCacheKeyType, nil, 50 * time.Minute, "1 1 1 2 1"},
		{"for all", pluginv1.GlobalPluginCacheKeyType, nil, 50 * time.Minute, "1 1 1 1 1"},
		{"for all, expired by its own duration", pluginv1.GlobalPluginCacheKeyType, &minute, 2 * time.Minute, "1 1 1 1 2"},
		{"not kept", pluginv1.GlobalPluginCacheKeyType, &zero, 0, "1 2 3 4 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{key: c.key, duration: c.duration}
				p := f.plugin(nil, 1)
				var got []string
				for _, ref := range []string{"a.io/x:1", "a.io/x:2", "a.io/y", "b.io/x"} {
					got = append(got, p.user(t.Context(), t, plain(t, ref)))
				}
				time.Sleep(c.wait)
				got = append(got, p.user(t.Context(), t, plain(t, "a.io/x")))
				if strings.Join(got, " ") != c.want {
					t.Errorf("answered by calls %v, want %s", got, c.want)
				}
			})
		})
	}
}

func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache{}
		key := func(i int) cacheKey { return cacheKey{kind: pluginv1.ImagePluginCacheKeyType, place: fmt.Sprint(i)} }
		for i := range 2 * maxCached {
			c.put(key(i), nil, time.Duration(i+1)*time.Hour)
		}
		if _, ok := c[key(maxCached)]; len(c) != maxCached || !ok {
			t.Errorf("%d are kept; those that last longest: %v", len(c), ok)
		}
		c.put(key(2*maxCached-1), nil, time.Hour) // the same again takes nobody's place
		if len(c) != maxCached {
			t.Errorf("%d are kept", len(c))
		}
		time.Sleep(10000 * time.Hour)
		c.put(key(0), nil, time.Hour)
		if len(c) != 1 {
			t.Errorf("%d are kept, of which one hasn't expired", len(c))
		}
	})
}

// TestOneCallForMany: thirty pods that want ten images of one registry at once.
func TestOneCallForMany(t *testing.T) {
	zero := time.Duration(0)
	for _, c := range []struct {
		name     string
		key      pluginv1.PluginCacheKeyType
		duration *time.Duration
		err      error
		calls    int
		took     time.Duration
	}{
		{"by registry", pluginv1.RegistryPluginCacheKeyType, nil, nil, 1, time.Second},
		{"for all", pluginv1.GlobalPluginCacheKeyType, nil, nil, 1, time.Second},
		{"by image", pluginv1.ImagePluginCacheKeyType, nil, nil, 10, 4 * time.Second}, // one, then three at a time
		{"not kept", pluginv1.ImagePluginCacheKeyType, &zero, nil, 10, 4 * time.Second},
		{"failing", pluginv1.RegistryPluginCacheKeyType, nil, errors.New("no network"), 10, 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{key: c.key, duration: c.duration, err: c.err}
				p := f.plugin(nil, 3)
				start := time.Now()
				var wait sync.WaitGroup
				for i := range 30 {
					wait.Go(func() {
						if _, err := p.ask(t.Context(), plain(t, fmt.Sprintf("a.io/x%d", i%10))); !errors.Is(err, c.err) {
							t.Errorf("the error is %v", err)
						}
					})
				}
				wait.Wait()
				if f.calls != c.calls || f.most > 3 || time.Since(start) != c.took {
					t.Errorf("%d calls, %d at once, in %v; want %d, at most 3, in %v", f.calls, f.most, time.Since(start), c.calls, c.took)
				}
				if len(p.calls) > 0 {
					t.Errorf("%d calls are remembered", len(p.calls))
				}
			})
		})
	}
}

func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{key: pluginv1.RegistryPluginCacheKeyType}
		p := f.plugin(nil, 1)
		first, giveUpFirst := context.WithCancel(t.Context())
		second, giveUpSecond := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for _, ctx := range []context.Context{first, second} {
			wait.Go(func() {
				if _, err := p.ask(ctx, plain(t, "a.io/x")); !errors.Is(err, context.Canceled) {
					t.Errorf("the error is %v", err)
				}
			})
		}
		synctest.Wait()
		giveUpFirst()
		synctest.Wait()
		if f.cancelled != 0 {
			t.Error("the call ended though one still waits for it")
		}
		giveUpSecond()
		wait.Wait()
		if f.calls != 1 || f.cancelled != 1 || f.running != 0 {
			t.Errorf("%d calls, %d cancelled, %d running", f.calls, f.cancelled, f.running)
		}
		if got := p.user(t.Context(), t, plain(t, "a.io/x")); got != "2" {
			t.Errorf("who comes next is answered by call %s", got)
		}
	})
}

func TestServiceAccounts(t *testing.T) {
	yes, no, zero := true, false, time.Duration(0)
	attributes := func(cacheType kubeletv1.ServiceAccountTokenCacheType, required *bool) *kubeletv1.ServiceAccountTokenAttributes {
		return &kubeletv1.ServiceAccountTokenAttributes{ServiceAccountTokenAudience: "me", CacheType: cacheType, RequireServiceAccount: required}
	}
	for _, c := range []struct {
		name     string
		wants    *kubeletv1.ServiceAccountTokenAttributes
		duration *time.Duration
		calls    string // those that answer for pod 1 and 2 of robot, pod 1 again, pod 3 of other, pod 4 without an account
		issued   int
	}{
		{"by account", attributes("ServiceAccount", &yes), nil, "1 1 1 2 -", 2},
		{"by token", attributes("Token", &yes), nil, "1 2 1 3 -", 4},
		{"not kept", attributes("ServiceAccount", &yes), &zero, "1 2 3 4 -", 4},
		{"accounts aren't required", attributes("ServiceAccount", &no), nil, "1 1 1 2 3", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{key: pluginv1.RegistryPluginCacheKeyType, duration: c.duration}
				p := f.plugin(c.wants, 1)
				issuer, s := &tokens{}, &Plugins{}
				sas := issued{objects{"ns/robot": account("ns", "robot", "u1", nil), "ns/other": account("ns", "other", "u2", nil)}, issuer}
				var got []string
				for _, who := range [][2]string{{"robot", "1"}, {"robot", "2"}, {"robot", "1"}, {"other", "3"}, {"", "4"}} {
					entries, err := s.ask(t.Context(), p, podOf(who[0], who[1]), sas, image(t, "a.io/x"))
					switch {
					case err != nil:
						t.Error(err)
					case len(entries) == 0:
						got = append(got, "-")
					default:
						got = append(got, entries[0].Credential.Username)
						if o := entries[0].Credential.Origin; o.Name != who[0] {
							t.Errorf("pod %v has a credential of %v", who, o)
						}
						if token := entries[0].Credential.Password; who[0] != "" && !strings.HasPrefix(token, "ns|"+who[0]+"|me|") || who[0] == "" && token != "" {
							t.Errorf("pod %v has a credential for the token %s", who, token)
						}
					}
				}
				if strings.Join(got, " ") != c.calls || issuer.issued != c.issued {
					t.Errorf("answered by calls %v with %d tokens, want %s with %d", got, issuer.issued, c.calls, c.issued)
				}
			})
		})
	}
}

// TestNoPodHasAnothersAnswer: what a plugin doesn't want to be kept isn't shared
// between pods at the same time either, since it was made from one pod's token.
func TestNoPodHasAnothersAnswer(t *testing.T) {
	for _, cacheType := range []kubeletv1.ServiceAccountTokenCacheType{"Token", "ServiceAccount"} {
		synctest.Test(t, func(t *testing.T) {
			yes, zero := true, time.Duration(0)
			f := &fake{key: pluginv1.GlobalPluginCacheKeyType, duration: &zero}
			p := f.plugin(&kubeletv1.ServiceAccountTokenAttributes{ServiceAccountTokenAudience: "me", CacheType: cacheType, RequireServiceAccount: &yes}, 8)
			s, sas := &Plugins{}, issued{objects{"ns/robot": account("ns", "robot", "u1", nil)}, &tokens{}}
			var wait sync.WaitGroup
			for i := range 20 {
				wait.Go(func() {
					uid := fmt.Sprint(i % 5)
					entries, err := s.ask(t.Context(), p, podOf("robot", uid), sas, image(t, "a.io/x"))
					if err != nil || entries[0].Credential.Password != "ns|robot|me|web-"+uid+"|"+uid {
						t.Errorf("pod %s has %v, %v", uid, entries, err)
					}
				})
			}
			wait.Wait()
			if f.calls != 5 {
				t.Errorf("%s: %d calls for 5 pods that asked 4 times at once", cacheType, f.calls)
			}
		})
	}
}

func TestAnnotations(t *testing.T) {
	yes := true
	wants := &kubeletv1.ServiceAccountTokenAttributes{ServiceAccountTokenAudience: "me", CacheType: "ServiceAccount", RequireServiceAccount: &yes,
		RequiredServiceAccountAnnotationKeys: []string{"id", "kind"}, OptionalServiceAccountAnnotationKeys: []string{"hint", "none"}}
	all := map[string]string{"id": "1", "kind": "x", "hint": "h", "secret": "not sent"}
	sas := objects{"ns/robot": account("ns", "robot", "u1", all), "ns/poor": account("ns", "poor", "u2", map[string]string{"kind": "x"})}
	seen := issued{sas, &tokens{}}
	scopes := map[string]bool{}
	note := func() {
		got, isAsked, err := newAsker(t.Context(), wants, podOf("robot", "1"), seen, image(t, "a.io/x"))
		if err != nil || !isAsked {
			t.Fatalf("%v, %v", isAsked, err)
		}
		scopes[got.scope] = true
		if got.annotations["secret"] != "" || got.annotations["id"] != all["id"] || len(got.annotations) != 3 {
			t.Errorf("the plugin is told %v", got.annotations)
		}
	}
	note()
	all["secret"] = "still not sent"
	note()
	all["id"] = "2"
	note()
	sas["ns/robot"].UID = "u3" // made again
	note()
	if len(scopes) != 3 {
		t.Errorf("%d scopes, want one for each account and set of annotations that counts: %v", len(scopes), scopes)
	}
	if _, _, err := newAsker(t.Context(), wants, podOf("poor", "1"), seen, image(t, "a.io/x")); err == nil || err.Error() != "service account ns/poor is missing the annotations id, which this provider requires" {
		t.Errorf("the error is %v", err)
	}
	if _, _, err := newAsker(t.Context(), wants, podOf("gone", "1"), seen, image(t, "a.io/x")); err == nil || err.Error() != "the pod's service account ns/gone doesn't exist" {
		t.Errorf("the error is %v", err)
	}
	seen.tokens = &tokens{err: errors.New("forbidden")}
	for _, cacheType := range []kubeletv1.ServiceAccountTokenCacheType{"Token", "ServiceAccount"} {
		wants.CacheType = cacheType
		f := &fake{}
		if _, err := (&Plugins{}).ask(t.Context(), f.plugin(wants, 1), podOf("robot", "1"), seen, image(t, "a.io/x")); err == nil || !strings.Contains(err.Error(), "forbidden") || f.calls > 0 {
			t.Errorf("no token: %v after %d calls", err, f.calls)
		}
	}
}
