package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// session is a command that runs while a test goes on.
type session struct {
	t        *testing.T
	out, err *bufio.Reader
	code     chan int
	stop     context.CancelFunc
}

func begin(t *testing.T, deps Deps, stdin string, args ...string) *session {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	outReader, out := io.Pipe()
	errReader, errOut := io.Pipe()
	s := &session{t: t, out: bufio.NewReader(outReader), err: bufio.NewReader(errReader), code: make(chan int, 1), stop: stop}
	deps.Getenv = func(string) string { return "" }
	deps.Now = func() time.Time { return now }
	go func() {
		code := Main(ctx, args, "deckhand", strings.NewReader(stdin), out, errOut, deps)
		out.Close()
		errOut.Close()
		s.code <- code
	}()
	t.Cleanup(func() { stop(); outReader.Close(); errReader.Close() })
	return s
}

// expect reads lines and compares them.
func (s *session) expect(r *bufio.Reader, want ...string) {
	s.t.Helper()
	for _, line := range want {
		got, err := r.ReadString('\n')
		if err != nil || strings.TrimSuffix(got, "\n") != line {
			s.t.Fatalf("got %q, %v, want %q", got, err, line)
		}
	}
}

// expectPrefix reads a line and compares its begin.
func (s *session) expectPrefix(r *bufio.Reader, want string) {
	s.t.Helper()
	if got, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(got, want) {
		s.t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func (s *session) ended(code int) {
	s.t.Helper()
	var reading sync.WaitGroup // both at once: who writes to one waits for its reader
	for _, r := range []*bufio.Reader{s.out, s.err} {
		reading.Go(func() {
			if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
				s.t.Errorf("more output: %q, %v", rest, err)
			}
		})
	}
	reading.Wait()
	if got := <-s.code; got != code {
		s.t.Errorf("exit code %d, want %d", got, code)
	}
}

func jobView(phase v1.PodPhase, state v1.ContainerState) local.PodView {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job-n1", UID: "u1", CreationTimestamp: metav1.NewTime(now)}}
	p.Spec.Containers = []v1.Container{{Name: "job"}}
	p.Status.Phase = phase
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "job", State: state, Ready: state.Running != nil, ContainerID: "x://0"}}
	if state.Running != nil {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	}
	return local.PodView{Pod: p}
}

var (
	creating = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	running  = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
)

func exited(code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error"}}
}

func pods(views ...local.PodView) func(*local.Snapshot) {
	return func(s *local.Snapshot) { s.Node, s.Agent.Synced, s.Pods = "n1", true, views }
}

func writeLog(t *testing.T, root, container, text string) {
	t.Helper()
	dir := filepath.Join(root, "logs", "default_job-n1_u1", container)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "0.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("2026-01-02T03:04:05Z stdout F " + text + "\n"); err != nil {
		t.Fatal(err)
	}
}

func TestPodsWatch(t *testing.T) {
	agent := localtest.New()
	root := localtest.Serve(t, agent)
	s := begin(t, Deps{RootDir: root}, "", "pods", "-w")
	agent.Update(pods(jobView(v1.PodPending, creating)))
	s.expect(s.out,
		"NAMESPACE   NAME     READY   STATUS              RESTARTS   AGE   IP       REASON",
		"default     job-n1   0/1     ContainerCreating   0          0s    <none>")
	other := jobView(v1.PodRunning, running)
	other.Pod.Name, other.Pod.UID = "other", "u2"
	agent.Update(pods(jobView(v1.PodRunning, running)))
	s.expect(s.out, "default     job-n1   1/1     Running             0          0s    <none>")
	agent.Update(pods(jobView(v1.PodRunning, running), other)) // the job's row isn't repeated
	s.expect(s.out, "default     other    1/1     Running             0          0s    <none>")
	agent.Update(pods(other))
	s.expect(s.out, "default     job-n1   1/1     Removed             0          0s    <none>")
	s.stop()
	s.ended(0)
}

func TestPodsWatchForMachines(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodPending, creating)))
	root := localtest.Serve(t, agent)
	names := begin(t, Deps{RootDir: root}, "", "pods", "-w", "-o", "name", "job")
	names.expect(names.out, "pod/job-n1")
	documents := begin(t, Deps{RootDir: root}, "", "pods", "-w", "-o", "yaml")
	documents.expect(documents.out, "---", "apiVersion: v1", "kind: Pod")
	for _, s := range []*session{names, documents} {
		s.stop()
		if _, err := io.Copy(io.Discard, s.out); err != nil {
			t.Fatal(err)
		}
		s.ended(0)
	}
}

