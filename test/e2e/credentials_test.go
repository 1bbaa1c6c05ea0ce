package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// Passwords that must not be shown.
const (
	rightPassword = "the-right-password"
	wrongPassword = "a-wrong-password"
	nodePassword  = "a-password-of-the-node"
	oldPassword   = "a-password-that-expires"
	newPassword   = "a-password-that-follows"
)

// dockerConfig is a docker configuration that says how to log in at one registry.
func dockerConfig(r *registry.Registry, user, password string) string {
	return fmt.Sprintf(`{"auths": {%q: {"username": %q, "password": %q}}}`, r.Host(), user, password)
}

// pullSecret is a manifest of a pull secret for one registry.
func pullSecret(name string, r *registry.Registry, user, password string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '%s'}\n",
		name, dockerConfig(r, user, password))
}

// documents are several manifests in one file.
func documents(list ...string) string { return strings.Join(list, "---\n") }

// Pods pull with what they have been given, and get no other pod's images.
func TestPullSecrets(t *testing.T) {
	t.Parallel()
	n := start(t)
	r := registry.New(t, registry.WithUser("me", rightPassword))
	for _, name := range []string{"private", "refused", "several", "late"} {
		r.Push(t, name+":1", runnable(t, n, 1000))
	}
	n.Write("secrets.yaml", documents(pullSecret("right", r, "me", rightPassword), pullSecret("wrong", r, "me", wrongPassword),
		pullSecret("copy", r, "me", rightPassword)))
	n.Write("owner.yaml", podFrom("owner", r.Ref("private:1"), pullSecrets("right")))
	n.Write("refused.yaml", podFrom("refused", r.Ref("refused:1"), pullSecrets("wrong")))
	n.Write("several.yaml", podFrom("several", r.Ref("several:1"), pullSecrets("wrong", "right")))
	n.Write("late.yaml", podFrom("late", r.Ref("late:1"), pullSecrets("to-come")))
	n.Await("who has the password has the image", node.Ready("owner", "several"),
		waiting("refused", "ImagePullBackOff", "with secret default/wrong: "), waiting("refused", "ImagePullBackOff", "401 Unauthorized"),
		waiting("late", "ImagePullBackOff", "no basic auth credentials"))
	n.AwaitEvent("late", "FailedToRetrieveImagePullSecret", "to-come")
	n.Write("late-secret.yaml", pullSecret("to-come", r, "me", rightPassword))

	verified(t, n, r)
	n.Await("the secret that came late is used", node.Ready("late"))
	unseen(t, n, "refused", rightPassword, wrongPassword)
	for _, name := range []string{"owner", "refused", "thief"} {
		replays(t, n, name)
	}

	n.Stop()
	n.Configure("imagePullCredentialsVerificationPolicy: NeverVerify")
	n.Start()
	n.Await("without verification the image is everybody's", agentIs(n), node.Ready("owner", "thief", "never", "again"))
	counts(t, r, "private:1", 1)
}

// verified looks at who may use the image that the pod owner has pulled, with this
// agent and with the next.
func verified(t *testing.T, n *node.Node, r *registry.Registry) {
	t.Helper()
	const words = "was pulled with credentials that this pod hasn't shown to have"
	before := r.Refused(http.StatusUnauthorized)
	n.Write("thief.yaml", podFrom("thief", r.Ref("private:1"), ifNotPresent))
	n.Write("never.yaml", podFrom("never", r.Ref("private:1"), never))
	n.Write("friend.yaml", podFrom("friend", r.Ref("private:1"), pullSecrets("right"), never))
	n.Write("copy.yaml", podFrom("copy", r.Ref("private:1"), pullSecrets("copy"), ifNotPresent))
	n.Write("free.yaml", pod("free", never))
	n.Await("an image is for who may have it", node.Ready("friend", "copy", "free"),
		waiting("thief", "ImagePullBackOff", words), waiting("thief", "ImagePullBackOff", "no basic auth credentials"), waiting("never", "ErrImageNeverPull", words))
	if r.Refused(http.StatusUnauthorized) == before {
		t.Error("the registry wasn't asked whether the pod may have the image")
	}
	counts(t, r, "private:1", 1)
	n.Kill()
	n.Start()
	n.Write("again.yaml", podFrom("again", r.Ref("private:1"), ifNotPresent))
	n.Write("friend2.yaml", podFrom("friend2", r.Ref("private:1"), pullSecrets("right"), never))
	n.Await("the next agent knows, too", agentIs(n), node.Ready("owner", "friend", "friend2"), waiting("again", "ImagePullBackOff", words))
	counts(t, r, "private:1", 1)
}

