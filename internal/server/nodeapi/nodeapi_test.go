package nodeapi_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// insecure does not look at what a server shows.
var insecure = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"), // a client's pings run on
		goleak.IgnoreTopFunction("github.com/moby/spdystream.(*Connection).shutdown"))       // for a second where the connection is closed already
}

// node is what an API is served of.
type node struct {
	t        testing.TB
	statuses *podstatus.Store
	observed map[types.UID]*pod.Observed
	logs     string // a directory
	level    uint32
	// fresh is an agent that doesn't know its pods yet.
	fresh bool
	ran   []string
	// streams is the URL that the runtime has its streams at, asked what they were asked for.
	streams string
	asked   []string
	// cannot is why the runtime makes no checkpoint, and has no streams.
	cannot error
	mu     sync.Mutex
}

func (n *node) prepare(request fmt.Stringer) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, fmt.Sprintf("%T %s", request, request))
	return n.streams, n.cannot
}

func (n *node) Exec(_ context.Context, r *runtimeapi.ExecRequest) (string, error) {
	return n.prepare(r)
}

func (n *node) Attach(_ context.Context, r *runtimeapi.AttachRequest) (string, error) {
	return n.prepare(r)
}

func (n *node) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (string, error) {
	return n.prepare(r)
}

func (n *node) Get(uid types.UID) *pod.Observed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.observed[uid]
}

func (n *node) Running(context.Context) ([]*pod.Observed, error) { return nil, nil }

func (n *node) Info() (*server.MachineInfo, error) { return &server.MachineInfo{}, nil }

func (n *node) ExecSync(_ context.Context, container string, command []string, _ time.Duration) (cri.ExecResult, error) {
	n.ran = append(n.ran, container+" "+strings.Join(command, "|"))
	return cri.ExecResult{Stdout: []byte("out"), Stderr: []byte("err")}, nil
}

func (n *node) CheckpointContainer(_ context.Context, r *runtimeapi.CheckpointContainerRequest) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, r.String())
	return n.cannot
}

func newNode(t testing.TB) *node {
	return &node{t: t, statuses: podstatus.NewStore(), observed: map[types.UID]*pod.Observed{}, logs: t.TempDir()}
}

// publish tells of a pod default/NAME, and of its containers.
func (n *node) publish(name string, containers ...v1.ContainerStatus) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	n.statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: containers}})
	o := &pod.Observed{UID: p.UID, Sandboxes: []pod.Sandbox{{ID: "sandbox", State: pod.SandboxReady}}}
	for _, c := range containers {
		if c.State.Running != nil {
			o.Containers = append(o.Containers, pod.Container{ID: c.ContainerID, Name: c.Name, State: pod.ContainerRunning})
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observed[p.UID] = o
}

// write adds a line to the log of an instance of a pod's container.
func (n *node) write(name, container string, attempt int, line string) {
	n.t.Helper()
	dir := filepath.Join(n.logs, layout.PodDirectory("default", name, types.UID("uid-"+name)), container)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(attempt, ".log")), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "2026-01-02T03:04:05.000000000Z stdout F %s\n", line); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) config() nodeapi.Config {
	page := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	}
	return nodeapi.Config{
		Sources: server.Sources{Pods: n.statuses, Running: n, Machine: n, Health: page("health"), Metrics: page("metrics"),
			Stats: map[string]http.Handler{"/stats/summary": page("summary"), "/metrics/resource": page("resource")},
			Pages: map[string]http.Handler{"/configz": page("configz"), "/flagz": page("flagz"), "/statusz": page("statusz")}},
		Statuses: n.statuses, Observed: n, Synced: func() bool { return !n.fresh }, Logs: logs.New(n.logs, filewatch.New(filewatch.Every, logr.Discard()), logr.Discard()), Runtime: n,
		SetVerbosity: func(level uint32) error { n.level = level; return nil },
		HostLogs:     n.logs, Checkpoints: "/root-dir/checkpoints", Debugging: true, SystemLogs: true, Profiling: true, DebugFlags: true, Log: logr.Discard(),
	}
}

type quiet struct{}

func (quiet) StartRequest(string, string, bool) func() { return func() {} }

// serve serves a table until the end of the test, or until stop is called, and returns where.
func serve(t testing.TB, table []secure.Route, access secure.AccessConfig) (address string, stop func()) {
	t.Helper()
	l, err := secure.Listener(secure.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0"), MinVersion: "VersionTLS12", Routes: table, Meter: quiet{},
		Certificate: secure.NewCertificate(secure.CertConfig{Dir: t.TempDir(), Name: "node1"}), Access: secure.NewAccess(access)})
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(logr.Discard(), l)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	<-s.Ready()
	return s.Addr("https").String(), stop
}

