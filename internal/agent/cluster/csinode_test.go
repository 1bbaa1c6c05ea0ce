package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
)

// withCSINodes adds a CSINode object to an apiServer. Until allowed, it is forbidden.
type withCSINodes struct {
	*apiServer
	allowed atomic.Bool
	last    atomic.Pointer[[]byte]
	written chan *storage.CSINode
}

func (s *withCSINodes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.Path, "/csinodes") {
		s.apiServer.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	refuse := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		text, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code), Message: "csinodes are " + string(reason)})
		_, _ = w.Write(text)
	}
	switch body, _ := io.ReadAll(r.Body); {
	case !s.allowed.Load():
		refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
	case r.Method == http.MethodGet && s.last.Load() == nil:
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodGet:
		_, _ = w.Write(*s.last.Load())
	default:
		var n storage.CSINode
		if err := json.Unmarshal(body, &n); err != nil {
			refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		s.last.Store(&body)
		_, _ = w.Write(body)
		s.written <- &n
	}
}

// The node isn't ready before it has a CSINode object, and says why. Then a driver that has registered gets there.
func TestNotReadyWithoutCSINode(t *testing.T) {
	api := &withCSINodes{apiServer: &apiServer{changed: make(chan *v1.Node, 100)}, written: make(chan *storage.CSINode, 100)}
	board := nodefacts.NewBoard(nodefacts.Facts{HostIPs: []string{"192.0.2.1"}})
	facts, err := board.Writer("a test", nodefacts.CSIDrivers)
	if err != nil {
		t.Fatal(err)
	}
	join(t, api, board)
	await := func(contains bool, text string) {
		t.Helper()
		for {
			select {
			case n := <-api.changed:
				for _, c := range n.Status.Conditions {
					if c.Type == v1.NodeReady && c.Status == v1.ConditionFalse && c.Reason == "KubeletNotReady" && strings.Contains(c.Message, text) == contains {
						return
					}
				}
			case <-time.After(time.Minute):
				t.Fatalf("the message of Ready never was one that contains %q: %t", text, contains)
			}
		}
	}
	await(true, "; CSINode is not yet initialized")
	await(true, "; CSINode is not yet initialized: get CSINode n1: API server http://127.0.0.1:")
	api.allowed.Store(true)
	facts.Set(func(f *nodefacts.Facts) {
		f.CSIDrivers = []nodefacts.CSIDriver{{Name: "a.example", NodeID: "7", Topology: map[string]string{"example.com/rack": "1"}, Generation: 1}}
	})
	await(false, "CSINode") // the runtime isn't there either
	if n := <-api.written; len(n.Spec.Drivers) != 0 || n.OwnerReferences[0].UID != "uid" {
		t.Errorf("made: %+v", n)
	}
	if n := <-api.written; len(n.Spec.Drivers) != 1 || n.Spec.Drivers[0].NodeID != "7" {
		t.Errorf("written: %+v", n)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if n := api.node; n.Labels["example.com/rack"] != "1" || n.Annotations["csi.volume.kubernetes.io/nodeid"] != `{"a.example":"7"}` {
		t.Errorf("the node is %+v", n.ObjectMeta)
	}
}