// unseen fails the test if a person or another program gets to see one of the secrets.
func unseen(t *testing.T, n *node.Node, name string, secrets ...string) {
	t.Helper()
	shown := map[string]string{"the log": n.Logged(), "a record": strings.Join(records(t, n, "pulled"), "")}
	for _, command := range []string{"events -o yaml", "pods -o yaml", "pods", "why " + name, "why " + name + " -o json", "journal " + name, "images -o yaml"} {
		shown["deckhand "+command], _ = n.Deckhand(strings.Fields(command)...)
	}
	for _, page := range []string{"pods", "spec/", "metrics"} {
		body, _, err := get(n.ReadOnlyURL(page))
		if err != nil {
			t.Error(err)
		}
		shown["the page "+page] = body
	}
	for where, text := range shown {
		for _, secret := range secrets {
			if strings.Contains(text, secret) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("me:"+secret))) {
				t.Errorf("%s shows a password:\n%s", where, text)
			}
		}
	}
}

// The node's own configuration and its credential providers are for all pods; a password
// that doesn't open the door any more is asked for anew.
func TestNodeCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, cloud := registry.New(t, registry.WithUser("node", nodePassword)), registry.New(t, registry.WithUser("robot", oldPassword))
	file, log := filepath.Join(dir, "password"), filepath.Join(dir, "log")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "robot:"+oldPassword)
	write(filepath.Join(dir, "providers.yaml"), fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: provider
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [%q]
  defaultCacheDuration: 1h
  args: [%q, %q]
`, cloud.Host(), file, log))
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "provider"), "./provider").CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	n := node.New(t, binary, node.Options{Flags: []string{"--image-credential-provider-config", filepath.Join(dir, "providers.yaml"), "--image-credential-provider-bin-dir", dir}})
	write(filepath.Join(n.RootDir, "config.json"), dockerConfig(own, "node", nodePassword))
	n.Start()
	own.Push(t, "app:1", runnable(t, n, 1000))
	for _, name := range []string{"team/kept:1", "team/kept:2", "team/fresh:1"} {
		cloud.Push(t, name, runnable(t, n, 1000))
	}
	asked := func(image string, want int) {
		t.Helper()
		text, err := os.ReadFile(log)
		if got := strings.Count(string(text), cloud.Ref(image)+"\n"); err != nil || got != want {
			t.Errorf("the provider was asked for %s %d times, want %d (%v)", image, got, want, err)
		}
	}
	n.Write("own.yaml", podFrom("own", own.Ref("app:1")))
	n.Write("kept.yaml", podFrom("kept", cloud.Ref("team/kept:1")))
	n.Await("pods without secrets have the node's images", node.Ready("own", "kept"))
	n.Write("kept2.yaml", podFrom("kept2", cloud.Ref("team/kept:2")))
	n.Write("same.yaml", podFrom("same", cloud.Ref("team/kept:1"), never))
	n.Await("what the provider said is kept", node.Ready("kept2", "same"))
	asked("team/kept", 1)

	cloud.SetPassword("robot", newPassword)
	n.Write("fresh.yaml", podFrom("fresh", cloud.Ref("team/fresh:1")))
	n.Await("the password has expired", waiting("fresh", "ImagePullBackOff", "with the node's configuration: "), waiting("fresh", "ImagePullBackOff", "401 Unauthorized"))
	asked("team/fresh", 1)
	write(file, "robot:"+newPassword)
	mustPull(t, n, cloud.Ref("team/fresh:1")) // asks anew, and has the pods look again that couldn't have it
	n.Await("the provider is asked again", node.Ready("fresh"))
	asked("team/fresh", 2)
	unseen(t, n, "fresh", nodePassword, oldPassword, newPassword)
}
