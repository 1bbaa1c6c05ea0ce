// Package localtest has an agent for tests of the local API and its users.
package localtest

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Agent is a local.Agent and local.Images whose answers a test sets.
type Agent struct {
	mu       sync.Mutex
	snapshot local.Snapshot
	images   []image.Image
	events   []local.Event
	details  map[types.UID]local.Details
	journals map[types.UID][2]string
	config   local.Configuration
	node     local.Node
	volumes  []local.Volume
	changed  wake.Group
	// OnSnapshot, if set, is called after each Snapshot. It must be set before the agent is used.
	OnSnapshot func()
	// OnRun implements Run. It must be set before the agent is used.
	OnRun func(origin string, manifest []byte) (local.Run, error)
	// OnStop implements StopPods ("stop", "restart"), StartPods ("start") and StopAll ("all"). It must be set before
	// the agent is used.
	OnStop func(how string, names ...types.NamespacedName) error
	// OnAdd implements AddContainer. It must be set before the agent is used.
	OnAdd func(pod types.NamespacedName, c v1.EphemeralContainer) error
	// OnForget implements ForgetVolume. It must be set before the agent is used.
	OnForget func(id string) (local.Forgotten, error)
	// OnSession serves exec, attach and portForward, Pages the pages by path. Both must be set before the agent is
	// used.
	Pages     map[string]http.Handler
	OnSession http.Handler
}

var (
	_ local.Agent  = (*Agent)(nil)
	_ local.Images = (*Agent)(nil)
)

// New returns an agent with nothing to report.
func New() *Agent { return &Agent{} }

// Serve serves the agent's API below a new root directory, which it returns, until the test ends. Container logs are
// read from its directory "logs".
func Serve(t testing.TB, agent *Agent) (rootDir string) {
	t.Helper()
	rootDir = t.TempDir()
	listener, err := socket.Listen(local.SocketPath(rootDir))
	if err != nil {
		t.Fatal(err)
	}
	ServeOn(t, agent, listener, filepath.Join(rootDir, "logs"))
	return rootDir
}

// ServeOn serves the agent's API on listener until the test ends, or stop is called.
func ServeOn(t testing.TB, agent *Agent, listener net.Listener, logDir string) (stop func()) {
	t.Helper()
	server := local.NewServer(agent, agent, logs.New(logDir, filewatch.New(filewatch.Every, logr.Discard()), logr.Discard()),
		cmp.Or[http.Handler](agent.OnSession, http.NotFoundHandler()), agent.Pages, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Update changes the snapshot and wakes the watchers.
func (a *Agent) Update(change func(*local.Snapshot)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.snapshot.Pods = slices.Clone(a.snapshot.Pods)
	change(&a.snapshot)
	slices.SortFunc(a.snapshot.Pods, func(x, y local.PodView) int {
		return cmp.Or(cmp.Compare(x.Pod.Namespace, y.Pod.Namespace), cmp.Compare(x.Pod.Name, y.Pod.Name))
	})
	a.changed.Wake()
}

// SetImages sets the images.
func (a *Agent) SetImages(images []image.Image) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.images = images
}

// SetEvents sets the events and wakes the watchers.
func (a *Agent) SetEvents(events []local.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = events
	a.changed.Wake()
}

// SetDetails sets the details of pods.
func (a *Agent) SetDetails(details map[types.UID]local.Details) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.details = details
}

// SetJournal sets a pod's journals of this agent and of the one before; empty for none.
func (a *Agent) SetJournal(uid types.UID, now, previous string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.journals == nil {
		a.journals = map[types.UID][2]string{}
	}
	a.journals[uid] = [2]string{now, previous}
}

// SetConfiguration sets the configuration in effect.
func (a *Agent) SetConfiguration(c local.Configuration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.config = c
}

// SetNode sets the state of the node.
func (a *Agent) SetNode(n local.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = n
}