// serveRun has the agent run a pod named job-n1.
func serveRun(t *testing.T) (*localtest.Agent, *localtest.Run, string) {
	agent := localtest.New()
	run := localtest.NewRun("default", "job-n1")
	agent.OnRun = func(string, []byte) (local.Run, error) {
		agent.Update(pods(jobView(v1.PodPending, creating)))
		return run, nil
	}
	return agent, run, localtest.Serve(t, agent)
}

func TestRunUntilTheContainerEnds(t *testing.T) {
	for _, code := range []int32{0, 7} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			agent, run, root := serveRun(t)
			s := begin(t, Deps{RootDir: root}, "kind: Pod", "run", "-")
			s.expect(s.err, "default/job-n1: ContainerCreating, 0/1 ready")
			writeLog(t, root, "job", "working")
			agent.Update(pods(jobView(v1.PodRunning, running)))
			s.expect(s.err, "default/job-n1: Running, 1/1 ready")
			s.expect(s.out, "working")
			writeLog(t, root, "job", "done")
			phase := v1.PodSucceeded
			if code != 0 {
				phase = v1.PodFailed
			}
			agent.Update(pods(jobView(phase, exited(code))))
			s.expect(s.err, "default/job-n1: Error")
			s.expect(s.out, "done")
			<-run.Closed
			agent.Update(pods())
			s.ended(int(code))
		})
	}
}

// A manifest that turns out to have had the name ends the run.
func TestRunLosesItsName(t *testing.T) {
	_, run, root := serveRun(t)
	run.Loss = errors.New("pod default/job-n1 is already run from /m/job.yaml")
	s := begin(t, Deps{RootDir: root}, "kind: Pod", "run", "-")
	s.expect(s.err, "error: pod default/job-n1 is already run from /m/job.yaml")
	<-run.Closed
	s.ended(1)
}

func TestRunStoppedByItsUser(t *testing.T) {
	agent, run, root := serveRun(t)
	manifest := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(manifest, []byte("kind: Pod"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, Deps{RootDir: root}, "", "run", manifest)
	s.expect(s.err, "default/job-n1: ContainerCreating, 0/1 ready")
	two := jobView(v1.PodRunning, running)
	two.Pod.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	two.Pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "setup", State: exited(0)}}
	writeLog(t, root, "job", "working")
	agent.Update(pods(two))
	s.expect(s.err, "default/job-n1: Running, 1/1 ready")
	s.expect(s.out, "working")
	s.stop()
	s.expect(s.err, "Stopping...")
	<-run.Closed
	stopping := jobView(v1.PodRunning, running)
	stopping.Pod.DeletionTimestamp = &metav1.Time{Time: now}
	agent.Update(pods(stopping))
	s.expect(s.err, "default/job-n1: Terminating, 1/1 ready")
	writeLog(t, root, "job", "last words")
	s.expect(s.out, "last words")
	agent.Update(pods())
	s.expect(s.err, "Stopped.")
	s.ended(0)
}

func TestRunPrefixesLinesOfSeveralContainers(t *testing.T) {
	agent, run, root := serveRun(t)
	two := jobView(v1.PodRunning, running)
	two.Pod.Spec.Containers = append(two.Pod.Spec.Containers, v1.Container{Name: "side"})
	agent.OnRun = func(string, []byte) (local.Run, error) {
		agent.Update(pods(two))
		return run, nil
	}
	s := begin(t, Deps{RootDir: root}, "kind: Pod", "run", "-")
	s.expect(s.err, "default/job-n1: Running, 1/2 ready")
	writeLog(t, root, "job", "working")
	agent.Update(func(*local.Snapshot) {})
	s.expect(s.out, "job | working")
	s.stop()
	s.expect(s.err, "Stopping...")
	agent.Update(pods())
	s.expect(s.err, "Stopped.")
	s.ended(0)
}

func upDeps(t *testing.T, agent *localtest.Agent) Deps {
	return Deps{RootDir: t.TempDir(), Steady: time.Millisecond, Up: func(ctx context.Context, r UpRequest) error {
		listener, err := socket.Listen(local.SocketPath(r.RootDir))
		if err != nil {
			return err
		}
		stop := localtest.ServeOn(t, agent, listener, "")
		defer stop()
		if r.Terminal || !filepath.IsAbs(r.Manifests) {
			return fmt.Errorf("unexpected request %+v", r)
		}
		r.Started()
		<-ctx.Done()
		return nil
	}}
}

