package lifecycle

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/pod"
)

var update = flag.Bool("update", false, "rewrite the transcripts with what the core decides today")

// TestTranscripts plays every transcript in testdata. Lines that begin with "> "
// are what happens; what follows each is what the core decides.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { playFile(t, file) })
	}
}

func playFile(t *testing.T, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p v1.Pod
	script := -1
	for i, f := range ar.Files {
		switch f.Name {
		case "pod.yaml":
			if err := yaml.UnmarshalStrict(f.Data, &p); err != nil {
				t.Fatal(err)
			}
		case "transcript":
			script = i
		}
	}
	if script < 0 {
		t.Fatalf("%s has no section named transcript", file)
	}
	if p.Spec.RestartPolicy == "" {
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
	}
	want := ar.Files[script].Data
	got := play(t, newSim(&p), want)
	if bytes.Equal(got, want) {
		return
	}
	if *update {
		ar.Files[script].Data = got
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s: the core decides otherwise now (rerun with -update if that is meant):\n%s", file, got)
}

func play(t *testing.T, s *sim, script []byte) []byte {
	var out bytes.Buffer
	for _, line := range strings.Split(string(script), "\n") {
		cmd, ok := strings.CutPrefix(line, "> ")
		if !ok {
			continue
		}
		if err := s.apply(strings.Fields(cmd)); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		fmt.Fprintf(&out, "> %s\n%s", cmd, s.describe(s.decide()))
		if len(s.problems) > 0 {
			t.Fatalf("after %q: %s", line, strings.Join(s.problems, "; "))
		}
	}
	return out.Bytes()
}

// apply makes one line of a transcript happen.
func (s *sim) apply(f []string) error {
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	switch f[0] {
	case "see":
	case "after":
		d, err := time.ParseDuration(arg(1))
		s.now = s.now.Add(d)
		return err
	case "wake":
		if s.last.Wake.IsZero() {
			return fmt.Errorf("no wake-up was asked for")
		}
		s.now = s.last.Wake
	case "ok":
		a, err := s.take(pod.ActionKind(arg(1)), arg(2))
		if err != nil {
			return err
		}
		s.succeed(a)
	case "fail":
		// fail KIND NAME REASON MESSAGE...; NAME "-" for an action without a container
		a, err := s.take(pod.ActionKind(arg(1)), strings.TrimPrefix(arg(2), "-"))
		if err != nil {
			return err
		}
		s.fail(a, arg(3), strings.Join(f[4:], " "))
	case "lost":
		a, err := s.take(pod.ActionKind(arg(1)), arg(2))
		if err != nil {
			return err
		}
		s.lose(a)
	case "fail-start":
		// fail-start NAME MESSAGE...: the runtime leaves it as ended with 128.
		a, err := s.take(pod.StartContainer, arg(1))
		if err != nil {
			return err
		}
		c := s.byID(a.ID)
		s.exit(c, 128)
		c.Reason = "StartError"
		s.fail(a, "RunContainerError", strings.Join(f[2:], " "))
	case "clock-set-back":
		d, err := time.ParseDuration(arg(1))
		s.now = s.now.Add(-d)
		return err
	case "fail-for-good":
		if err := s.apply(append([]string{"fail"}, f[1:]...)); err != nil {
			return err
		}
		s.results[len(s.results)-1].Failure.Permanent = true
	case "cancelled":
		a, err := s.take(pod.ActionKind(arg(1)), arg(2))
		s.results = append(s.results, pod.Result{Action: a, At: s.now, Cancelled: true})
		return err
	case "up":
		return s.bringUp()
	case "exit":
		code, err := strconv.Atoi(arg(2))
		if err != nil {
			return err
		}
		return s.exitNamed(arg(1), int32(code))
	case "images-arrive":
		s.imagesAt = s.now
	case "start-cut-off":
		a, err := s.take(pod.StartContainer, arg(1))
		if err != nil {
			return err
		}
		c := s.byID(a.ID)
		c.State, c.FinishedAt, c.ExitCode, c.Reason, c.Message = pod.ContainerExited, s.now, 128, "StartError", "failed to start: context canceled"
		s.restartAgent()
	case "reboot":
		for _, b := range s.obs.Sandboxes {
			s.endSandbox(b.ID, 255)
		}
		s.restartAgent()
	case "sandbox-dies":
		s.obs.Sandboxes[0].State = pod.SandboxNotReady
	case "runtime-forgets":
		s.obs = pod.Observed{}
	case "logs-on-disk":
		n, err := strconv.Atoi(arg(2))
		s.mem.Attempts = map[string]int{arg(1): n}
		return err
	case "agent-restarts":
		s.restartAgent()
	case "orphan":
		s.restartAgent()
		s.pod, s.stop = nil, &Stop{At: s.now, Why: "nobody wants it"}
	case "stop":
		s.stop = &Stop{At: s.now, Why: "its manifest is gone"}
		if arg(1) != "" {
			d, err := time.ParseDuration(arg(1))
			s.stop.Grace = &d
			return err
		}
	default:
		return fmt.Errorf("unknown line")
	}
	return nil
}

// bringUp lets every action succeed until the core has nothing more to do.
func (s *sim) bringUp() error {
	for range 1000 {
		s.decide()
		if len(s.inFlight) == 0 {
			return nil
		}
		for _, a := range append([]pod.Action(nil), s.inFlight...) {
			s.inFlight = s.inFlight[1:]
			s.succeed(a)
		}
	}
	return fmt.Errorf("never comes to rest")
}

func (s *sim) exitNamed(name string, code int32) error {
	for i := range s.obs.Containers {
		if c := &s.obs.Containers[i]; c.Name == name && c.State == pod.ContainerRunning {
			s.exit(c, code)
			return nil
		}
	}
	return fmt.Errorf("%s isn't running", name)
}
