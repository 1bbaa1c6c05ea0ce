package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

func TestWhatCounts(t *testing.T) {
	for _, c := range []struct {
		name         string
		pulled, used credentials.Credential
		want         bool
	}{
		{"the same secret", secret("s", "1", "good"), secret("s", "1", "good"), true},
		{"another secret with the same in it", secret("s", "1", "good"), secret("t", "2", "good"), true},
		{"the secret was edited", secret("s", "1", "good"), secret("s", "1", "new"), true},
		{"the secret was made anew", secret("s", "1", "good"), secret("s", "2", "new"), false},
		{"another secret", secret("s", "1", "good"), secret("t", "2", "bad"), false},
		{"without UIDs, the same in it", secret("s", "", "good"), secret("t", "", "good"), true},
		{"without UIDs, the same name", secret("s", "", "good"), secret("s", "", "bad"), false},
		{"the same account", account("a", "1"), account("a", "1"), true},
		{"an account made anew", account("a", "1"), account("a", "2"), false},
		{"accounts without UIDs", account("a", ""), account("a", ""), false},
		{"an account's password in a secret", account("a", "1"), secret("s", "1", "by-a"), false},
		{"a secret's, and the node's own now", secret("s", "1", "good"), credentials.Credential{Password: "good", Origin: credentials.Origin{Kind: credentials.FromNode}}, false},
		{"the node's own, and a secret now", credentials.Credential{Origin: credentials.Origin{Kind: credentials.FromNode}}, secret("s", "1", "any"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := load(t, dir, "")
			pull(t, r, "a:1", "sha256:a", c.pulled)
			for range 2 { // the second time after a restart
				if got := may(t, r, "a:1", "sha256:a", c.used); got != c.want {
					t.Errorf("got %v", got)
				}
				if c.want && !may(t, r, "a:2", "sha256:a", c.used) {
					t.Error("another tag of the same image isn't the same")
				}
				if got := may(t, r, "b:1", "sha256:a", c.used); got != (c.pulled.Origin.Kind == credentials.FromNode) {
					t.Errorf("another registry's name of the same image is good enough: %v", got)
				}
				r = load(t, dir, "")
			}
		})
	}
}

func TestAllThatOpenedAnImageIsRemembered(t *testing.T) {
	dir := t.TempDir()
	r := load(t, dir, "")
	pull(t, r, "a:1", "sha256:a", secret("s", "1", "one"))
	pull(t, r, "a:1", "sha256:a", secret("t", "2", "two"))
	pull(t, r, "a:1", "sha256:a", account("robot", "3"))
	for _, c := range []credentials.Credential{secret("s", "1", "one"), secret("t", "2", "two"), account("robot", "3")} {
		if !may(t, load(t, dir, ""), "a:1", "sha256:a", c) {
			t.Errorf("%v is forgotten", c)
		}
	}
	pull(t, r, "a:1", "sha256:a")
	if rec := r.records[fileName("sha256:a")].CredentialMapping["a"]; !rec.NodePodsAccessible || rec.KubernetesSecrets != nil || rec.KubernetesServiceAccounts != nil {
		t.Errorf("open to all, and yet %+v", rec)
	}
	pull(t, r, "a:1", "sha256:a", secret("s", "1", "one"))
	if !may(t, r, "a:1", "sha256:a") {
		t.Error("what was open to all is not any more")
	}
}

func TestARotatedSecretIsLearned(t *testing.T) {
	dir := t.TempDir()
	r := load(t, dir, "")
	pull(t, r, "a:1", "sha256:a", secret("s", "1", "old"))
	if !may(t, r, "a:1", "sha256:a", secret("s", "1", "new")) {
		t.Fatal("refused")
	}
	r = load(t, dir, "")
	if !may(t, r, "a:1", "sha256:a", secret("elsewhere", "2", "new")) || may(t, r, "a:1", "sha256:a", secret("third", "3", "old")) {
		t.Error("the new password isn't known, or the old one still is")
	}
}

