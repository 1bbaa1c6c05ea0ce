package transcript

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// byMeaning is an idea of equality that has nothing to do with that of the package.
var byMeaning = cmp.Options{
	// Why an action was begun is for people, and isn't recorded again with its result.
	cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Results.Action.Why" }, cmp.Ignore()),
	// Only who carries out an action acts on it.
	cmp.FilterPath(func(p cmp.Path) bool { return strings.HasSuffix(p.String(), "Failure.Unknown") }, cmp.Ignore()),
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }),
}

func record(limit int, turns []turn) *Recorder {
	r := NewRecorder(limit)
	for _, t := range turns {
		r.Record(t.in, t.d)
	}
	return r
}

func parse(tb testing.TB, data []byte) *Transcript {
	tb.Helper()
	t, err := Parse(data)
	if err != nil {
		tb.Fatalf("%v in:\n%s", err, data)
	}
	return t
}

// TestInputsComeBack: from the text of random steps their inputs can be had again, all of them.
func TestInputsComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		turns := drawTurns(rt)
		data := record(rapid.SampledFrom([]int{1 << 30, 20000}).Draw(rt, "limit"), turns).Bytes()
		tr, err := Parse(data)
		if err != nil {
			rt.Fatalf("%v in:\n%s", err, data)
		}
		if !terminal.IsBlock(string(data)) {
			rt.Fatalf("this would steer a terminal:\n%q", data)
		}
		missing := len(turns) - len(tr.Steps) // steps in which nothing changed, and dropped ones
		if missing < 0 || len(tr.Steps) == 0 {
			rt.Fatalf("%d steps of %d:\n%s", len(tr.Steps), len(turns), data)
		}
		at := len(turns)
		for i := len(tr.Steps) - 1; i >= 0; i-- {
			s := &tr.Steps[i]
			for at--; at >= 0 && !turns[at].in.Now.Equal(s.Input.Now); at-- {
			}
			if at < 0 {
				rt.Fatalf("step %d is of no decision that was made:\n%s", i, data)
			}
			if s.Incomplete != "" {
				continue
			}
			want := turns[at].in
			if !s.Restored {
				want.Memory = lifecycle.Memory{}
			}
			if diff := cmp.Diff(want, s.Input, byMeaning); diff != "" {
				rt.Fatalf("step %d (line %d) came back otherwise: %s\n%s", i, s.Line, diff, data)
			}
		}
	})
}

// drawTurns draws inputs and decisions that have to do with each other no more
// than it takes for every kind of line to come up.
func drawTurns(rt *rapid.T) []turn {
	f := &filler{rt: rt}
	pods := []*v1.Pod{nil, {}, {}}
	pods[1].Name, pods[1].Spec.Containers = "a", []v1.Container{{Name: "x", Image: "y"}}
	pods[2].Name, pods[2].Annotations = "b", map[string]string{"note": strings.Join(strange, " "), strange[len(strange)-1]: "a\n\tb"}
	var out []turn
	for i := range rapid.IntRange(1, 6).Draw(rt, "steps") {
		var t turn
		if i > 0 {
			t.in = out[i-1].in
			t.in.Results = nil
		}
		v := reflect.ValueOf(&t.in).Elem()
		for j := range v.NumField() {
			switch name := v.Type().Field(j).Name; {
			case name == "Pod" || name == "Now" || name == "Results" || name == "Memory" || name == "InFlight":
			case rapid.IntRange(0, 2).Draw(rt, name) == 0:
				v.Field(j).SetZero()
				f.fill(v.Field(j), 5)
			}
		}
		t.in.Pod = rapid.SampledFrom(pods).Draw(rt, "pod")
		if t.in.Pod == nil && t.in.Stop == nil {
			t.in.Stop = &lifecycle.Stop{} // there is always one of them
		}
		t.in.Now = epoch.Add(time.Duration(i)*time.Second + time.Duration(rapid.IntRange(-1, 1).Draw(rt, "now")))
		var last turn
		if i > 0 {
			last = out[i-1]
		}
		drawEnds(f, &t, &last)
		f.fill(reflect.ValueOf(&t.d.Actions).Elem(), 4)
		f.fill(reflect.ValueOf(&t.d.Memory).Elem(), 5)
		out = append(out, t)
	}
	return out
}

