package e2e

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// hush is in every secret of these tests, and in nothing else.
const hush = "hush"

// secretPods serves a pod to whoever knows the password, the header and the query that
// begin with a word, and remembers their Authorization.
type secretPods struct {
	*httptest.Server
	word string
	auth string
	// moved sends who asks to where nobody is, with all that they said.
	moved atomic.Bool
}

func serveSecretPods(t *testing.T, word string) *secretPods {
	t.Helper()
	s := &secretPods{word: word, auth: base64.StdEncoding.EncodeToString([]byte("captain:" + word + "-password"))}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if password != word+"-password" || r.Header.Get("X-Token") != word+"-header" || r.URL.Query().Get("token") != word+"-query" {
			http.Error(w, "who are you? "+r.Header.Get("X-Token")+r.URL.String(), http.StatusForbidden)
			return
		}
		if s.moved.Load() {
			http.Redirect(w, r, "http://captain:"+password+"@127.0.0.1:1/"+r.Header.Get("X-Token")+"?"+r.URL.RawQuery, http.StatusFound)
			return
		}
		fmt.Fprint(w, pod("remote"))
	}))
	t.Cleanup(s.Close)
	return s
}

// url is what only those know, header the header.
func (s *secretPods) url() string {
	return fmt.Sprintf("http://captain:%s-password@%s/pods?token=%s-query", s.word, s.Listener.Addr(), s.word)
}

func (s *secretPods) header() string { return s.word + "-header" }

// keepsSecrets looks for secrets wherever the agent tells something, and in what it wrote down.
func (v *shown) keepsSecrets(t *testing.T, server *secretPods) {
	t.Helper()
	reported := map[string]string{"the log": v.Logged()}
	for _, command := range []string{"config view", "config view -o json", "events -o json", "events -o wide", "pods -o json", "pods -o yaml", "why remote", "why remote -o json", "journal remote"} {
		reported["deckhand "+command], _ = v.Deckhand(strings.Fields(command)...) // why fails where something isn't well
	}
	for _, path := range []string{"configz", "flagz", "statusz", "metrics", "pods", "v1/config", "v1/snapshot", "v1/events"} {
		for _, local := range []bool{false, true} {
			_, _, reported[fmt.Sprintf("/%s (local: %v)", path, local)] = v.fetch(t, local, path, "")
		}
	}
	for _, dir := range []string{"journal", "checkpoints", "footprint.json", "pods"} {
		err := filepath.WalkDir(filepath.Join(v.RootDir, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			reported[path] = string(text)
			return err
		})
		if err != nil {
			t.Errorf("can't look into what the agent wrote down: %v", err)
		}
	}
	for where, text := range reported {
		for _, word := range []string{hush, server.auth} {
			if at := strings.Index(text, word); at >= 0 {
				t.Errorf("a secret is in %s: …%s…", where, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
	if view := reported["deckhand config view"]; !strings.Contains(view, "captain:<masked>@"+server.Listener.Addr().String()+"/pods?token=<masked>") {
		t.Errorf("of the URL nothing is left: %s", view)
	}
}

// byFlags has the secrets on the command line.
func (v *shown) byFlags(t *testing.T) {
	t.Helper()
	server := serveSecretPods(t, hush+"-flag")
	delete(v.file, "staticPodURL")
	delete(v.file, "staticPodURLHeader")
	v.Configure(v.file.String())
	// What is shown of a file without secrets is a file.
	again := filepath.Join(v.Base, "again.yaml")
	put(t, again, v.says(t, "config", "view", "--config", v.ConfigFile()))
	if out := v.says(t, "config", "check", again); strings.Contains(out, "problem") {
		t.Errorf("what is shown can't be used: %s", out)
	}
	v.AddFlags("--manifest-url", server.url(), "--manifest-url-header", "X-Token:"+server.header())
	v.Start()
	v.Await("the pods run, that from the URL too", agentIs(v.Node), noRestarts, node.Ready(append(v.names, "remote")...))
	put(t, v.ConfigFile(), v.ConfigText(v.file.String()+"registryPullQPS: -1\n"))
	v.hup(t, "invalid")
	v.configure(t, v.file, "unchanged")
	if out := v.says(t, "config", "view"); !strings.Contains(out, "  # from --manifest-url\n") || !strings.Contains(out, "  X-Token:  # from --manifest-url-header\n") {
		t.Errorf("it isn't reported that these are from flags: %s", out)
	}
	v.keepsSecrets(t, server)
}