func open() secure.AccessConfig { return secure.AccessConfig{Anonymous: true, AlwaysAllow: true} }

func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := insecure.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestNobodyGetsBy: each route of the table asks who somebody is and what they may do.
func TestNobodyGetsBy(t *testing.T) {
	table := nodeapi.Routes(newNode(t).config())
	closed, _ := serve(t, table, secure.AccessConfig{AlwaysAllow: true})
	refusing, _ := serve(t, table, secure.AccessConfig{Anonymous: true})
	if len(table) < 20 {
		t.Fatalf("%d routes", len(table))
	}
	for _, r := range table {
		path := strings.NewReplacer("{$}", "", "...", "", "{", "", "}", "").Replace(r.Path)
		for _, m := range r.Methods {
			if code, _ := ask(t, m, "https://"+closed+path, ""); code != 401 {
				t.Errorf("%s %s by nobody: %d", m, path, code)
			}
			code, text := ask(t, m, "https://"+refusing+path, "")
			if want := fmt.Sprintf("subresource(s)=%v)", r.Subresources); code != 403 || !strings.Contains(text, want) {
				t.Errorf("%s %s without a right: %d %s, want %s", m, path, code, text, want)
			}
		}
	}
}

// TestLongProfiles: a profile of what changes within some seconds takes as long as it takes.
func TestLongProfiles(t *testing.T) {
	for _, r := range nodeapi.Routes(newNode(t).config()) {
		if r.Path != "/debug/pprof/{profile}" {
			continue
		}
		for query, want := range map[string]bool{"": false, "?debug=1": false, "?seconds=60": true, "?debug=1&seconds=10": true} {
			if got := r.Stream(httptest.NewRequest("GET", "/debug/pprof/heap"+query, nil)); got != want {
				t.Errorf("%s: a stream %v, want %v", query, got, want)
			}
		}
		return
	}
	t.Error("there are no profiles")
}

// TestSwitches: what is switched off says so, and nothing else is.
func TestSwitches(t *testing.T) {
	for name, c := range map[string]struct {
		off        func(*nodeapi.Config)
		says, want string
	}{
		"nothing": {func(*nodeapi.Config) {}, "", ""},
		"logs": {func(c *nodeapi.Config) { c.SystemLogs = false },
			"The host's logs are disabled: set enableSystemLogHandler", "/logs/{path...}"},
		"profiling": {func(c *nodeapi.Config) { c.Profiling = false },
			"Profiling is disabled: set enableProfilingHandler", "/debug/pprof/{$} /debug/pprof/{profile} /debug/pprof/cmdline /debug/pprof/symbol /debug/pprof/profile /debug/pprof/trace"},
		"flags": {func(c *nodeapi.Config) { c.DebugFlags = false },
			"Changing flags is disabled: set enableDebugFlagsHandler", "/debug/flags/v"},
		"everything": {func(c *nodeapi.Config) { c.Debugging = false },
			"Debug endpoints are disabled: set enableDebuggingHandlers", "/runningpods /runningpods/{$} /containerLogs/{namespace}/{pod}/{container} /run/{namespace}/{pod}/{container} /run/{namespace}/{pod}/{uid}/{container} /exec/{namespace}/{pod}/{container} /exec/{namespace}/{pod}/{uid}/{container} /attach/{namespace}/{pod}/{container} /attach/{namespace}/{pod}/{uid}/{container} /portForward/{namespace}/{pod} /portForward/{namespace}/{pod}/{uid} /logs/{path...} /debug/pprof/{$} /debug/pprof/{profile} /debug/pprof/cmdline /debug/pprof/symbol /debug/pprof/profile /debug/pprof/trace /debug/flags/v"},
	} {
		conf := newNode(t).config()
		c.off(&conf)
		var off []string
		for _, r := range nodeapi.Routes(conf) {
			if r.Off != "" {
				off = append(off, r.Path)
			}
			if r.Off != "" && r.Off != c.says {
				t.Errorf("%s: %s says %q, want %q", name, r.Path, r.Off, c.says)
			}
		}
		if got := strings.Join(off, " "); got != c.want {
			t.Errorf("%s: %s is off, want %s", name, got, c.want)
		}
	}
}

