package local_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

func TestWhyHasAllThatIsKnown(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	agent := localtest.New()
	web := view("web-n1", running(1))
	web.Stale, web.Waits = "line 3: not YAML", []local.Wait{{Wait: pod.Wait{Container: "c"}, Text: "text"}}
	agent.Update(func(s *local.Snapshot) {
		s.Node = "n1"
		s.Agent.RuntimeMessage = "no CNI"
		s.Pods = []local.PodView{web, view("other")}
		s.Problems = []pod.Problem{
			{Origin: web.Origin, Message: "not YAML"},
			{Origin: web.Origin + ", document 2", Message: "neither"},
			{Origin: web.Origin, Pod: "default/other", Message: "of another pod in that file"},
			{Origin: "/m/elsewhere.yaml", Pod: "default/web", Message: "the name is taken"},
			{Origin: web.Origin + "x", Message: "of another file"},
		}
	})
	details := local.Details{
		Waits: []local.Wait{{Wait: pod.Wait{Code: pod.WaitTarget, Container: "c", Since: at, Next: at.Add(time.Second), Other: "d"}, Text: "text", Advice: "do it"}}, Wake: at.Add(time.Minute), Stopping: "it is over",
		Probes: []pod.ProbeResult{{Probe: pod.Probe{Container: "c", ID: "x", Kind: pod.ProbeReadiness}, At: at, Message: "no"}},
	}
	agent.SetDetails(map[types.UID]local.Details{"u1": details})
	about := func(i int) local.Event {
		return local.Event{Seq: uint64(i), Time: at, Reason: "R", Namespace: "default", Object: "pod/web-n1", UID: "u1"}
	}
	events := []local.Event{{Reason: "other", Namespace: "default", Object: "pod/other"}, {Reason: "namespace", Namespace: "x", Object: "pod/web-n1"},
		{Reason: "predecessor", Namespace: "default", Object: "pod/web-n1", UID: "u0"}, {Reason: "manifest", Object: "pod/web-n1"}}
	for i := range 25 {
		events = append(events, about(i))
	}
	agent.SetEvents(events)
	client, _ := serve(t, agent)
	got, err := client.Why(t.Context(), "default", "web-n1")
	if err != nil {
		t.Fatal(err)
	}
	want := local.Explanation{Pod: web.Pod, Source: web.Source, Origin: web.Origin, Stale: web.Stale, Details: details, Runtime: "no CNI"}
	want.Problems = []pod.Problem{{Origin: web.Origin, Message: "not YAML"}, {Origin: web.Origin + ", document 2", Message: "neither"},
		{Origin: "/m/elsewhere.yaml", Pod: "default/web", Message: "the name is taken"}}
	for i := 5; i < 25; i++ {
		want.Events = append(want.Events, about(i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhyOfAPodThatWaitsForItsPredecessor(t *testing.T) {
	agent := localtest.New()
	old, next := view("web"), view("web")
	waits := []local.Wait{{Wait: pod.Wait{Code: pod.WaitPredecessor}, Text: "its predecessor"}}
	next.Pod.UID, next.Waits = "u2", waits
	agent.Update(set(old, next))
	client, _ := serve(t, agent)
	got, err := client.Why(t.Context(), "default", "web")
	if err != nil || got.Pod.UID != "u1" || !cmp.Equal(got.Successor, waits) {
		t.Errorf("%+v, %v", got, err)
	}
	agent.Update(set(next))
	got, err = client.Why(t.Context(), "default", "web")
	if err != nil || got.Successor != nil || !cmp.Equal(got.Waits, waits) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestJournalComesAcross(t *testing.T) {
	agent := localtest.New()
	agent.Update(set(view("a")))
	client, _ := serve(t, agent)
	for _, previous := range []bool{false, true} {
		if _, err := client.Journal(t.Context(), "default", "a", previous); !local.IsNotFound(err) {
			t.Errorf("previous %v: got %v, want that there is none", previous, err)
		}
	}
	agent.SetJournal("u1", "this agent's", "the last agent's")
	for previous, want := range map[bool]string{false: "this agent's", true: "the last agent's"} {
		text, err := client.Journal(t.Context(), "default", "a", previous)
		if err != nil {
			t.Fatal(err)
		}
		defer text.Close()
		if got, err := io.ReadAll(text); err != nil || string(got) != want {
			t.Errorf("previous %v: got %q, %v", previous, got, err)
		}
	}
}

func TestWhyAndJournalOfNoPod(t *testing.T) {
	client, _ := serve(t, localtest.New())
	if _, err := client.Why(t.Context(), "default", "a"); !local.IsNotFound(err) {
		t.Errorf("why: %v", err)
	}
	if _, err := client.Journal(t.Context(), "default", "a", false); !local.IsNotFound(err) {
		t.Errorf("journal: %v", err)
	}
}

func TestNodeJournal(t *testing.T) {
	agent := localtest.New()
	client, _ := serve(t, agent)
	if _, err := client.NodeJournal(t.Context()); !local.IsNotFound(err) {
		t.Errorf("without one: %v", err)
	}
	agent.SetJournal("", "the node's", "")
	text, err := client.NodeJournal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if got, err := io.ReadAll(text); err != nil || string(got) != "the node's" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestJournalRefusesWhatItDoesNotKnow(t *testing.T) {
	_, root := serve(t, localtest.New())
	conn, err := net.Dial("unix", local.SocketPath(root))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET /v1/journal?previous=maybe HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(answer), fmt.Sprint(http.StatusBadRequest)) {
		t.Errorf("%s, %v", answer, err)
	}
}