func TestRecordsDontGrowForever(t *testing.T) {
	r := load(t, t.TempDir(), "")
	pull(t, r, "a:1", "sha256:a", secret("first", "0", "same"))
	for i := range 120 {
		if !may(t, r, "a:1", "sha256:a", secret("s", fmt.Sprint(i+1), "same")) {
			t.Fatal("refused")
		}
		pull(t, r, "b:1", "sha256:b", secret("s", fmt.Sprint(i), fmt.Sprint(i)))
		pull(t, r, "b:1", "sha256:b", account("s", fmt.Sprint(i+1)))
	}
	if n := len(r.records[fileName("sha256:a")].CredentialMapping["a"].KubernetesSecrets); n != maxEntries {
		t.Errorf("%d entries", n)
	}
	b := r.records[fileName("sha256:b")].CredentialMapping["b"]
	if len(b.KubernetesSecrets) != maxEntries || len(b.KubernetesServiceAccounts) != maxEntries || b.KubernetesSecrets[maxEntries-1].UID != "119" {
		t.Errorf("%d secrets and %d accounts, the last %+v", len(b.KubernetesSecrets), len(b.KubernetesServiceAccounts), b.KubernetesSecrets[maxEntries-1])
	}
}

// TestBlind: nobody may use anything on trust as long as nobody has looked what was pulled.
func TestBlind(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, directory), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(Config{RootDir: dir, Meter: &meter{}, Log: logr.Discard()})
	if err := r.Load(); err == nil {
		t.Fatal("loaded from a file")
	}
	if may(t, r, "a:1", "sha256:a", secret("s", "1", "p")) {
		t.Error("allowed")
	}
	if err := r.Intend("a:1"); err == nil {
		t.Error("a pull that can't be written down may begin")
	}
	wantCounts(t, r, 0, 0)
}

// TestARecordThatCantBeWritten: the image isn't anybody's then, now and after a restart.
func TestARecordThatCantBeWritten(t *testing.T) {
	dir := t.TempDir()
	r := load(t, dir, "")
	if err := r.Intend("a:1"); err != nil {
		t.Fatal(err)
	}
	pulled := filepath.Join(dir, directory, "pulled")
	if err := os.Remove(pulled); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pulled, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	login := secret("s", "1", "p")
	if err := r.Pulled("a:1", "sha256:a", &login); err == nil {
		t.Fatal("no error")
	}
	if may(t, r, "a:1", "sha256:a", login) {
		t.Error("allowed")
	}
	if err := os.Remove(pulled); err != nil {
		t.Fatal(err)
	}
	r = load(t, dir, "")
	if may(t, r, "a:1", "sha256:a", login) {
		t.Error("allowed after a restart")
	}
	wantCounts(t, r, 1, 0)
}

func TestResolveIntents(t *testing.T) {
	dir := t.TempDir()
	before := load(t, dir, "")
	pull(t, before, "kept:1", "sha256:kept", secret("s", "1", "p"))
	for _, image := range []string{"came:1", "failed:1", "kept:1", "unknown:1"} {
		if err := before.Intend(image); err != nil {
			t.Fatal(err)
		}
	}
	r := load(t, dir, "")
	if err := r.Intend("running:1"); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, r, 5, 1)
	err := r.ResolveIntents(t.Context(), func(_ context.Context, image string) (string, error) {
		switch image {
		case "came:1":
			return "sha256:came", nil
		case "kept:1":
			return "sha256:kept", nil
		case "failed:1":
			return "", nil
		}
		return "", errors.New("runtime is down")
	})
	if err == nil || !strings.Contains(err.Error(), `"unknown:1"`) || strings.Contains(err.Error(), "running") {
		t.Errorf("got %v", err)
	}
	wantCounts(t, r, 2, 2)
	for range 2 {
		if may(t, r, "came:1", "sha256:came", secret("s", "1", "p")) || !may(t, r, "kept:1", "sha256:kept", secret("s", "1", "p")) || !may(t, r, "failed:1", "sha256:imported") {
			t.Error("resolved wrongly")
		}
		r = load(t, dir, "")
	}
}