func TestPages(t *testing.T) {
	n := newNode(t)
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}, v1.ContainerStatus{Name: "d"})
	address, _ := serve(t, nodeapi.Routes(n.config()), open())
	for _, c := range []struct {
		method, path, body string
		code               int
		text               string
	}{
		{"GET", "/healthz", "", 200, "health"},
		{"GET", "/healthz/ping", "", 200, "health"},
		{"GET", "/metrics", "", 200, "metrics"},
		{"GET", "/configz", "", 200, "configz"},
		{"GET", "/flagz", "", 200, "flagz"},
		{"GET", "/statusz", "", 200, "statusz"},
		{"GET", "/pods", "", 200, `"name":"web"`},
		{"GET", "/pods/", "", 200, `"name":"web"`},
		{"GET", "/runningpods/", "", 200, `"items":[]`},
		{"GET", "/spec/", "", 404, ""},
		{"GET", "/debug/pprof/", "", 200, "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile"},
		{"GET", "/debug/pprof/heap?seconds=1", "", 200, ""},
		{"GET", "/debug/pprof/trace?seconds=0.01", "", 200, "go 1."},
		{"PUT", "/debug/flags/v", "5", 200, "successfully set klog.logging.verbosity to 5"},
		{"PUT", "/debug/flags/v", "five", 400, `set the verbosity: strconv.ParseUint: parsing "five": invalid syntax`},
		{"PUT", "/debug/flags/v", strings.Repeat("5", 100), 400, "read the verbosity: http: request body too large"},
		{"GET", "/debug/flags/v", "", 405, ""},
		{"POST", "/run/default/web/c?cmd=echo+hello", "", 200, "outerr"},
		{"POST", "/run/default/web/uid-web/c?cmd=ls", "", 200, "outerr"},
		{"POST", "/run/default/web/other/c?cmd=ls", "", 404, `pod "web" not found`},
		{"POST", "/run/default/web/c", "", 400, "cmd"},
		{"POST", "/run/default/web/d?cmd=ls", "", 404, `container not found ("d")`},
		{"GET", "/run/default/web/c?cmd=ls", "", 405, ""},
	} {
		if code, text := ask(t, c.method, "https://"+address+c.path, c.body); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s %s: %d %.200q, want %d %q", c.method, c.path, code, text, c.code, c.text)
		}
	}
	n.fresh = true
	if code, text := ask(t, "GET", "https://"+address+"/containerLogs/default/other/c", ""); code != 503 || !strings.Contains(text, "just been started") {
		t.Errorf("a pod that isn't known yet: %d %s", code, text)
	}
	if n.level != 5 || strings.Join(n.ran, ",") != "id1 echo|hello,id1 ls" {
		t.Errorf("level %d, ran %q", n.level, n.ran)
	}
}

func ended(id string, code int32) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ContainerID: id, ExitCode: code}
}