// drawEnds draws results, mostly of what is under way, and what remains under way and remembered.
func drawEnds(f *filler, t, last *turn) {
	for _, a := range last.pending() {
		if rapid.Bool().Draw(f.rt, "ends") {
			var r pod.Result
			f.fill(reflect.ValueOf(&r).Elem(), 3)
			r.Action = a
			t.in.Results = append(t.in.Results, r)
		}
	}
	if rapid.IntRange(0, 4).Draw(f.rt, "unheard of") == 0 {
		f.fill(reflect.ValueOf(&t.in.Results).Elem(), 4)
	}
	t.in.InFlight, t.in.Memory = remaining(last.pending(), t.in.Results), last.d.Memory
	if rapid.IntRange(0, 4).Draw(f.rt, "restart") == 0 {
		t.in.InFlight, t.in.Memory = nil, lifecycle.Memory{}
	}
}

// TestNothingSteersTheTerminal: a transcript is shown to people, whatever runtimes and
// containers have put into what it is about.
func TestNothingSteersTheTerminal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &filler{rt: rt}
		turns := drawTurns(rt)
		r := NewRecorder(rapid.SampledFrom([]int{1 << 30, 2000}).Draw(rt, "limit"))
		for i := range turns {
			d := &turns[i].d
			d.Status = &v1.PodStatus{}
			f.fill(reflect.ValueOf(d).Elem(), 4)
			if d.Status != nil {
				f.fill(reflect.ValueOf(&d.Status.ContainerStatuses).Elem(), 5)
				f.fill(reflect.ValueOf(&d.Status.Conditions).Elem(), 3)
			}
			r.Comment(rapid.SampledFrom(strange).Draw(rt, "comment"))
			r.Record(turns[i].in, *d)
			if text := Describe(turns[i].in, *d); !terminal.IsBlock(text) {
				rt.Fatalf("this would steer a terminal:\n%q", text)
			}
		}
		if data := r.Bytes(); !terminal.IsBlock(string(data)) {
			rt.Fatalf("this would steer a terminal:\n%q", data)
		}
	})
}

// TestReplayAgrees: what was recorded is decided the same again, also when the
// ring has dropped how it began.
func TestReplayAgrees(t *testing.T) {
	turns := story(t).turns
	for _, limit := range []int{1 << 30, 64 << 10, 16 << 10} {
		r := record(limit, turns)
		tr := parse(t, r.Bytes())
		for _, d := range Replay(tr) {
			t.Errorf("limit %d: %+v", limit, d)
		}
		if n := slices.IndexFunc(tr.Steps, func(s Step) bool { return s.Incomplete != "" }); n >= 0 {
			t.Errorf("limit %d: step %d is incomplete: %s", limit, n, tr.Steps[n].Incomplete)
		}
		if r.size() > limit {
			t.Errorf("limit %d: %d bytes are kept", limit, r.size())
		}
	}
}

// TestReplayFindsDifferences: a record of a core that decided otherwise shows that.
func TestReplayFindsDifferences(t *testing.T) {
	data := record(1<<30, story(t).turns).Bytes()
	changed := bytes.Replace(data, []byte("  do CreateSandbox attempt=0 (the pod has no live sandbox)\n"), []byte("  do CreateSandbox attempt=7 (by luck)\n"), 1)
	tr := parse(t, changed)
	diffs := Replay(tr)
	if len(diffs) == 0 {
		t.Fatal("no difference was found")
	}
	d := diffs[0]
	if want := []string{"do CreateSandbox attempt=7 (by luck)"}; !slices.Equal(d.Recorded, want) {
		t.Errorf("recorded %q, want %q", d.Recorded, want)
	}
	if want := []string{"do CreateSandbox attempt=0 (the pod has no live sandbox)"}; !slices.Equal(d.Now, want) {
		t.Errorf("now %q, want %q", d.Now, want)
	}
	if line := strings.Split(string(changed), "\n")[d.Line-1]; line != "> +411ms" || !d.Time.Equal(tr.Steps[d.Step].Input.Now) {
		t.Errorf("line %d of step %d is %q", d.Line, d.Step, line)
	}
}

