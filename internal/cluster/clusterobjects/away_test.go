package clusterobjects_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/cluster/clusterobjects"
	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// write has a store write what it knows.
func write(t *testing.T, s *lastknown.Store) {
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Run(ended); err != nil || len(s.Problems()) > 0 {
		t.Errorf("%v, %v", err, s.Problems())
	}
}

// TestAway: an agent that is started while the API server is away finds what the agent before it was told: that something isn't there, too. What that was
// not told isn't known. When the server is back, it is as that says.
func TestAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known")
	kept := func(server *answers) *lastknown.Store {
		s := lastknown.New(path, "", server)
		s.Open("")
		s.SetPods([]*v1.Pod{apiPod(1).Pod, apiPod(2).Pod})
		return s
	}
	conf := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "conf"}
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.put(&v1.ConfigMap{ObjectMeta: named("conf"), Data: map[string]string{"k": "1"}})
		a.put(&v1.Secret{ObjectMeta: named("secret"), Data: map[string][]byte{"k": []byte("canary")}})
		a.put(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "strong"}, Handler: "h"})
		a.put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}})
		a.put(&v1.Service{ObjectMeta: named("db"), Spec: v1.ServiceSpec{ClusterIP: "10.0.0.9"}})
		store := kept(&answers{ok: true})
		r := realm(t, a, func(c *clusterobjects.Config) { c.Known = store })
		ask := func() {
			v := r.For(apiPod(1))
			_, _ = v.ConfigMap(t.Context(), "default", "conf")
			_, _ = v.ConfigMap(t.Context(), "default", "optional")
			_, _ = v.Secret(t.Context(), "default", "secret")
			_, _ = v.RuntimeClass(t.Context(), "strong")
			_, _ = v.CSIDriver(t.Context(), "csi.example.com")
			_, _ = v.CSIDriver(t.Context(), "without")
			_, _ = v.Services(t.Context(), "default")
			_, _ = r.For(apiPod(2)).ConfigMap(t.Context(), "default", "conf")
		}
		ask()
		time.Sleep(time.Second)
		synctest.Wait()
		a.put(&v1.Service{ObjectMeta: named("cache"), Spec: v1.ServiceSpec{ClusterIP: "10.0.0.8"}})
		a.remove(object.Key{Kind: object.Service, Namespace: "default", Name: "db"})
		time.Sleep(time.Second)
		r.Forget("u2") // the other one has asked for it, too
		write(t, store)
	})
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		for _, k := range []object.Key{conf, {Kind: object.ConfigMap, Namespace: "default", Name: "optional"}, {Kind: object.ConfigMap, Namespace: "default", Name: "new"}, {Kind: object.Secret, Namespace: "default", Name: "secret"},
			{Kind: object.RuntimeClass, Name: "strong"}, {Kind: object.CSIDriver, Name: "csi.example.com"}, {Kind: object.CSIDriver, Name: "without"}, {Kind: object.CSIDriver, Name: "new"}, {Kind: object.Service}} {
			a.fail(k, slices.Repeat([]int{http.StatusServiceUnavailable}, 5)...)
		}
		a.put(&v1.ConfigMap{ObjectMeta: named("conf"), Data: map[string]string{"k": "2"}})
		server := &answers{since: time.Now()}
		store := kept(server)
		r := realm(t, a, func(c *clusterobjects.Config) { c.Known = store })
		v := r.For(apiPod(1))
		if got, err := v.ConfigMap(t.Context(), "default", "conf"); err != nil || got.Data["k"] != "1" {
			t.Errorf("a ConfigMap: %v, %v", got, err)
		}
		if _, err := v.ConfigMap(t.Context(), "default", "optional"); !apierrors.IsNotFound(err) {
			t.Errorf("one that isn't there: %v", err)
		}
		if got, err := v.RuntimeClass(t.Context(), "strong"); err != nil || got.Handler != "h" {
			t.Errorf("a RuntimeClass: %v, %v", got, err)
		}
		if got, err := v.CSIDriver(t.Context(), "csi.example.com"); err != nil || got.Spec.AttachRequired == nil || *got.Spec.AttachRequired {
			t.Errorf("a CSIDriver: %v, %v", got, err)
		}
		if _, err := v.CSIDriver(t.Context(), "without"); !apierrors.IsNotFound(err) {
			t.Errorf("a driver without a CSIDriver: %v", err)
		}
		if _, err := v.CSIDriver(t.Context(), "new"); !object.IsUnknown(err) {
			t.Errorf("a driver that nobody asked about before: %v", err)
		}
		if got, err := v.Services(t.Context(), "default"); err != nil || len(got) != 1 || got[0].Spec.ClusterIP != "10.0.0.8" {
			t.Errorf("Services: %v, %v", got, err)
		}
		if _, err := v.ConfigMap(t.Context(), "default", "new"); !object.IsUnknown(err) {
			t.Errorf("what nobody was told: %v", err)
		}
		if _, err := v.Secret(t.Context(), "default", "secret"); !object.IsUnknown(err) || !strings.Contains(err.Error(), "keeps none") {
			t.Errorf("a Secret: %v", err)
		}
		time.Sleep(time.Minute)
		if got, err := v.ConfigMap(t.Context(), "default", "conf"); err != nil || got.Data["k"] != "2" {
			t.Errorf("when it is back: %v, %v", got, err)
		}
	})
}