func TestContainerLogs(t *testing.T) {
	n := newNode(t)
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	n.publish("web",
		v1.ContainerStatus{Name: "c", ContainerID: "id1", State: running},
		v1.ContainerStatus{Name: "again", ContainerID: "id3", RestartCount: 1, State: running, LastTerminationState: v1.ContainerState{Terminated: ended("id2", 1)}},
		v1.ContainerStatus{Name: "over", ContainerID: "id4", State: v1.ContainerState{Terminated: ended("id4", 0)}},
		v1.ContainerStatus{Name: "soon", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
		v1.ContainerStatus{Name: "gone", ContainerID: "id5", State: running})
	for _, line := range []string{"one", "two", "three"} {
		n.write("web", "c", 0, line)
	}
	n.write("web", "again", 0, "first")
	n.write("web", "again", 1, "second")
	n.write("web", "over", 0, "done")
	address, _ := serve(t, nodeapi.Routes(n.config()), open())
	for _, c := range []struct {
		path string
		code int
		text string
	}{
		{"web/c", 200, "one\ntwo\nthree\n"},
		{"web/c?tailLines=1", 200, "three\n"},
		{"web/c?tailLines=0", 200, ""},
		{"web/c?limitBytes=5", 200, "one\nt"},
		{"web/c?sinceTime=2026-01-02T03:04:06Z", 200, ""},
		{"web/c?sinceSeconds=1", 200, ""},
		{"web/c?sinceSeconds=9223372036854775807", 200, "one\ntwo\nthree\n"},
		{"web/c?timestamps=true&tailLines=1", 200, "2026-01-02T03:04:05.000000000Z three\n"},
		{"web/c?stream=Stderr", 200, ""},
		{"web/c?stream=All&tailLines=1", 200, "three\n"},
		{"web/c?follow=false", 200, "one\ntwo\nthree\n"},
		{"web/c?insecureSkipTLSVerifyBackend=true", 200, "one\ntwo\nthree\n"},
		{"web/over?follow=true", 200, "done\n"},
		{"web/again", 200, "second\n"},
		{"web/again?previous=true", 200, "first\n"},
		{"web/c?previous=true", 400, `previous terminated container "c" in pod "web" not found`},
		{"web/soon", 400, `container "soon" in pod "web" is waiting to start: ContainerCreating`},
		{"web/gone", 404, `the log of container "gone" in pod "web" is gone`},
		{"web/none", 404, `container "none" not found in pod "web"`},
		{"other/c", 404, `pod "other" not found`},
		{"web/c?tailLines=many", 400, "tailLines"},
		{"web/c?sinceSeconds=1.5", 400, "sinceSeconds"},
		{"web/c?limitBytes=99999999999999999999", 400, "limitBytes"},
		{"web/c?sinceTime=yesterday", 400, "sinceTime"},
		{"web/c?tailLines=-1", 422, "tailLines"},
		{"web/c?limitBytes=0", 422, "limitBytes"},
		{"web/c?sinceSeconds=0", 422, "sinceSeconds"},
		{"web/c?sinceSeconds=1&sinceTime=2026-01-02T03:04:06Z", 422, "at most one"},
		{"web/c?stream=Both", 422, "stream"},
		{"web/c?stream=Stdout&tailLines=1", 422, "stream"},
		{"..%2f..%2fetc/passwd", 404, "not found"},
		{"web/..%2fagain", 404, "not found"},
	} {
		code, text := ask(t, "GET", "https://"+address+"/containerLogs/default/"+c.path, "")
		if same := text == c.text; code != c.code || code == 200 && !same || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %q, want %d %q", c.path, code, text, c.code, c.text)
		}
	}
}

// TestFollow: a log is followed until its instance has ended, without a limit of time, and no longer than the server.
func TestFollow(t *testing.T) {
	n := newNode(t)
	at := func(restarts int32, state v1.ContainerState) {
		n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: fmt.Sprint("id", restarts), RestartCount: restarts, State: state})
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	at(0, running)
	n.write("web", "c", 0, "one")
	address, stop := serve(t, nodeapi.Routes(n.config()), open())
	follow := func() *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+address+"/containerLogs/default/web/c?follow=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := insecure.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	first := follow()
	defer first.Body.Close()
	expect := func(r io.Reader, text string) {
		t.Helper()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	expect(first.Body, "one\n")
	n.write("web", "c", 0, "two")
	expect(first.Body, "two\n")
	n.write("web", "c", 1, "of the next instance")
	at(1, running)
	if rest, err := io.ReadAll(first.Body); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	second := follow()
	defer second.Body.Close()
	expect(second.Body, "of the next instance\n")
	began := time.Now()
	stop()
	if _, err := io.ReadAll(second.Body); err == nil {
		t.Error("a log that was cut looks complete")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a stream held up the end for %s", took)
	}
}

// TestSlowReaders: those who follow a long log and read none of it keep nobody waiting, cost the same however long it is, and don't hold up the end.
func TestSlowReaders(t *testing.T) {
	const many = 150 // more than there are connections for what isn't a stream
	n := newNode(t)
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	for range 16 {
		n.write("web", "c", 0, strings.Repeat("x", 1<<20))
	}
	address, stop := serve(t, nodeapi.Routes(n.config()), open())
	heap := func() uint64 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return m.HeapInuse
	}
	before := heap()
	for range many {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprint(c, "GET /containerLogs/default/web/c?follow=true HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil { // it is served
			t.Fatal(err)
		}
	}
	if code, text := ask(t, "GET", "https://"+address+"/containerLogs/default/web/c?limitBytes=3", ""); code != 200 || text != "xxx" {
		t.Errorf("beside them: %d %s", code, text)
	}
	if each := (int64(heap()) - int64(before)) / many; each > 400<<10 {
		t.Errorf("a reader that is slow costs %d KiB", each>>10)
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("they held up the end for %s", took)
	}
}

