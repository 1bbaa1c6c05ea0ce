package agent_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// apiServer serves pods that never change, has no other object, and accepts every write. Pods that are sent to more
// become known to the watch.
type apiServer struct {
	pods v1.PodList
	more chan v1.Pod
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch {
	case r.URL.Query().Get("watch") != "":
		w.(http.Flusher).Flush()
		more := s.more
		if r.URL.Path != "/api/v1/pods" {
			more = nil
		}
		for r.Context().Err() == nil {
			select {
			case <-r.Context().Done():
			case p := <-more:
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": p})
				w.(http.Flusher).Flush()
			}
		}
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods":
		body, err = json.Marshal(s.pods)
	case r.Method == http.MethodGet:
		kind := map[string]string{"services": "ServiceList", "nodes": "NodeList"}[path.Base(r.URL.Path)]
		body = fmt.Appendf(nil, `{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`,
			cmp.Or(kind, "List"))
	}
	if err == nil {
		_, _ = io.Copy(w, bytes.NewReader(body))
	}
}

func podList(pods ...v1.Pod) v1.PodList {
	return v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: pods}
}

// apiPod is a pod of the API server with momentSpec.
func apiPod(t *testing.T, name string, priority int32) v1.Pod {
	t.Helper()
	p := v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
		Name: name + "-n", Namespace: "default", UID: types.UID(name + "-uid"), ResourceVersion: "1"}}
	if err := yaml.Unmarshal([]byte("spec:\n"+strings.ReplaceAll(momentSpec, "IMAGE", image)), &p); err != nil {
		t.Fatal(err)
	}
	spec.SetDefaults(&p)
	p.Spec.NodeName, p.Spec.Priority = "n", &priority
	return p
}

// TestClusterSparesPods: in a cluster, node pressure ends neither a static pod nor a critical one, though each uses
// more of the disk than the plain pod that is evicted.
func TestClusterSparesPods(t *testing.T) {
	t.Parallel()
	c := joined(t)
	c.await("all run", c.running("static/main", "critical/main", "plain/main"))
	c.press()
	c.spared()
}

// TestAbsentServerSparesPods: an agent that never reached the API server evicts pods that this had, with the same
// exceptions.
func TestAbsentServerSparesPods(t *testing.T) {
	t.Parallel()
	c := joined(t)
	c.await("all run", c.running("static/main", "critical/main", "plain/main"))
	c.stop()
	c.api.Close()
	c.up()
	c.press()
	c.spared()
}

// member is an agent in a cluster, on a small disk, with pods that can be evicted and others.
type member struct {
	*reloads
	api    *httptest.Server
	before map[string]string
}

// joined starts an agent and its pods.
func joined(t *testing.T) *member {
	t.Helper()
	r := newReloads(t, quietDisk)
	api := r.join(&apiServer{pods: podList(apiPod(t, "plain", 0), apiPod(t, "critical", 2_000_000_000))}, quietDisk)
	if err := os.Mkdir(r.path("root"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The rig unmounts it.
	if err := unix.Mount("deckhand-test", r.path("root"), "tmpfs", 0, "size=100m,mode=755"); err != nil {
		t.Fatal(err)
	}
	r.want("static", momentSpec)
	r.up()
	for _, name := range []string{"critical", "plain"} {
		r.awaitPod(name, ready)
	}
	return &member{reloads: r, api: api, before: map[string]string{}}
}

// inCluster are settings of an agent in a cluster.
const inCluster = "enableServer: false\ncontentType: application/json\n"

// join makes the next agent one of a cluster with this API server.
func (r *rig) join(api *apiServer, settings string) *httptest.Server {
	r.t.Helper()
	server := httptest.NewServer(api)
	r.t.Cleanup(func() { r.stop(); server.Close() }) // it waits for the agent's connections
	kubeconfig := "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}], " +
		"contexts: [{name: c, context: {cluster: k, user: u}}], " +
		"clusters: [{name: k, cluster: {server: '" + server.URL + "'}}]}"
	if err := os.WriteFile(r.path("kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.configure(inCluster + settings)
	return server
}

// press lets pods use some of the disk, and waits until none is left that may be evicted for that.
func (r *member) press() {
	r.t.Helper()
	for i, name := range []string{"plain/main", "critical/main", "static/main"} {
		r.before[name] = r.newest(name).Id
		file := filepath.Join(r.mount(name, "/data"), "file")
		if err := os.WriteFile(file, make([]byte, (i+1)<<22), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	r.reload(inCluster+evictingDisk, v1.EventTypeWarning, string(pod.ReasonEvictionFindsNoPod),
		"no pod that may be evicted")
}

// spared fails the test unless only the plain pod was evicted.
func (r *member) spared() {
	r.t.Helper()
	r.ended("plain", v1.PodFailed, string(pod.ReasonEvicted))
	r.await("the others run on", r.running("static/main", "critical/main"))
	for _, name := range []string{"critical/main", "static/main"} {
		if now := r.newest(name).Id; now != r.before[name] {
			r.t.Errorf("%s was restarted:\n%s", name, r.describe())
		}
	}
}
