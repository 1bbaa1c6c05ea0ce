package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts in testdata")

func TestMain(m *testing.M) {
	// The streaming server of localtest waits for a second for somebody to hear that its connection was closed before.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown"))
}

// now is the time in all scripts.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestScripts runs commands against an agent that reports what files in the script
// say, over a real socket. The scripts' own commands are:
//
//	agent SNAPSHOT [IMAGES EVENTS DETAILS CONFIGURATION NODE SUMMARY]   serve what these YAML files (- for none) say, logs/ and journals/UID[.previous], below root/
//	deckhand ARG...                          run a command line
//	kubelet ARG...                           the same, with the binary called so
//	exit CODE                                the last command ended with this exit code
//	glob N PATTERN...                        so many files have a name that fits a pattern
//	input FILE                               what the next commands read
//	transcript FILE [OLD NEW]                write a pod's transcript, with something changed in it
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv(EnvRootDir, env.WorkDir+"/root")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":    func(ts *testscript.TestScript, _ bool, args []string) { serveFiles(t, ts, args) },
			"deckhand": func(ts *testscript.TestScript, neg bool, args []string) { runMain(ts, neg, "/usr/bin/deckhand", args) },
			"kubelet":  func(ts *testscript.TestScript, neg bool, args []string) { runMain(ts, neg, "/usr/bin/kubelet", args) },
			"exit": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := ts.Getenv("EXIT"); got != args[0] {
					ts.Fatalf("exit code %s, want %s", got, args[0])
				}
			},
			"glob":       countFiles,
			"input":      func(ts *testscript.TestScript, _ bool, args []string) { ts.Setenv("STDIN", ts.ReadFile(args[0])) },
			"transcript": func(ts *testscript.TestScript, _ bool, args []string) { writeTranscript(ts, args) },
		},
	})
}

func countFiles(ts *testscript.TestScript, _ bool, args []string) {
	var found []string
	for _, pattern := range args[1:] {
		names, err := filepath.Glob(ts.MkAbs(pattern))
		ts.Check(err)
		found = append(found, names...)
	}
	slices.Sort(found)
	if found = slices.Compact(found); strconv.Itoa(len(found)) != args[0] {
		ts.Fatalf("there are %q", found)
	}
}

func serveFiles(t *testing.T, ts *testscript.TestScript, args []string) {
	agent := localtest.New()
	load := func(i int, into any) {
		if i < len(args) && args[i] != "-" {
			ts.Check(yaml.UnmarshalStrict([]byte(ts.ReadFile(args[i])), into))
		}
	}
	agent.Update(func(s *local.Snapshot) { load(0, s) })
	var images []image.Image
	load(1, &images)
	agent.SetImages(images)
	var events []local.Event
	load(2, &events)
	agent.SetEvents(events)
	var details map[types.UID]local.Details
	load(3, &details)
	agent.SetDetails(details)
	var configuration local.Configuration
	load(4, &configuration)
	agent.SetConfiguration(configuration)
	var node local.Node
	load(5, &node)
	agent.SetNode(node)
	loadJournals(ts, agent)
	agent.OnRun = func(_ string, manifest []byte) (local.Run, error) {
		return nil, &local.StatusError{Code: 422, Err: fmt.Errorf("document 1: spec.containers: Required value\n  a pod has one at least\ndocument 2: %s", strings.TrimSpace(string(manifest)))}
	}
	agent.OnStop = func(how string, names ...types.NamespacedName) error {
		if names[0].Name == "job-n1" {
			return &local.StatusError{Code: 409, Err: errors.New("pod default/job-n1 is run by `deckhand run /job.yaml`: end that command instead")}
		}
		if names[0].Name == "full-n1" {
			return &local.StatusError{Code: 507, Err: errors.New("the disk is full: /data has 0 B of 1.0 GiB free: write /data/x: no space left on device")}
		}
		fmt.Fprintln(ts.Stdout(), how, names)
		return nil
	}
	agent.OnForget = func(id string) (local.Forgotten, error) {
		if id == "u9/web" {
			return local.Forgotten{}, &local.StatusError{Code: 409, Err: errors.New("pod default/web (u9) is wanted: delete it first, or remove its manifest")}
		}
		return local.Forgotten{Staged: "csi.example.com^h1"}, nil
	}
	if _, err := os.Stat(ts.MkAbs("volumes.yaml")); err == nil {
		var volumes []local.Volume
		ts.Check(yaml.UnmarshalStrict([]byte(ts.ReadFile("volumes.yaml")), &volumes))
		agent.SetVolumes(volumes)
	}
	agent.OnAdd = func(name types.NamespacedName, c v1.EphemeralContainer) error {
		return addContainer(ts, agent, name, c)
	}
	if i := 6; i < len(args) {
		var summary statsapi.Summary
		load(i, &summary)
		agent.Pages = map[string]http.Handler{"/stats/summary": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ts.Check(json.NewEncoder(w).Encode(summary))
		})}
	}
	agent.OnSession = localtest.Sessions(inContainer)
	ts.Check(os.MkdirAll(ts.MkAbs("root"), 0o700))
	listener, err := socket.Listen(local.SocketPath(ts.MkAbs("root")))
	ts.Check(err)
	ts.Defer(localtest.ServeOn(t, agent, listener, ts.MkAbs("logs")))
}