// TestAwayWithKeys: with a key, Secrets and tokens are known, too. A token does that has ended long ago, and is renewed when the API server is back.
func TestAwayWithKeys(t *testing.T) {
	dir := t.TempDir()
	path, key := filepath.Join(dir, "known"), filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o400); err != nil {
		t.Fatal(err)
	}
	kept := func(server *answers) *lastknown.Store {
		s := lastknown.New(path, key, server)
		s.Open("")
		s.SetPods([]*v1.Pod{apiPod(1).Pod})
		return s
	}
	d, secret := apiPod(1), object.Key{Kind: object.Secret, Namespace: "default", Name: "secret"}
	var first string
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.put(&v1.Secret{ObjectMeta: named("secret"), Data: map[string][]byte{"k": []byte("canary")}})
		store := kept(&answers{ok: true})
		r := realm(t, a, func(c *clusterobjects.Config) { c.Known = store })
		_, _ = r.For(d).Secret(t.Context(), "default", "secret")
		_, _ = r.For(d).Token(t.Context(), tokenOf(d))
		time.Sleep(time.Second)
		synctest.Wait()
		token, err := r.For(d).Token(t.Context(), tokenOf(d))
		if err != nil {
			t.Fatal(err)
		}
		first = token.Value()
		write(t, store)
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(48 * time.Hour)
		a := newAPI()
		a.put(&v1.Secret{ObjectMeta: named("secret"), Data: map[string][]byte{"k": []byte("new")}})
		a.fail(secret, slices.Repeat([]int{http.StatusServiceUnavailable}, 5)...)
		server := &answers{since: time.Now()}
		store := kept(server)
		r := realm(t, a, func(c *clusterobjects.Config) { c.Known = store })
		if got, err := r.For(d).Secret(t.Context(), "default", "secret"); err != nil || string(got.Data["k"]) != "canary" {
			t.Errorf("a Secret: %v, %v", got, err)
		}
		token, err := r.For(d).Token(t.Context(), tokenOf(d))
		if err != nil || token.Value() != first || !token.Renew().After(time.Now()) {
			t.Errorf("a token: %v, %v", token, err)
		}
		if names := r.Finder.(*clusterobjects.Finder).Expired(); len(names) > 0 {
			t.Errorf("ended, before that is known: %q", names)
		}
		time.Sleep(time.Until(token.Until))
		if names := r.Finder.(*clusterobjects.Finder).Expired(); !slices.Equal(names, []string{d.Pod.Namespace + "/" + d.Pod.Name}) {
			t.Errorf("ended: %q", names)
		}
		server.ok = true
		_, _ = r.For(d).Token(t.Context(), tokenOf(d))
		time.Sleep(time.Second)
		if next, err := r.For(d).Token(t.Context(), tokenOf(d)); err != nil || next.Value() == "" || next.Issued.Equal(token.Issued) || len(r.Finder.(*clusterobjects.Finder).Expired()) > 0 {
			t.Errorf("when it is back: %v, %v", next, err)
		}
	})
}
