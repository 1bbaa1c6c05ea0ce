package command

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// evil would clear the screen, set the window's title, use an 8-bit control, turn
// the writing round and delete.
const evil = "evil\x1b[2J\x1b]0;owned\x07\u009b31m\u202egpj.\x7f\r\u2066"

// steers returns the first character that would steer a terminal.
func steers(text string) (rune, bool) {
	for _, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			return r, true
		}
	}
	return 0, false
}

// evilAgent serves an agent that has evil wherever a container, a manifest or a
// runtime may have put it.
func evilAgent(t *testing.T) (*localtest.Agent, Deps) {
	t.Helper()
	agent := localtest.New()
	view := jobView(v1.PodPending, v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: evil, Message: evil}})
	view.Waits, view.Stale, view.Origin, view.Source = []local.Wait{{Text: evil}}, evil, evil, "file"
	view.Pod.Status.Reason, view.Pod.Status.Message, view.Pod.Status.PodIP, view.Pod.Spec.NodeName = evil, evil, evil, evil
	view.Pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 1, Reason: evil, Message: evil}
	ended := jobView(v1.PodFailed, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: evil, Message: evil}})
	ended.Pod.Name, ended.Pod.UID, ended.Pod.Status.ContainerStatuses[0].Image = "ended"+evil, "u2", evil
	agent.Update(pods(view, ended))
	agent.Update(func(s *local.Snapshot) {
		s.Problems = []pod.Problem{{Origin: evil, Pod: "default/" + evil, Message: evil + "\n" + evil}}
		s.Agent.RuntimeName, s.Agent.RuntimeVersion, s.Agent.RuntimeMessage = evil, evil, evil
	})
	agent.SetEvents([]local.Event{{Seq: 1, Time: now, First: now, Type: evil, Reason: evil, Namespace: "default", Object: "pod/job-n1", Part: evil, Component: evil, Message: evil, Count: 1}})
	agent.SetImages([]image.Image{{ID: "sha256:" + evil, Refs: []string{evil}, UsedBy: []string{evil}}})
	kubelet := v1beta1.KubeletConfiguration{StaticPodPath: evil, ClusterDNS: []string{evil}, EvictionHard: map[string]string{evil: evil}}
	agent.SetConfiguration(local.Configuration{Kubelet: kubelet, Origins: map[string]string{"staticPodPath": evil}})
	agent.SetJournal("u1", evil+"\n"+evil+"\n", evil+"\n")
	return agent, Deps{RootDir: localtest.Serve(t, agent), Getenv: func(string) string { return "" }, Now: func() time.Time { return now }}
}

// TestNothingSteersTheTerminal: whatever a container has written, what is printed
// for people is nothing but text.
func TestNothingSteersTheTerminal(t *testing.T) {
	_, deps := evilAgent(t)
	for _, line := range []string{
		"events", "events -o wide", "events --for job",
		"pods", "pods --containers", "pods -o wide", "pods -o name",
		"images", "why", "why job", "why job-n2", "logs none", "logs job other", "version",
		"config view", "config view -o json",
	} {
		var out, reported bytes.Buffer
		Main(t.Context(), strings.Fields(line), "deckhand", nil, &out, &reported, deps)
		if out.Len()+reported.Len() == 0 {
			t.Errorf("%s prints nothing", line)
		}
		if r, found := steers(out.String() + reported.String()); found {
			t.Errorf("%s prints %U: %q", line, r, out.String()+reported.String())
		}
	}
}

// TestNothingSteersTheTerminalWhileWatching: nor as things change.
func TestNothingSteersTheTerminalWhileWatching(t *testing.T) {
	_, deps := evilAgent(t)
	for line, rows := range map[string]int{"events -w": 2, "pods -w --containers": 5} {
		s := begin(t, deps, "", strings.Fields(line)...)
		for range rows {
			got, err := s.out.ReadString('\n')
			if r, found := steers(got); err != nil || found {
				t.Errorf("%s prints %U: %q, %v", line, r, got, err)
			}
		}
		s.stop()
		s.ended(0)
	}
}

// TestForATerminalEverythingIsFiltered: what is exact in a file or a pipe isn't on a
// terminal, where a transcript of an older version may hold anything.
func TestForATerminalEverythingIsFiltered(t *testing.T) {
	_, deps := evilAgent(t)
	for line, mark := range map[string]string{
		"journal job": "evil", "journal -p job": "evil", "pods -o yaml": "kind: List", "pods -o json": `"kind": "List"`,
		"events -o json": "evil", "why -o yaml job": "verdict",
	} {
		screen, terminal := openTerminal(t, 200)
		Main(t.Context(), strings.Fields(line), "deckhand", nil, terminal, io.Discard, deps)
		if _, err := terminal.WriteString("the end\n"); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for {
			got, err := screen.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got = strings.TrimSuffix(got, "\r\n") // which the terminal makes of \n
			if got == "the end" {
				break
			}
			text.WriteString(got + "\n")
		}
		if r, found := steers(text.String()); found || !strings.Contains(text.String(), mark) {
			t.Errorf("%s prints %U: %q", line, r, text.String())
		}
	}
	var out bytes.Buffer
	if code := Main(t.Context(), []string{"journal", "job"}, "deckhand", nil, &out, io.Discard, deps); code != 0 || out.String() != evil+"\n"+evil+"\n" {
		t.Errorf("into a pipe, exit code %d: %q", code, out.String())
	}
}

// TestErrorsAreText: an error may hold what somebody else has written.
func TestErrorsAreText(t *testing.T) {
	got := errorLines(io.EOF) + errorLines(&usageError{errText(evil + "\n  " + evil)})
	if r, found := steers(got); found || !strings.HasPrefix(got, "error: EOF\nerror: evil") || !strings.Contains(got, "\n  evil") {
		t.Errorf("%U: %q", r, got)
	}
}

type errText string

func (e errText) Error() string { return string(e) }
