package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
)

// apiServer has the object of one node, and nothing else. changed receives the object after each change.
type apiServer struct {
	mu      sync.Mutex
	node    *v1.Node
	changed chan *v1.Node
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
		<-r.Context().Done()
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes") && r.Method != http.MethodGet:
		n, err := s.change(r.Method, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		text, _ := json.Marshal(n)
		_, _ = w.Write(text)
		s.changed <- n
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	default:
		_, _ = w.Write(body) // leases
	}
}

func (s *apiServer) change(method string, body []byte) (*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &v1.Node{}
	if method == http.MethodPatch {
		n = s.node.DeepCopy()
	}
	conditions := slices.Clone(n.Status.Conditions)
	n.Status.Conditions = nil
	if err := json.Unmarshal(body, n); err != nil {
		return nil, err
	}
	for _, c := range n.Status.Conditions { // they are merged by type
		conditions = append(slices.DeleteFunc(conditions, func(old v1.NodeCondition) bool { return old.Type == c.Type }), c)
	}
	n.Kind, n.APIVersion, n.UID, n.Status.Conditions = "Node", "v1", "uid", conditions
	s.node = n
	return n, nil
}

// nothingRuns is a runtime without pods.
type nothingRuns struct{}

func (nothingRuns) All() []*pod.Observed { return nil }
func (nothingRuns) Listed() bool         { return true }

// join connects a node to an API server until the test ends.
func join(t *testing.T, api http.Handler, board *nodefacts.Board) *Cluster {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: [{name: k, cluster: {server: '"+server.URL+"'}}], users: [{name: u, user: {}}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	meter := metrics.New(metrics.Info{})
	hour := metav1.Duration{Duration: time.Hour}
	c, err := New(Config{
		Node: &config.Config{NodeName: "n1", Kubeconfig: kubeconfig, Kubelet: v1beta1.KubeletConfiguration{ContentType: runtime.ContentTypeJSON,
			NodeStatusUpdateFrequency: hour, NodeStatusReportFrequency: hour, NodeLeaseDurationSeconds: 40, SyncFrequency: hour, ConfigMapAndSecretChangeDetectionStrategy: v1beta1.WatchChangeDetectionStrategy}},
		Facts: board, Runtime: health.New(nil, 0, logr.Discard()), Healthy: func(time.Time) error { return nil },
		Desired: desired.New(logr.Discard(), pod.SourceAPI), Statuses: podstatus.NewStore(), Observed: nothingRuns{}, Events: events.Node{Recorder: events.New(10), Name: "n1"},
		Objects: object.NewLocal(func() *object.Set { return &object.Set{} }), ObjectsChanged: func(...pod.Object) {}, PodsDir: dir, Known: filepath.Join(dir, "known"),
		Files: filewatch.New(filewatch.Every, logr.Discard()),
		Meter: meter.APIClient, ClientCertificate: meter.Certificates.Client, ServingCertificate: meter.Certificates.Serving, Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- modules.NewRunner(logr.Discard()).Run(ctx, c.Modules()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return c
}

// TestPressureIsPatchedAtOnce: a change of the node's pressure is at the API server within 50 ms, also right after another one, and
// neither with the next heartbeat nor after the pause that other changes keep.
func TestPressureIsPatchedAtOnce(t *testing.T) {
	api := &apiServer{changed: make(chan *v1.Node, 100)}
	board := nodefacts.NewBoard(nodefacts.Facts{HostIPs: []string{"192.0.2.1"}, Pressure: admission.Pressure{PIDs: true}})
	facts, err := board.Writer("a test", nodefacts.Pressure)
	if err != nil {
		t.Fatal(err)
	}
	join(t, api, board)
	conditions := func(n *v1.Node) string {
		var list []string
		for _, c := range n.Status.Conditions {
			if c.Type != v1.NodeReady && c.Status == v1.ConditionTrue {
				list = append(list, string(c.Type)+" "+c.Reason+": "+c.Message)
			}
		}
		return strings.Join(list, ", ")
	}
	await := func(want string) {
		t.Helper()
		for {
			select {
			case n := <-api.changed:
				if conditions(n) == want {
					return
				}
			case <-time.After(time.Minute):
				t.Fatalf("the node's conditions never were %q", want)
			}
		}
	}
	await("PIDPressure KubeletHasInsufficientPID: kubelet has insufficient PID available")
	var took []time.Duration
	for range 10 {
		for _, step := range []struct {
			pressure admission.Pressure
			want     string
		}{
			{admission.Pressure{Memory: true}, "MemoryPressure KubeletHasInsufficientMemory: kubelet has insufficient memory available"},
			{admission.Pressure{Disk: true}, "DiskPressure KubeletHasDiskPressure: kubelet has disk pressure"},
		} {
			began := time.Now()
			facts.Set(func(f *nodefacts.Facts) { f.Pressure = step.pressure })
			await(step.want)
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	t.Logf("from the fact to the patch: median %s, longest %s", took[len(took)/2], took[len(took)-1])
	if median := took[len(took)/2]; median > 50*time.Millisecond { // a busy machine delays some
		t.Errorf("half of the changes take more than %s", median)
	}
}
