package explain

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/kit/goldentest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

var update = flag.Bool("update", false, "write the golden file anew")

// TestEveryCodeHasWords: none is shown to people as it is. Scripts read the codes in the JSON of `why`: they stay.
func TestEveryCodeHasWords(t *testing.T) {
	var got strings.Builder
	for _, code := range constants(t, "../wait.go", "WaitCode") {
		w := pod.Wait{Code: pod.WaitCode(code), Message: "MESSAGE", Other: "OTHER", Gate: "GATE"}
		text := Wait(&w)
		if text == code || text == "" {
			t.Errorf("%s: %q", code, text)
		}
		fmt.Fprintf(&got, "%s: %s\n", code, text)
	}
	goldentest.Compare(t, "testdata/waits.txt", got.String(), *update)
}

// TestCauses: why a container ended, or isn't ready, comes first.
func TestCauses(t *testing.T) {
	for want, w := range map[string]pod.Wait{
		"ended with exit code 3; back-off":                         {Code: pod.WaitBackOff, ExitCode: 3},
		"ran out of memory (OOMKilled); back-off":                  {Code: pod.WaitBackOff, ExitCode: 137, Reason: pod.ReasonOOMKilled},
		"couldn't be started: no such file; back-off":              {Code: pod.WaitBackOff, ExitCode: 128, Reason: pod.ReasonStartError, Message: "no such file"},
		"failed its liveness probe: HTTP 500; back-off":            {Code: pod.WaitBackOff, ExitCode: 143, Cause: pod.StopProbe, Probe: pod.ProbeLiveness, Message: "HTTP 500"},
		"failed its postStart hook: exited with 1; back-off":       {Code: pod.WaitBackOff, ExitCode: 143, Cause: pod.StopPostStartHook, Message: "exited with 1"},
		"is running but not ready: its startup probe hasn't":       {Code: pod.WaitProbe, Probe: pod.ProbeStartup},
		"its startup probe fails: refused":                         {Code: pod.WaitProbe, Probe: pod.ProbeStartup, Message: "refused", Attempts: 1},
		"its readiness probe fails (12 times in a row): timed out": {Code: pod.WaitProbeFailed, Probe: pod.ProbeReadiness, Message: "timed out", Attempts: 12},
	} {
		if got := Wait(&w); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q in it", w, got, want)
		}
	}
}

