package pluginwatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/gate"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plugin serves the registration at a socket.
type plugin struct {
	api.UnsafeRegistrationServer
	info  *api.PluginInfo
	hangs bool
	deaf  bool // hangs when it is told
	asked atomic.Int32

	mu   sync.Mutex
	told []string // what it was told, "ok" or the error
	at   []time.Time

	server *grpc.Server
	served sync.WaitGroup
}

func (p *plugin) GetInfo(ctx context.Context, _ *api.InfoRequest) (*api.PluginInfo, error) {
	p.mu.Lock()
	p.at = append(p.at, time.Now())
	p.mu.Unlock()
	if p.asked.Add(1); p.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(ctx context.Context, s *api.RegistrationStatus) (*api.RegistrationStatusResponse, error) {
	if p.deaf {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.PluginRegistered {
		p.told = append(p.told, "ok")
	} else {
		p.told = append(p.told, s.Error)
	}
	return &api.RegistrationStatusResponse{}, nil
}

func (p *plugin) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

func serve(t *testing.T, path string, p *plugin) *plugin {
	t.Helper()
	address, release, err := socket.Address(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	p.server = grpc.NewServer()
	api.RegisterRegistrationServer(p.server, p)
	p.served.Go(func() { _ = p.server.Serve(l) })
	t.Cleanup(func() { p.server.Stop(); p.served.Wait() })
	return p
}

// user is a handler that notes what it is called with. Gone waits for held, and Register of the plugin "slow" for passed, if they are set.
type user struct {
	held    chan struct{}
	passed  chan struct{}
	mu      sync.Mutex
	refuses error
	calls   []string
}

func (u *user) note(call string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = append(u.calls, call)
}

func (u *user) Patience() time.Duration { return time.Minute }

func (u *user) Register(ctx context.Context, r Registration) error {
	u.note(fmt.Sprint("register ", r.Name, " ", filepath.Base(r.Endpoint), " ", strings.Join(r.Versions, ",")))
	if r.Name == "slow" && u.passed != nil {
		select {
		case <-u.passed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.refuses
}

func (u *user) Gone(r Registration) {
	if u.held != nil {
		<-u.held
	}
	u.note("gone " + r.Name)
}

func (u *user) said() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return strings.Join(u.calls, "; ")
}

func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// watch runs a watcher of a new directory, where dealing with a plugin may take as long as this.
func watch(t *testing.T, u *user, call time.Duration) (dir string) {
	t.Helper()
	dir, _ = watchUntil(t, u, call)
	return dir
}

// watchUntil is watch until stop is called.
func watchUntil(t *testing.T, u *user, call time.Duration) (dir string, stop func()) {
	t.Helper()
	dir = t.TempDir()
	w := New(Config{Dir: dir, Handlers: map[string]Handler{api.DevicePlugin: u}, Files: filewatch.New(filewatch.Every, logr.Discard()), Log: logr.Discard()})
	w.limits = limits{call: call, firstCall: call, first: 5 * time.Millisecond, most: 20 * time.Millisecond}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return dir, stop
}

func info(name string) *api.PluginInfo {
	return &api.PluginInfo{Type: api.DevicePlugin, Name: name, SupportedVersions: []string{"v1beta1"}}
}

// TestSocketsComeAndGo: a plugin is registered when its socket appears, also in a directory of its own, and is gone when that vanishes or
// another one takes its place.
func TestSocketsComeAndGo(t *testing.T) {
	u := &user{}
	dir := watch(t, u, time.Minute)
	says := func(want string) {
		t.Helper()
		await(t, want, func() bool { return u.said() == want })
	}
	path := filepath.Join(dir, "a-reg.sock")
	first := serve(t, path, &plugin{info: info("a")})
	says("register a a-reg.sock v1beta1")
	await(t, "the plugin to be told", func() bool { return slices.Equal(first.said(), []string{"ok"}) })

	if err := errors.Join(os.Symlink(path, filepath.Join(dir, "link.sock")), os.Symlink("/", filepath.Join(dir, "root"))); err != nil { // which are nobody's
		t.Fatal(err)
	}
	// Replaced in one step, by a name that doesn't count.
	next := info("a")
	next.Endpoint = "/elsewhere/a.sock"
	second := serve(t, filepath.Join(dir, ".new"), &plugin{info: next})
	if err := os.Rename(filepath.Join(dir, ".new"), path); err != nil {
		t.Fatal(err)
	}
	says("register a a-reg.sock v1beta1; gone a; register a a.sock v1beta1")
	await(t, "the second to be told", func() bool { return slices.Equal(second.said(), []string{"ok"}) })

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	serve(t, path, &plugin{info: info("a")})
	says("register a a-reg.sock v1beta1; gone a; register a a.sock v1beta1; gone a; register a a-reg.sock v1beta1")

	forget := func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.calls = nil
	}
	forget()
	serve(t, filepath.Join(dir, "c.sock"), &plugin{info: info("c")})
	says("register c c.sock v1beta1")
	if err := os.Remove(filepath.Join(dir, "c.sock")); err != nil { // and nothing else happens
		t.Fatal(err)
	}
	says("register c c.sock v1beta1; gone c")

	forget()
	if err := os.Mkdir(filepath.Join(dir, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	serve(t, filepath.Join(dir, "deep", "b.sock"), &plugin{info: info("b")})
	says("register b b.sock v1beta1")
	if err := os.RemoveAll(filepath.Join(dir, "deep")); err != nil {
		t.Fatal(err)
	}
	says("register b b.sock v1beta1; gone b")
}

// TestOneAfterTheOther: of two plugins that have a socket's name after each other the second isn't asked before the first is gone; one whose socket was away is another
// one. When the agent ends, none is gone.
func TestOneAfterTheOther(t *testing.T) {
	u := &user{held: make(chan struct{})}
	dir, stop := watchUntil(t, u, time.Minute)
	path := filepath.Join(dir, "a.sock")
	p := serve(t, path, &plugin{info: info("a")})
	await(t, "the first", func() bool { return u.said() == "register a a.sock v1beta1" && len(p.said()) == 1 })
	away := filepath.Join(t.TempDir(), "away")
	if err := errors.Join(os.Rename(path, away), os.Rename(away, path)); err != nil {
		t.Fatal(err)
	}
	serve(t, filepath.Join(dir, "b.sock"), &plugin{info: info("b")})
	const both = "register a a.sock v1beta1; register b b.sock v1beta1"
	await(t, "another one", func() bool { return u.said() == both })
	close(u.held)
	const all = both + "; gone a; register a a.sock v1beta1"
	await(t, "it is another one", func() bool { return u.said() == all && len(p.said()) == 2 })
	stop()
	if said := u.said(); said != all {
		t.Errorf("after the end: %s", said)
	}
}

// TestAHungPlugin is tried again; one that can't be told that it is registered isn't.
func TestAHungPlugin(t *testing.T) {
	u := &user{}
	dir := watch(t, u, 50*time.Millisecond)
	p := serve(t, filepath.Join(dir, "hangs.sock"), &plugin{info: info("hangs"), hangs: true})
	deaf := serve(t, filepath.Join(dir, "deaf.sock"), &plugin{info: info("deaf"), deaf: true})
	await(t, "several attempts", func() bool { return p.asked.Load() > 2 && deaf.asked.Load() > 2 })
	if said := u.said(); !strings.Contains(said, "gone deaf") || strings.Contains(said, "hangs") {
		t.Error(said)
	}
}

// TestASlowHandler has the handler's own time, which is longer than that of the plugin's answers, and holds up no other plugin.
func TestASlowHandler(t *testing.T) {
	const call = 200 * time.Millisecond
	u := &user{passed: make(chan struct{})}
	dir := t.TempDir()
	w := New(Config{Dir: dir, Handlers: map[string]Handler{api.DevicePlugin: u, "HastyPlugin": hasty{u}}, Files: filewatch.New(filewatch.Every, logr.Discard()), Log: logr.Discard()})
	w.limits = limits{call: call, firstCall: call, first: 5 * time.Millisecond, most: 20 * time.Millisecond}
	w.asking = gate.New(1)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	defer running.Wait()
	defer cancel()

	slow := serve(t, filepath.Join(dir, "slow.sock"), &plugin{info: info("slow")})
	await(t, "the slow one", func() bool { return u.said() == "register slow slow.sock v1beta1" })
	began := time.Now()
	other := serve(t, filepath.Join(dir, "other.sock"), &plugin{info: info("other")})
	hurried := serve(t, filepath.Join(dir, "hurried.sock"), &plugin{info: &api.PluginInfo{Type: "HastyPlugin", Name: "slow"}})
	await(t, "the others", func() bool {
		return slices.Equal(other.said(), []string{"ok"}) && slices.Contains(hurried.said(), context.DeadlineExceeded.Error()) && time.Since(began) > 2*call
	})
	if said := slow.said(); len(said) > 0 || slow.asked.Load() != 1 {
		t.Errorf("the slow one was asked %d times and told %v before its handler ended", slow.asked.Load(), said)
	}
	close(u.passed)
	await(t, "the slow one to be told", func() bool { return slices.Equal(slow.said(), []string{"ok"}) })
	if said := u.said(); strings.Contains(said, "gone") || strings.Count(said, "slow.sock") != 1 {
		t.Error(said)
	}
}

// hasty is a user with little patience.
type hasty struct{ *user }

func (hasty) Patience() time.Duration { return 10 * time.Millisecond }

// TestBadPlugins: one that isn't served, is no plugin or is refused is tried again, told why, and as one that hangs holds up no other; one of
// a type that nobody uses is left alone.
func TestBadPlugins(t *testing.T) {
	u := &user{refuses: errors.New("not now")}
	dir := watch(t, u, time.Minute)
	serve(t, filepath.Join(dir, "hangs.sock"), &plugin{info: info("hangs"), hangs: true})
	dead := serve(t, filepath.Join(dir, "dead.sock"), &plugin{info: info("dead")})
	dead.server.Stop()
	other := serve(t, filepath.Join(dir, "other.sock"), &plugin{info: &api.PluginInfo{Type: "OtherPlugin", Name: "other"}})
	nameless := serve(t, filepath.Join(dir, "nameless.sock"), &plugin{info: info("")})
	if err := os.WriteFile(filepath.Join(dir, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, filepath.Join(dir, "refused.sock"), &plugin{info: info("refused")})
	await(t, "several refusals", func() bool { return len(p.said()) > 3 && len(nameless.said()) > 1 })
	if said := p.said(); slices.Contains(said, "ok") || said[0] != "not now" {
		t.Errorf("it was told %v", said)
	}
	p.mu.Lock()
	for i, wait := range []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
		if gap := p.at[i+1].Sub(p.at[i]); gap < wait {
			t.Errorf("it was tried again after %s, want %s", gap, wait)
		}
	}
	p.mu.Unlock()
	u.mu.Lock()
	u.refuses = nil
	u.mu.Unlock()
	await(t, "the plugin that is taken at last", func() bool { return slices.Contains(p.said(), "ok") })
	if said := u.said(); strings.Contains(said, "gone") || strings.Contains(said, "hangs") || strings.Contains(said, "other") || len(other.said()) > 0 {
		t.Errorf("%s; the other was told %v", said, other.said())
	}
}

// Thousands of sockets that nobody serves take few descriptors, and a plugin beside them is registered all the same.
func TestManySilentSockets(t *testing.T) {
	const sockets = 800
	dir := t.TempDir()
	for i := range sockets {
		l, err := socket.Listen(filepath.Join(dir, fmt.Sprintf("silent-%03d.sock", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	serve(t, filepath.Join(dir, "z-reg.sock"), &plugin{info: info("z")})
	before, most := open(), 0
	u := &user{}
	w := New(Config{Dir: dir, Handlers: map[string]Handler{api.DevicePlugin: u}, Files: filewatch.New(filewatch.Every, logr.Discard()), Log: logr.Discard()})
	w.limits.firstCall, w.limits.call = 200*time.Millisecond, time.Second // on a busy machine an answer takes its time, too
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	for end := time.Now().Add(time.Second); time.Now().Before(end) || u.said() == ""; time.Sleep(time.Millisecond) {
		if most = max(most, open()); time.Since(end) > 30*time.Second {
			t.Fatal("the plugin that answers isn't registered")
		}
	}
	if more := most - before; more > 300 {
		t.Errorf("%d silent sockets take %d descriptors", sockets, more)
	}
}