func TestIntentsOfSeveralPulls(t *testing.T) {
	r := load(t, t.TempDir(), "")
	for range 3 {
		if err := r.Intend("a:1"); err != nil {
			t.Fatal(err)
		}
	}
	r.NotPulled("a:1", true)
	wantCounts(t, r, 1, 0)
	r.NotPulled("a:1", false)
	r.NotPulled("a:1", true)
	wantCounts(t, r, 1, 0) // one may have succeeded
	if may(t, r, "a:1", "sha256:a") {
		t.Error("allowed")
	}
	pull(t, r, "a:1", "sha256:a")
	wantCounts(t, r, 0, 1)
	r.NotPulled("never-begun:1", true)
	wantCounts(t, r, 0, 1)
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	r := load(t, dir, "")
	pull(t, r, "old:1", "sha256:old", secret("s", "1", "p"))
	pull(t, r, "there:1", "sha256:there", secret("s", "1", "p"))
	since := time.Now()
	pull(t, r, "young:1", "sha256:young", secret("s", "1", "p"))
	if err := r.Prune([]string{"sha256:there"}, since); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, r, 0, 2)
	r = load(t, dir, "")
	wantCounts(t, r, 0, 2)
	if !may(t, r, "old:1", "sha256:old") || may(t, r, "there:1", "sha256:there") || may(t, r, "young:1", "sha256:young") {
		t.Error("the wrong ones were removed")
	}
}

func TestImported(t *testing.T) {
	dir := t.TempDir()
	r := load(t, dir, "")
	pull(t, r, "a:1", "sha256:a", secret("s", "1", "p"))
	if err := r.Intend("b:1"); err != nil {
		t.Fatal(err)
	}
	r.NotPulled("b:1", false)
	for _, image := range []string{"a", "b", "c"} {
		if err := r.Imported(image+":1", "sha256:"+image); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if !may(t, r, "a:1", "sha256:a") || !may(t, r, "b:1", "sha256:b") {
			t.Error("what was put there isn't for all")
		}
		wantCounts(t, r, 0, 0)
		r = load(t, dir, "")
	}
}

// TestOtherNames: what anybody can have under one name, every pod may use under all of them; what was pulled with a
// secret under one is nobody else's under another.
func TestOtherNames(t *testing.T) {
	login := secret("s", "1", "p")
	for _, c := range []struct {
		name string
		come func(r *Records)
		want bool
	}{
		{"imported, and pulled openly", func(r *Records) { importHere(t, r); pull(t, r, "there:1", "sha256:a") }, true},
		{"imported, and pulled with a secret", func(r *Records) { importHere(t, r); pull(t, r, "there:1", "sha256:a", login) }, true},
		{"pulled with a secret, and imported", func(r *Records) { pull(t, r, "there:1", "sha256:a", login); importHere(t, r) }, true},
		{"pulled with a secret, and openly", func(r *Records) { pull(t, r, "here:1", "sha256:a", login); pull(t, r, "there:1", "sha256:a") }, true},
		{"pulled with a secret", func(r *Records) { pull(t, r, "there:1", "sha256:a", login) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := load(t, dir, "")
			c.come(r)
			for range 2 { // the second time after a restart
				for _, name := range []string{"here:1", "there:1", "third:1"} {
					if got := may(t, r, name, "sha256:a"); got != c.want {
						t.Errorf("%s without a secret: %v", name, got)
					}
				}
				r = load(t, dir, "")
			}
			if err := r.Prune(nil, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			pull(t, r, "there:1", "sha256:a", login)
			if may(t, r, "here:1", "sha256:a") {
				t.Error("it was gone, and still is as it was put here")
			}
		})
	}
	r := load(t, t.TempDir(), "")
	pull(t, r, "there:1", "sha256:a", login)
	if !may(t, r, "there:2", "sha256:a", login) {
		t.Error("a further name in the repository of a pull, with its secret")
	}
	if may(t, r, "here:1", "sha256:a", login) { // as the help of `deckhand images tag` says
		t.Error("a further name elsewhere, with the secret of a pull")
	}
	r = load(t, t.TempDir(), v1beta1.AlwaysVerify)
	importHere(t, r)
	if may(t, r, "here:1", "sha256:a") {
		t.Error("what was imported isn't verified, by a policy that always does")
	}
}

// importHere imports the image sha256:a.
func importHere(t *testing.T, r *Records) {
	t.Helper()
	if err := r.Imported("here:1", "sha256:a"); err != nil {
		t.Fatal(err)
	}
}