// addContainer adds a container that runs, or if its command is "exit" has ended with the code 3; "main" is the name of one that is there.
func addContainer(ts *testscript.TestScript, agent *localtest.Agent, name types.NamespacedName, c v1.EphemeralContainer) error {
	text, err := yaml.Marshal(c)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "# %s gets:\n%s", name, text)
	if c.Name == "main" {
		return &local.StatusError{Code: 422, Err: errors.New("no such container can be added to pod " + name.String() + ": spec.ephemeralContainers[0].name: Duplicate value: \"main\"")}
	}
	s := v1.ContainerStatus{Name: c.Name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	if slices.Equal(c.Command, []string{"exit"}) {
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}}
	}
	agent.Update(func(snapshot *local.Snapshot) {
		for i := range snapshot.Pods {
			if p := snapshot.Pods[i].Pod.DeepCopy(); p.Name == name.Name {
				p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
				p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, s)
				snapshot.Pods[i].Pod = p
			}
		}
	})
	return nil
}

// inContainer is what commands of scripts come to in containers: it tells how it was run, and "cat", "fail" and "none" do what they say.
func inContainer(p localtest.Process) (int, error) {
	switch {
	case p.Command == nil:
		fmt.Fprintln(p.Out, "attached to", p.Pod)
	case p.Command[0] == "cat":
		_, err := io.Copy(p.Out, p.In)
		return 0, err
	case p.Command[0] == "fail":
		fmt.Fprintln(p.Err, "it fails")
		return 7, nil
	case p.Command[0] == "none":
		return 0, errors.New(`exec: "none": executable file not found in $PATH`)
	default:
		fmt.Fprintf(p.Out, "%s: %q\n", p.Pod, p.Command)
	}
	return 0, nil
}

func loadJournals(ts *testscript.TestScript, agent *localtest.Agent) {
	snapshot, err := agent.Snapshot(context.Background())
	ts.Check(err)
	for _, view := range snapshot.Pods {
		var texts [2]string
		for i, name := range []string{"", ".previous"} {
			text, err := os.ReadFile(ts.MkAbs("journals/" + string(view.Pod.UID) + name))
			if !errors.Is(err, fs.ErrNotExist) {
				ts.Check(err)
			}
			texts[i] = string(text)
		}
		agent.SetJournal(view.Pod.UID, texts[0], texts[1])
	}
}

// writeTranscript records the first decision about a pod.
func writeTranscript(ts *testscript.TestScript, args []string) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"}}
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "web:1"}}
	in := lifecycle.Input{Now: now, Pod: p}
	r := transcript.NewRecorder(1 << 16)
	r.Record(in, lifecycle.Decide(in))
	text := string(r.Bytes())
	if len(args) == 3 {
		if !strings.Contains(text, args[1]) {
			ts.Fatalf("there is no %q in the transcript:\n%s", args[1], text)
		}
		text = strings.Replace(text, args[1], args[2], 1)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

func runMain(ts *testscript.TestScript, neg bool, argv0 string, args []string) {
	printFlags := func(what string, flags *pflag.FlagSet) {
		fmt.Fprint(ts.Stdout(), what)
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				fmt.Fprintf(ts.Stdout(), " --%s=%s", f.Name, f.Value)
			}
		})
		fmt.Fprintln(ts.Stdout())
	}
	set := flags.New("/var/lib/kubelet")
	agentFlags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	set.AddTo(agentFlags)
	deps := Deps{
		RootDir:    "/var/lib/deckhand",
		Kubelet:    filepath.Base(argv0) == "kubelet",
		Getenv:     ts.Getenv,
		Now:        func() time.Time { return now },
		AgentFlags: set,
		Agent: func(context.Context, io.Writer, func(string) error) error {
			printFlags("agent", agentFlags)
			return nil
		},
		Up: func(_ context.Context, r UpRequest) error {
			return fmt.Errorf("can't run %s below %s", r.Manifests, r.RootDir)
		},
		StopAll: func(context.Context, string, func()) error { return nil },
		Leftovers: func(root string) ([]string, error) {
			return []string{"the directory " + root, "the bridge deckhand0"}, nil
		},
		Reset: func(_ context.Context, root string) error { fmt.Fprintln(ts.Stdout(), "removed "+root); return nil },
	}
	code := Main(context.Background(), args, argv0, strings.NewReader(ts.Getenv("STDIN")), ts.Stdout(), ts.Stderr(), deps)
	ts.Setenv("EXIT", strconv.Itoa(code))
	if neg == (code == 0) {
		ts.Fatalf("exit code %d", code)
	}
}
