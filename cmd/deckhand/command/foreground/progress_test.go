package foreground

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func podView(name string, ready bool, reasons ...string) local.PodView {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(start)}}
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	status := v1.ContainerStatus{Name: "c", Ready: ready}
	if ready {
		p.Status.Phase = v1.PodRunning
		status.State.Running = &v1.ContainerStateRunning{}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	} else {
		p.Status.Phase = v1.PodPending
		status.State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{status}
	v := local.PodView{Pod: p}
	for _, text := range reasons {
		v.Waits = append(v.Waits, local.Wait{Text: text})
	}
	return v
}

func snapshot(views ...local.PodView) local.Snapshot {
	return local.Snapshot{Agent: local.AgentInfo{Synced: true}, Pods: views}
}

func stream(snapshots ...local.Snapshot) <-chan local.Snapshot {
	c := make(chan local.Snapshot, len(snapshots))
	for _, s := range snapshots {
		c <- s
	}
	return c
}

// Of many problems the first are written, and how many more there are.
func TestPlainLinesOfManyProblems(t *testing.T) {
	s := snapshot(podView("web", true))
	for n := range 5000 {
		s.Problems = append(s.Problems, pod.Problem{Origin: fmt.Sprintf("/m/%d.yaml", n), Message: "is bad"})
	}
	var out strings.Builder
	if _, err := Show(t.Context(), &out, stream(s, s), func(s local.Snapshot) bool { return s.Agent.Synced }, Options{Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 12 || strings.Count(out.String(), "and 4990 more") != 1 {
		t.Errorf("%d lines:\n%.1000s", n, out.String())
	}
}

func TestPlainLinesReportChangesOnce(t *testing.T) {
	bad := snapshot(podView("web", false, "pulling the image"), podView("db", false))
	bad.Problems = []pod.Problem{{Origin: "/m/bad.yaml", Message: "first\nsecond"}}
	var out strings.Builder
	c := stream(local.Snapshot{}, bad, bad, snapshot(podView("web", true), podView("db", false)), snapshot(podView("web", true), podView("db", true)))
	last, err := Show(t.Context(), &out, c, Well, Options{Now: time.Now})
	if err != nil || len(last.Pods) != 2 {
		t.Fatalf("%v, %+v", err, last)
	}
	want := `default/web: ContainerCreating, 0/1 ready (pulling the image)
default/db: ContainerCreating, 0/1 ready
problem in /m/bad.yaml: first
  second
default/web: Running, 1/1 ready
default/db: Running, 1/1 ready
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

// screen interprets what live writes, as a terminal of a certain width would.
type screen struct {
	t      *testing.T
	width  int
	rows   []string
	row    int
	frames int
}

func (s *screen) Write(b []byte) (int, error) {
	s.frames++
	text := string(b)
	for text != "" {
		var n int
		switch {
		case strings.HasPrefix(text, eraseLine):
			text = text[len(eraseLine):]
		case strings.HasPrefix(text, eraseDown):
			s.rows = s.rows[:min(s.row, len(s.rows))]
			text = text[len(eraseDown):]
		case strings.HasPrefix(text, "\x1b["):
			if _, err := fmt.Sscanf(text, upLines, &n); err != nil {
				s.t.Fatalf("unexpected sequence in %q", text)
			}
			s.row -= n
			text = text[strings.IndexByte(text, 'F')+1:]
		default:
			line, rest, ok := strings.Cut(text, eraseLine+"\n")
			if !ok || len([]rune(line)) > s.width {
				s.t.Fatalf("a line that doesn't fit, or isn't ended: %q", text)
			}
			s.rows = append(s.rows[:min(s.row, len(s.rows))], append([]string{line}, s.rows[min(s.row+1, len(s.rows)):]...)...)
			s.row++
			text = rest
		}
		if s.row < 0 {
			s.t.Fatal("the cursor left the table upwards")
		}
	}
	return len(b), nil
}

func (s *screen) text() string { return strings.Join(s.rows, "\n") }

func TestLiveTableIsRedrawnInPlace(t *testing.T) {
	scr := &screen{t: t, width: 60}
	now := start
	terminal := &Terminal{Size: func() (int, int) { return scr.width, 10 }}
	l := &live{w: scr, now: func() time.Time { return now }, begun: start, terminal: terminal}
	check := func(s local.Snapshot, want string) {
		t.Helper()
		if err := l.show(s); err != nil {
			t.Fatal(err)
		}
		if got := scr.text(); got != strings.Trim(want, "\n") {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	}
	check(local.Snapshot{}, "Reading the manifests...")
	check(snapshot(podView("web", false, "pulling a very large image from far away"), podView("db", true)), `
1 of 2 pods ready after 0s
NAME   READY   STATUS              RESTARTS   AGE   REASON
web    0/1     ContainerCreating   0          0s    pulling…
db     1/1     Running             0          0s`)
	now = now.Add(3 * time.Second)
	// Narrower: what is on the screen wrapped, and is overwritten all the same.
	wide := scr.rows
	scr.rows = nil
	scr.width = 40
	for _, row := range wide {
		for len(row) > 40 {
			scr.rows, row = append(scr.rows, row[:40]), row[40:]
		}
		scr.rows = append(scr.rows, row)
	}
	scr.row = len(scr.rows)
	check(snapshot(podView("web", true), podView("db", true)), `
2 of 2 pods ready after 3s
NAME   READY   STATUS              REST…
web    1/1     Running             0…
db     1/1     Running             0…`)
}

func TestLiveTableFitsTheScreen(t *testing.T) {
	scr := &screen{t: t, width: 80}
	terminal := &Terminal{Size: func() (int, int) { return 80, 7 }}
	l := &live{w: scr, now: func() time.Time { return start }, begun: start, terminal: terminal}
	var views []local.PodView
	for i := range 50 {
		views = append(views, podView(fmt.Sprintf("pod-%02d", i), i%2 == 0))
	}
	s := snapshot(views...)
	for i := range 9 {
		s.Problems = append(s.Problems, pod.Problem{Origin: fmt.Sprintf("/m/%d", i), Message: "is bad"})
	}
	if err := l.show(s); err != nil {
		t.Fatal(err)
	}
	want := `25 of 50 pods ready after 0s
NAME     READY   STATUS              RESTARTS   AGE   REASON
pod-01   0/1     ContainerCreating   0          0s
... and 49 more
problem in /m/0: is bad
problem in /m/1: is bad`
	if scr.text() != want {
		t.Errorf("got:\n%s\nwant:\n%s", scr.text(), want)
	}
}

func TestLiveTableRunsWithTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scr := &screen{t: t, width: 80}
		resized := make(chan os.Signal, 1)
		terminal := &Terminal{Size: func() (int, int) { return 80, 24 }, Resized: resized}
		snapshots := make(chan local.Snapshot)
		done := make(chan error, 1)
		go func() {
			_, err := Show(t.Context(), scr, snapshots, Well, Options{Now: time.Now, Terminal: terminal})
			done <- err
		}()
		snapshots <- snapshot(podView("web", false))
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if !strings.HasPrefix(scr.text(), "0 of 1 pods ready after 3s") || scr.frames != 4 {
			t.Errorf("%d frames: %s", scr.frames, scr.text())
		}
		resized <- os.Interrupt
		synctest.Wait()
		if scr.frames != 5 {
			t.Errorf("a resize doesn't redraw")
		}
		snapshots <- snapshot(podView("web", true))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestProgressSteersNothing: but for what the table itself needs.
func TestProgressSteersNothing(t *testing.T) {
	const evil = "evil\x1b]0;owned\x07\u009b31m\u202e\x7f"
	s := snapshot(podView("web"+evil, false, evil))
	s.Problems = []pod.Problem{{Origin: evil, Message: evil + "\n" + evil}}
	var lines, table strings.Builder
	l := &live{w: &table, now: func() time.Time { return start }, begun: start, terminal: &Terminal{Size: func() (int, int) { return 80, 24 }}}
	for out, v := range map[*strings.Builder]view{&lines: NewPlain(&lines), &table: l} {
		if err := v.show(s); err != nil {
			t.Fatal(err)
		}
		got := strings.NewReplacer(eraseLine, "", eraseDown, "").Replace(out.String())
		if !strings.Contains(got, "problem in evil") || !terminal.IsBlock(got) {
			t.Errorf("%q", got)
		}
	}
}

func TestColours(t *testing.T) {
	var out strings.Builder
	terminal := &Terminal{Size: func() (int, int) { return 80, 24 }, Color: true}
	l := &live{w: &out, now: func() time.Time { return start }, begun: start, terminal: terminal}
	if err := l.show(snapshot(podView("web", true))); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), green+"web") {
		t.Errorf("a ready pod isn't green: %q", out.String())
	}
}

func TestShowEndsWithItsStreamOrContext(t *testing.T) {
	closed := make(chan local.Snapshot)
	close(closed)
	if _, err := Show(t.Context(), io.Discard, closed, Well, Options{}); !errors.Is(err, io.EOF) {
		t.Errorf("stream closed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Show(ctx, io.Discard, nil, Well, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("context ended: %v", err)
	}
}

func TestURL(t *testing.T) {
	with := func(ip string, hostNetwork bool, port v1.ContainerPort) local.PodView {
		v := podView("p", true)
		v.Pod.Status.PodIP = ip
		v.Pod.Spec.HostNetwork = hostNetwork
		v.Pod.Spec.Containers[0].Ports = []v1.ContainerPort{port}
		return v
	}
	byIP := with("10.1.0.2", false, v1.ContainerPort{ContainerPort: 80})
	notReady := podView("x", false)
	notReady.Pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 81}}
	for name, tc := range map[string]struct {
		s    local.Snapshot
		want []string
	}{
		"none":         {snapshot(podView("a", true)), nil},
		"not ready":    {snapshot(notReady), nil},
		"UDP":          {snapshot(with("10.1.0.2", false, v1.ContainerPort{ContainerPort: 53, Protocol: v1.ProtocolUDP})), nil},
		"pod IP":       {snapshot(byIP), []string{"http://10.1.0.2:80/"}},
		"IPv6":         {snapshot(with("fd00::2", false, v1.ContainerPort{ContainerPort: 80})), []string{"http://[fd00::2]:80/"}},
		"host port":    {snapshot(byIP, with("10.1.0.3", false, v1.ContainerPort{ContainerPort: 80, HostPort: 8080})), []string{"http://10.1.0.2:80/", "http://127.0.0.1:8080/"}},
		"host IP":      {snapshot(with("", false, v1.ContainerPort{ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.2"})), []string{"http://127.0.0.2:8080/"}},
		"host network": {snapshot(byIP, with("192.0.2.1", true, v1.ContainerPort{ContainerPort: 8080, HostPort: 8080})), []string{"http://10.1.0.2:80/", "http://127.0.0.1:8080/"}},
	} {
		var got []string
		for _, u := range URLs(tc.s) {
			got = append(got, u.Address)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A crash loop is ready in between, and a typo leaves all other pods ready: neither is well.
func TestShowEndsOnceAllIsWellForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crashed := podView("web", false)
		crashed.Pod.Status.ContainerStatuses[0].RestartCount = 1
		crashed.Waits = []local.Wait{{Wait: pod.Wait{Code: pod.WaitBackOff, Container: "c"}, Text: "ended with exit code 3"}}
		typo := snapshot(podView("web", true))
		typo.Problems = []pod.Problem{{Origin: "/m/typo.yaml", Message: "line 3: imagee: unknown field\nline 4: image: Required value"}}
		snapshots, out := make(chan local.Snapshot), &strings.Builder{}
		ended := make(chan local.Snapshot, 1)
		go func() {
			last, err := Show(t.Context(), out, snapshots, Well, Options{Now: time.Now, Steady: 10 * time.Second})
			if err != nil {
				t.Error(err)
			}
			ended <- last
		}()
		for _, s := range []local.Snapshot{snapshot(podView("web", true)), snapshot(crashed), snapshot(podView("web", true)), typo} {
			snapshots <- s
			time.Sleep(9 * time.Second)
		}
		for range 3 {
			time.Sleep(time.Minute)
			snapshots <- typo
		}
		want := `1 of 1 pods ready. Problems (` + "`deckhand why`" + ` says more):
  /m/typo.yaml: line 3: imagee: unknown field
    line 4: image: Required value
`
		if synctest.Wait(); strings.Count(out.String(), want) != 1 || len(ended) > 0 {
			t.Errorf("over: %v; want once, in the end, %s in\n%s", len(ended) > 0, want, out)
		}
		snapshots <- snapshot(crashed)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, want := range []string{"0 of 1 pods ready", "\n  default/web: ContainerCreating, 0/1 ready, 1 restart (container c: ended with exit code 3)"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("want %s in\n%s", want, out)
			}
		}
		snapshots <- snapshot(podView("web", true))
		time.Sleep(10*time.Second + time.Millisecond)
		if synctest.Wait(); len(ended) != 1 {
			t.Error("it goes on though all was well for long")
		}
		<-ended
	})
}
