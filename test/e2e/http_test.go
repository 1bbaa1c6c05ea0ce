package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// manifestServer is a URL with a manifest, at an address that stays the same.
type manifestServer struct {
	t       *testing.T
	address string
	text    atomic.Pointer[string]
	server  *httptest.Server
}

func serveManifests(t *testing.T, address string) *manifestServer {
	t.Helper()
	s := &manifestServer{t: t, address: address}
	s.say("")
	s.up()
	t.Cleanup(func() { s.server.Close() })
	return s
}

func (s *manifestServer) say(text string) { s.text.Store(&text) }

func (s *manifestServer) up() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Ship") != "deckhand" {
			http.Error(w, "who are you?", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, *s.text.Load())
	}))
	// The one it came with.
	_ = s.server.Listener.Close()
	s.server.Listener = listener
	s.server.Start()
}

func (s *manifestServer) down() { s.server.Close() }

// Whatever a manifest URL does short of clearly saying something else, its pods stay.
func TestManifestURL(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{Config: "httpCheckFrequency: 1s"})
	server := serveManifests(t, fmt.Sprintf("127.0.0.1:%d", n.Port(5)))
	n.AddFlags("--manifest-url", "http://"+server.address+"/pods", "--manifest-url-header", "X-Ship:deckhand")
	both := pod("h") + "---\n" + pod("i")
	server.say(both)
	n.Write("f.yaml", pod("f"))
	n.Start()
	names := []string{"f", "h", "i"}
	n.Await("pods of file and URL run", node.Ready(names...), node.Only(names...))
	before := n.RunningIDs()
	stay := []node.Condition{node.Ready(names...), node.Only(names...), noRestarts}

	server.down()
	n.Await("the URL is reported down", append(stay, node.Problem(server.address, "connection refused"), node.Stale("h", "connection refused"))...)
	n.Kill()
	n.Start()
	n.Await("the URL is down while the agent starts", append(stay, agentIs(n), node.Problem(server.address, "connection refused"))...)
	const garbage = "must be an object"
	server.say("<html>we are moving</html>")
	server.up()
	n.Await("the URL serves garbage", append(stay, node.Stale("h", garbage), node.Problem(server.address, garbage))...)
	n.Stop()
	n.Start()
	n.Await("the URL serves garbage while the agent starts", append(stay, agentIs(n), node.Problem(server.address, garbage))...)
	unchanged(t, before, n.RunningIDs())

	server.say(both)
	n.Await("all is well again", append(stay, node.NoProblems)...)
	server.say(`{"apiVersion": "v1", "kind": "PodList", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"},
		"spec": {"containers": [{"name": "web", "image": "` + node.Image + `"}]}}]}`)
	n.Await("the URL says something else", node.Ready("f", "j"), node.Only("f", "j"))
	if now := n.RunningIDs(); now["f-node1/web"] != before["f-node1/web"] {
		t.Error("the file's pod was replaced")
	}
}