// SetVolumes sets the volumes that drivers may hold.
func (a *Agent) SetVolumes(volumes []local.Volume) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.volumes = volumes
}

// Volumes implements local.Agent.
func (a *Agent) Volumes() ([]local.Volume, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.volumes, nil
}

// ForgetVolume implements local.Agent.
func (a *Agent) ForgetVolume(_ context.Context, id string) (local.Forgotten, error) {
	return a.OnForget(id)
}

// Node implements local.Agent.
func (a *Agent) Node(context.Context) (local.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, nil
}

// Configuration implements local.Agent.
func (a *Agent) Configuration() local.Configuration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.config
}

// Watchers returns the number of watchers.
func (a *Agent) Watchers() int { return a.changed.Count() }

// Snapshot implements local.Agent.
func (a *Agent) Snapshot(context.Context) (local.Snapshot, error) {
	if a.OnSnapshot != nil {
		defer a.OnSnapshot()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.snapshot, nil
}

// Pod implements local.Agent.
func (a *Agent) Pod(namespace, name string) (local.PodView, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, view := range a.snapshot.Pods {
		if view.Pod.Namespace == namespace && view.Pod.Name == name {
			return view, true
		}
	}
	return local.PodView{}, false
}

// Details implements local.Agent.
func (a *Agent) Details(_ context.Context, uid types.UID) local.Details {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.details[uid]
}

// Journal implements local.Agent.
func (a *Agent) Journal(uid types.UID, previous bool) ([]byte, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := a.journals[uid][0]
	if previous {
		text = a.journals[uid][1]
	}
	return []byte(text), text != ""
}

// NodeJournal implements local.Agent. It returns the journal that was set for the empty UID.
func (a *Agent) NodeJournal() []byte {
	text, _ := a.Journal("", false)
	return text
}

// Changed implements local.Agent.
func (a *Agent) Changed() (<-chan struct{}, func()) {
	return a.changed.Subscribe()
}

// Events implements local.Agent.
func (a *Agent) Events() []local.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.events
}

// EventsSince implements local.Agent.
func (a *Agent) EventsSince(seq uint64) []local.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.events), func(e local.Event) bool { return e.Seq <= seq })
}

// EventsChanged implements local.Agent. Its channel also gets a value after other changes.
func (a *Agent) EventsChanged() (<-chan struct{}, func()) { return a.Changed() }

// Run implements local.Agent.
func (a *Agent) Run(_ context.Context, origin string, manifest []byte) (local.Run, error) {
	return a.OnRun(origin, manifest)
}

// Run is a local.Run; Closed is closed at its end.
type Run struct {
	Names  []types.NamespacedName
	Closed chan struct{}
	// Loss is the result of Lost. It must be set before the run is used.
	Loss error
}

// NewRun returns a run of one pod.
func NewRun(namespace, name string) *Run {
	return &Run{Names: []types.NamespacedName{{Namespace: namespace, Name: name}}, Closed: make(chan struct{})}
}

// Pods implements local.Run.
func (r *Run) Pods() []types.NamespacedName { return r.Names }

// Lost implements local.Run.
func (r *Run) Lost() error { return r.Loss }

// Close implements local.Run.
func (r *Run) Close() { close(r.Closed) }

// StopPods implements local.Agent.
func (a *Agent) StopPods(_ context.Context, restart bool, names ...types.NamespacedName) error {
	if restart {
		return a.OnStop("restart", names...)
	}
	return a.OnStop("stop", names...)
}

// StartPods implements local.Agent.
func (a *Agent) StartPods(names ...types.NamespacedName) error { return a.OnStop("start", names...) }

// StopAll implements local.Agent.
func (a *Agent) StopAll() { _ = a.OnStop("all") }

// AddContainer implements local.Agent.
func (a *Agent) AddContainer(name types.NamespacedName, _ types.UID, c v1.EphemeralContainer) error {
	return a.OnAdd(name, c)
}