// TestHostLogs: files are served as they are, and no link leads out, whoever made it.
func TestHostLogs(t *testing.T) {
	n := newNode(t)
	address, _ := serve(t, nodeapi.Routes(n.config()), open())
	hidden := filepath.Join(t.TempDir(), "hidden")
	file := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("text of "+filepath.Base(path)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(n.logs, "sub"), 0o755), os.Symlink(hidden, filepath.Join(n.logs, "out")), os.Symlink("..", filepath.Join(n.logs, "up")),
		os.Symlink("sub/deep", filepath.Join(n.logs, "inside")), unix.Mkfifo(filepath.Join(n.logs, "pipe"), 0o644)); err != nil {
		t.Fatal(err)
	}
	file(hidden)
	file(filepath.Join(n.logs, "messages"))
	file(filepath.Join(n.logs, "sub", "deep"))
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"":                      {200, `<a href="sub/">sub/</a>`},
		"messages":              {200, "text of messages"},
		"sub/deep":              {200, "text of deep"},
		"inside":                {200, "text of deep"},
		"none":                  {404, ""},
		"out":                   {403, ""},
		"up/":                   {403, ""},
		"up/hidden":             {403, ""},
		"pipe":                  {403, ""},
		"..%2fhidden":           {404, ""},
		"sub/%2e%2e/messages":   {200, "text of messages"},
		"?query=kubelet&boot=0": {405, "set enableSystemLogQuery"},
	} {
		if code, text := ask(t, "GET", "https://"+address+"/logs/"+path, ""); code != want.code || !strings.Contains(text, want.text) || strings.Contains(text, "text of hidden") {
			t.Errorf("%s: %d %q, want %d %q", path, code, text, want.code, want.text)
		}
	}
}

// FuzzRequest: whatever is asked for is answered, with nothing but what is the pod's; and those who have no right get nothing.
func FuzzRequest(f *testing.F) {
	for _, q := range []string{"follow=true&tailLines=3", "sinceSeconds=1&limitBytes=9", "sinceTime=2026-01-02T03:04:05Z", "stream=Stdout&timestamps=1&previous=", "%zz&;&=", "tailLines=-9223372036854775808"} {
		f.Add("GET", "/containerLogs/default/web/c", q)
	}
	for _, path := range []string{"/containerLogs/default/..%2f..%2fsecret/c", "/containerLogs/../secret", "//pods", "/exec/default/web/c", "/portForward/default/web", "/run/default/web/uid-web/c", "/healthz/%00", "/debug/pprof/../flags/v"} {
		f.Add("POST", path, "command=a&input=1&port=70000&cmd=x")
	}
	for _, q := range []string{"query=a&query=b&pattern=a.*b&tailLines=5", "query=/../secret", "query=/secret&tailLines=1", "query=kubelet&boot=-1&sinceTime=2026-01-02T03:04:05Z"} {
		f.Add("GET", "/logs/", q)
	}
	sample := strings.NewReplacer("{namespace}", "default", "{pod}", "web", "{uid}", "uid-web", "{container}", "c", "{profile}", "heap", "{path...}", "", "{$}", "")
	for _, route := range nodeapi.Routes(newNode(f).config()) {
		for _, method := range route.Methods {
			f.Add(method, sample.Replace(route.Path), "command=a&output=1")
		}
	}
	f.Fuzz(func(t *testing.T, method, path, query string) {
		n := newNode(t)
		n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id", State: v1.ContainerState{Terminated: ended("id", 0)}})
		n.write("web", "c", 0, "line")
		for _, dir := range []string{n.logs, filepath.Dir(n.logs)} {
			if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("2026-01-02T03:04:05Z stdout F what is hidden\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		conf := n.config()
		conf.Profiling, conf.HostLogs = false, t.TempDir() // profiles take their time
		conf.SystemLogQuery, conf.Journalctl = true, "/none"
		target, err := url.ParseRequestURI("/" + strings.TrimPrefix(path, "/"))
		if err != nil {
			return // no request has that
		}
		target.RawQuery = query
		ask := func(access secure.AccessConfig) *httptest.ResponseRecorder {
			l, err := secure.Listener(secure.Config{MinVersion: "VersionTLS12", Routes: nodeapi.Routes(conf), Meter: quiet{}, Access: secure.NewAccess(access)})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			l.Handler.ServeHTTP(w, (&http.Request{Method: method, URL: target, Host: "a", Header: http.Header{}, Body: http.NoBody, RequestURI: target.RequestURI()}).WithContext(t.Context()))
			return w
		}
		w := ask(open())
		if text := w.Body.String(); strings.Contains(text, "what is hidden") {
			t.Errorf("%s %s?%s: %d %q", method, path, query, w.Code, text)
		}
		if w := ask(secure.AccessConfig{Anonymous: true}); w.Code != http.StatusForbidden {
			t.Errorf("%s %s?%s without a right: %d %q", method, path, query, w.Code, w.Body)
		}
	})
}