func TestUpShowsProgressUntilReady(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodPending, creating)))
	s := begin(t, upDeps(t, agent), "", "up", "testdata")
	s.expect(s.out, "default/job-n1: ContainerCreating, 0/1 ready")
	ready := jobView(v1.PodRunning, running)
	ready.Pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	agent.Update(pods(ready))
	s.expect(s.out, "default/job-n1: Running, 1/1 ready", "", "The pod is ready.", "",
		"    curl http://127.0.0.1:8080/", "", "Ctrl-C stops the agent and leaves the pods running.")
	s.stop()
	s.expect(s.out, "The agent has stopped, the pods run on. `deckhand down` stops them.")
	s.ended(0)
}

// While something is wrong `up` doesn't say that all is ready, and repeats what it is when its user ends it.
func TestUpSaysWhatIsWrong(t *testing.T) {
	agent := localtest.New()
	ready := jobView(v1.PodRunning, running)
	agent.Update(func(s *local.Snapshot) {
		pods(ready)(s)
		s.Problems = []pod.Problem{{Origin: "/m/typo.yaml", Message: "line 3: imagee: unknown field"}}
	})
	deps := upDeps(t, agent)
	deps.Self, deps.Steady = "/opt/deckhand", time.Hour
	root := t.TempDir()
	s := begin(t, deps, "", "up", "testdata", "--root-dir", root)
	s.expect(s.out, "The agent's log is "+root+"/deckhand.log. From another terminal, `/opt/deckhand pods --root-dir "+root+"` shows the pods, and `/opt/deckhand why --root-dir "+root+"` why one isn't ready.", "",
		"default/job-n1: Running, 1/1 ready", "problem in /m/typo.yaml: line 3: imagee: unknown field")
	s.stop()
	s.expect(s.out, "", "1 of 1 pods ready. Problems (`deckhand why` says more):", "  /m/typo.yaml: line 3: imagee: unknown field",
		"The agent has stopped, the pods run on. `/opt/deckhand down --root-dir "+root+"` stops them.")
	s.ended(0)
}

func TestUpStoppedBeforeReady(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodPending, creating)))
	s := begin(t, upDeps(t, agent), "", "up", "testdata")
	s.expect(s.out, "default/job-n1: ContainerCreating, 0/1 ready")
	s.stop()
	s.expect(s.out, "The agent has stopped, the pods run on. `deckhand down` stops them.")
	s.ended(0)
}

func TestLogsFollowStoppedByItsUser(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodRunning, running)))
	root := localtest.Serve(t, agent)
	writeLog(t, root, "job", "working")
	s := begin(t, Deps{RootDir: root}, "", "logs", "-f", "job")
	s.expect(s.out, "working")
	s.stop()
	s.ended(0)
}

// Following goes on with the next instance, and says so where it isn't taken for the log.
func TestLogsFollowAcrossRestarts(t *testing.T) {
	again := func(restarts int32, id string, state v1.ContainerState, phase v1.PodPhase) local.PodView {
		view := jobView(phase, state)
		status := &view.Pod.Status.ContainerStatuses[0]
		status.RestartCount, status.ContainerID = restarts, id
		if state.Waiting != nil {
			status.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ContainerID: id}
		}
		return view
	}
	backoff := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	agent := localtest.New()
	agent.Update(pods(again(0, "x://0", running, v1.PodRunning)))
	root := localtest.Serve(t, agent)
	writeLog(t, root, "job", "working")
	s := begin(t, Deps{RootDir: root}, "", "logs", "-f", "job")
	s.expect(s.out, "working")
	agent.Update(pods(again(0, "x://0", backoff, v1.PodRunning)))
	// Instance 1 comes and goes, and with it its log.
	log := filepath.Join(root, "logs", "default_job-n1_u1", "job", "2.log")
	if err := os.WriteFile(log, []byte("2026-01-02T03:04:05Z stdout F working again\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent.Update(pods(again(2, "x://2", running, v1.PodRunning)))
	s.expect(s.err, "--- container job was restarted (restart count 2) ---")
	s.expect(s.out, "working again")
	agent.Update(pods(again(2, "x://2", v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}, v1.PodSucceeded)))
	s.ended(0)
}

// An agent that has gone ends what watches it, with an error.
func TestWatchersEndWithTheAgent(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodRunning, running)))
	root := t.TempDir()
	listener, err := net.Listen("unix", local.SocketPath(root))
	if err != nil {
		t.Fatal(err)
	}
	stop := localtest.ServeOn(t, agent, listener, filepath.Join(root, "logs"))
	s := begin(t, Deps{RootDir: root}, "", "pods", "-w", "-o", "name")
	s.expect(s.out, "pod/job-n1")
	stop()
	s.expect(s.err, "error: the agent stopped")
	s.ended(1)
}