// TestNoSecrets: values of variables and headers, and the copy of the manifest, are nowhere in the file.
func TestNoSecrets(t *testing.T) {
	w := story(t)
	w.obs.Containers = append(w.obs.Containers, pod.Container{ID: "x", CreatedWith: &pod.CreatedWith{PreStop: w.in.Pod.Spec.Containers[0].Lifecycle.PreStop}})
	w.snapshot()
	w.decide()
	data := record(1<<30, w.turns).Bytes()
	if bytes.Contains(data, []byte("sesame")) {
		t.Errorf("a secret is in:\n%s", data)
	}
	p := parse(t, data).Steps[0].Input.Pod
	if p.Spec.Containers[0].Env[0].Value != "(hidden)" || p.Annotations["kubernetes.io/config.hash"] != "abc" || p.Spec.Containers[0].Env[1].Value != "" {
		t.Errorf("more than that is missing: %+v", p)
	}
}

// TestLimit: whatever comes, a recorder keeps to its limit and its file can be read.
func TestLimit(t *testing.T) {
	turns := story(t).turns
	for _, size := range []int{0, 3 << 10, 7 << 10, 20 << 10, 200 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			const limit = 16 << 10
			r := NewRecorder(limit)
			noise := rand.New(rand.NewPCG(1, uint64(size)))
			for i := range 200 {
				x := turns[i%len(turns)]
				p := x.in.Pod.DeepCopy()
				if i%5 == 0 { // an edit
					p.Annotations["note"] = fmt.Sprint(i) + strings.Repeat("x", noise.IntN(size+1))
				}
				x.in.Pod = p
				x.in.Now = epoch.Add(time.Duration(i) * time.Second)
				if i%7 == 0 {
					x.d.Waits = []pod.Wait{{Code: pod.WaitRuntime, Message: strings.Repeat("y", noise.IntN(size+1))}}
				}
				r.Record(x.in, x.d)
				if r.size() > limit {
					t.Fatalf("after %d decisions %d bytes are kept, limit %d", i+1, r.size(), limit)
				}
			}
			if tr := parse(t, r.Bytes()); len(tr.Steps) == 0 || !tr.Steps[len(tr.Steps)-1].Input.Now.Equal(epoch.Add(199*time.Second)) {
				t.Error("the last step is missing")
			}
		})
	}
}

// TestGiantPod: of a pod that is larger than the limit the decisions are written, and that they can't be replayed.
func TestGiantPod(t *testing.T) {
	w := newWorld(examplePod(t))
	w.in.Pod.Annotations["giant"] = strings.Repeat("x", 100<<10)
	w.run(t)
	tr := parse(t, record(64<<10, w.turns).Bytes())
	if len(tr.Steps) < 5 || len(Replay(tr)) != 0 {
		t.Fatalf("%d steps, differences %v", len(tr.Steps), Replay(tr))
	}
	for _, s := range tr.Steps {
		if !strings.Contains(s.Incomplete, "the pod takes 10") || len(s.Decision) == 0 {
			t.Fatalf("step at line %d: %q, %q", s.Line, s.Incomplete, s.Decision)
		}
	}
}

// TestNothingNew: what brings only the time isn't written; a comment has it written.
func TestNothingNew(t *testing.T) {
	w := newWorld(examplePod(t))
	w.run(t)
	w.decide()
	r := record(1<<30, w.turns)
	before := r.Bytes()
	for range 3 {
		w.snapshot() // another snapshot of the same
		w.decide()
		r.Record(w.in, w.d)
	}
	if now := r.Bytes(); !bytes.Equal(before, now) {
		t.Errorf("nothing new was written:\n%s", bytes.TrimPrefix(now, before))
	}
	r.Comment("#! see")
	r.Record(w.in, w.d)
	r.Comment("the end")
	now := r.Bytes()
	if rest := string(now[len(before):]); !strings.HasPrefix(rest, "#! see\n> +") || !strings.HasSuffix(rest, "\n# the end\n") {
		t.Errorf("a comment and its step are written as:\n%s", rest)
	}
	if s := parse(t, now).Steps; !slices.Equal(s[len(s)-1].Comments, []string{"#! see"}) {
		t.Errorf("comments %q", s[len(s)-1].Comments)
	}
}

// TestOff: a limit of 0 records nothing.
func TestOff(t *testing.T) {
	if r := record(0, story(t).turns); r.size() != 0 || len(parse(t, r.Bytes()).Steps) != 0 {
		t.Error("something was recorded")
	}
}