// TestActions: each action that a pod waits for has its own words.
func TestActions(t *testing.T) {
	words := map[pod.ActionKind]string{
		"AdmitPod":        "is about to be admitted",
		"PreparePod":      "directories, cgroup and volumes are being prepared",
		"CreateSandbox":   "the sandbox is being created",
		"StopSandbox":     "the old sandbox is being taken down",
		"RemoveSandbox":   "the sandbox is being removed",
		"EnsureImage":     "waiting for image a:1: being pulled",
		"CreateContainer": "is being created",
		"StartContainer":  "is being started",
		"StopContainer":   "waiting for StopContainer to end",
		"RemoveContainer": "its containers are being removed",
		"ReleaseVolumes":  "its volumes are being unmounted",
		"CleanPod":        "its directories, cgroup and logs are being removed",
		"SaveCheckpoint":  "its checkpoint is being written",
		"PostStart":       "its postStart hook is running",
		"PreStop":         "waiting for PreStop to end",
		"Allocate":        "waiting for Allocate to end",
		"ResizePod":       "waiting for ResizePod to end",
		"ResizeContainer": "waiting for ResizeContainer to end",
	}
	for kind, want := range words {
		w := pod.Wait{Code: "Action", Action: kind, Image: "a:1", Pull: pod.Pull{Begun: true}}
		if got := Wait(&w); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
	for _, kind := range constants(t, "../action.go", "ActionKind") {
		if words[pod.ActionKind(kind)] == "" {
			t.Errorf("no words for %s", kind)
		}
	}
}

func TestPull(t *testing.T) {
	for want, p := range map[string]pod.Pull{
		"number 2 in the queue":           {Queued: 2},
		"being pulled":                    {Begun: true},
		"1 of 3 layers, 0.5 MB of 2.0 MB": {Begun: true, LayersDone: 1, Layers: 3, BytesDone: 5e5, Bytes: 2e6},
		"":                                {},
	} {
		if got := Pull(p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}

// TestAdvice: what helps is chosen by what failed and by what is missing, never by words.
func TestAdvice(t *testing.T) {
	claim := pod.Object{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "data"}
	for want, w := range map[string]pod.Wait{
		"PersistentVolume that fits":    {Code: pod.WaitRetry, Action: pod.PreparePod, Reason: pod.ReasonFailedMount, Object: claim},
		"define ConfigMap default/web":  {Code: pod.WaitRetry, Action: pod.PreparePod, Reason: pod.ReasonFailedMount, Object: pod.Object{Kind: "ConfigMap", Namespace: "default", Name: "web"}},
		"registry can be reached":       {Code: pod.WaitRetry, Action: pod.EnsureImage, Reason: pod.ReasonErrImagePull, Object: pod.Object{Kind: "Secret", Namespace: "default"}},
		"disk under the root directory": {Code: pod.WaitRetry, Action: pod.SaveCheckpoint, Reason: pod.ReasonFailedSync},
		"free space or inodes":          {Code: pod.WaitRetry, Action: pod.CreateContainer, Reason: pod.ReasonCreateContainerConfigError, Disk: true},
		"kernel.pid_max":                {Code: pod.WaitRetry, Action: pod.CreateSandbox, Reason: pod.ReasonFailedCreatePodSandBox, For: pod.WaitForProcesses},
		"that its disk isn't full":      {Code: pod.WaitRetry, Action: pod.CreateContainer, Reason: pod.ReasonCreateContainerError},
		"`deckhand logs --previous`":    {Code: pod.WaitBackOff, ExitCode: 1},
		"`deckhand images prune`":       {Code: pod.WaitBackOff, ExitCode: 128, Reason: pod.ReasonStartError, Disk: true},
		"ends a pod and removes its":    {Code: pod.WaitRetry, Action: pod.StartContainer, Reason: pod.ReasonRunContainerError, Disk: true},
		"command isn't there (127)":     {Code: pod.WaitBackOff, ExitCode: 127},
		"raise its memory limit":        {Code: pod.WaitBackOff, ExitCode: 137, Reason: pod.ReasonOOMKilled},
		"it has no log":                 {Code: pod.WaitBackOff, ExitCode: 128, Reason: pod.ReasonStartError},
		"give the startup probe":        {Code: pod.WaitBackOff, ExitCode: 143, Cause: pod.StopProbe, Probe: pod.ProbeStartup},
		"correct its postStart hook":    {Code: pod.WaitBackOff, ExitCode: 143, Cause: pod.StopPostStartHook},
		"shrink or remove another pod":  {Code: pod.WaitRetry, Action: pod.Allocate, Reason: "Deferred"},
	} {
		if got := Advice(&w, nil); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q in it", w, got, want)
		}
	}
	if got := Advice(&pod.Wait{Code: pod.WaitAction, Action: pod.EnsureImage}, nil); got != "" {
		t.Errorf("advice for what needs none: %q", got)
	}
}

// TestAdviceBySource: what a person does is done to a manifest, or at the API server.
func TestAdviceBySource(t *testing.T) {
	const spec = "the pod's spec, or %s the template of its controller (Deployment, Job, ...)"
	api := &v1.Pod{}
	metav1.SetMetaDataAnnotation(&api.ObjectMeta, pod.AnnotationConfigSource, "api")
	for _, c := range []struct {
		wait          pod.Wait
		manifest, api string
	}{
		{
			pod.Wait{Code: pod.WaitBackOff, ExitCode: 137, Reason: pod.ReasonOOMKilled},
			"raise its memory limit in the manifest, or have it use less",
			"raise its memory limit in " + fmt.Sprintf(spec, "in") + ", or have it use less",
		},
		{
			pod.Wait{Code: pod.WaitRejected, Reason: "AppArmor"},
			"remove these fields from the manifest, or run the pod on another node",
			"remove these fields from " + fmt.Sprintf(spec, "from") + ", or run the pod on another node",
		},
		{
			pod.Wait{Code: pod.WaitRetry, Object: pod.Object{Kind: "ConfigMap", Namespace: "a", Name: "b"}},
			"define ConfigMap a/b in a manifest, or change it: this is tried again as soon as that is done",
			"create ConfigMap a/b in the cluster (kubectl), or change it: this is tried again as soon as that is done",
		},
		{
			pod.Wait{Code: pod.WaitRetry, Object: pod.Object{Kind: pod.CSIDriver, Name: "csi.example.com"}},
			"start the driver on this node, or look into its logs: this is tried again as soon as it registers",
			"start the driver on this node, or look into its logs: this is tried again as soon as it registers",
		},
		{
			pod.Wait{Code: pod.WaitRejected, Reason: "Preempting"},
			"a pod of higher priority took its resources: stop other pods, remove the manifest and add it again",
			"a pod of higher priority took its resources: stop other pods, delete this one (kubectl delete pod): " +
				"its controller (Deployment, Job, ...) creates another",
		},
		{
			pod.Wait{Code: pod.WaitRejected, Reason: "Evicted"},
			"free some of the resource that the message names (`deckhand node -o wide`), or request as much of it in the " +
				"manifest as the pod uses; if the message names a limit, raise it; `deckhand restart` runs it again at once",
			"free some of the resource that the message names (`deckhand node -o wide`), or request as much of it in " +
				fmt.Sprintf(spec, "in") + " as the pod uses; if the message names a limit, raise it; " +
				"its controller (Deployment, Job, ...) creates another one",
		},
		{
			pod.Wait{Code: pod.WaitRejected, Reason: "OutOfcpu"},
			"request less in the manifest; or stop other pods, remove the manifest and add it again",
			"request less in " + fmt.Sprintf(spec, "in") + "; or stop other pods, delete this one (kubectl delete pod): " +
				"its controller (Deployment, Job, ...) creates another",
		},
		{pod.Wait{Code: pod.WaitStopped}, "`deckhand start` runs it again", "`deckhand start` runs it again"},
	} {
		if got := Advice(&c.wait, nil); got != c.manifest {
			t.Errorf("%+v: %q, want %q", c.wait, got, c.manifest)
		}
		if got := Advice(&c.wait, api); got != c.api {
			t.Errorf("%+v: %q, want %q", c.wait, got, c.api)
		}
	}
	const full = "free space or inodes there: `deckhand images prune` removes unused images, %s ends a pod and removes " +
		"its files; or remove other files"
	for cluster, end := range map[bool]string{false: "`deckhand stop POD`", true: "`kubectl delete pod`"} {
		if got, want := FreeDisk(cluster), fmt.Sprintf(full, end); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAdviceKnowsItsWorld: whatever is waited for and fails, a pod of an API server is nothing that a manifest of this node
// defines, and a manifest's pod is nothing that kubectl changes.
func TestAdviceKnowsItsWorld(t *testing.T) {
	codes, reasons := constants(t, "../wait.go", "WaitCode"), constants(t, "../reasons.go", "Reason")
	reasons = append(reasons, string(v1.PodReasonDeferred), string(v1.PodReasonInfeasible), string(pod.ReasonOutOf)+"cpu", "")
	if len(codes) < 20 || len(reasons) < 50 {
		t.Fatalf("found %d codes and %d reasons only", len(codes), len(reasons))
	}
	objects := []pod.Object{{}, {Kind: "ConfigMap", Namespace: "a", Name: "b"}, {Kind: "PersistentVolumeClaim", Namespace: "a", Name: "b"}, {Kind: "TokenRequest", Namespace: "a", Name: "b"}}
	causes := []pod.StopCause{"", pod.StopPostStartHook, pod.StopProbe}
	advised := map[string]bool{}
	of := func(s pod.Source) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{pod.AnnotationConfigSource: string(s)}}}
	}
	check := func(w pod.Wait) {
		manifest, api := Advice(&w, of(pod.SourceFile)), Advice(&w, of(pod.SourceAPI))
		advised[manifest] = true
		if text := Wait(&w) + manifest; strings.Contains(text, "kubectl") || strings.Contains(text, "{") || manifest != Advice(&w, of(pod.SourceRun)) || manifest != Advice(&w, of(pod.SourceHTTP)) {
			t.Errorf("a manifest's pod with %+v is told %q", w, text)
		}
		if text := Wait(&w) + api; strings.Contains(text, "manifest") || strings.Contains(text, "{") || (api == "") != (manifest == "") {
			t.Errorf("an API server's pod with %+v is told %q", w, text)
		}
	}
	for _, code := range codes {
		for _, reason := range reasons {
			for _, object := range objects {
				for _, cause := range causes {
					for _, exit := range []int32{0, 127} {
						check(pod.Wait{Code: pod.WaitCode(code), Reason: pod.Reason(reason), Object: object, Cause: cause, ExitCode: exit})
					}
				}
			}
		}
		for _, action := range []pod.ActionKind{pod.SaveCheckpoint, pod.Allocate} {
			check(pod.Wait{Code: pod.WaitCode(code), Action: action})
		}
		check(pod.Wait{Code: pod.WaitCode(code), Disk: true})
	}
	if len(advised) < 25 {
		t.Errorf("only %d different advices were looked at", len(advised))
	}
}

// constants are the values of a file's constants of a type.
func constants(t *testing.T, file, name string) (values []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == name {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Errorf("%s: %v", spec.Names[0].Name, err)
			}
			values = append(values, value)
		}
		return true
	})
	return values
}
