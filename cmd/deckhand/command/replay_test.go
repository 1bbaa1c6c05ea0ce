package command

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
)

// recorded is the transcript of a pod that is begun and taken down again.
func recorded() []byte {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", "u1"
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "web:1"}}
	r := transcript.NewRecorder(1 << 16)
	in := lifecycle.Input{Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Pod: p}
	for i := range 3 {
		d := lifecycle.Decide(in)
		r.Record(in, d)
		in.Memory, in.InFlight = d.Memory, append(in.InFlight, d.Actions...)
		in.Now = in.Now.Add(time.Second)
		if i == 1 {
			in.Stop = &lifecycle.Stop{At: in.Now, Why: "its manifest is gone"}
		}
	}
	return r.Bytes()
}

// printed is what replay prints of a transcript.
func printed(t *testing.T, text []byte) (string, bool) {
	t.Helper()
	result, err := replay("-", bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var out strings.Builder
	same, err := result.print(&out, "FILE")
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), same
}

func TestSame(t *testing.T) {
	if out, same := printed(t, recorded()); !same || out != "FILE: 2 steps replayed, all decided as they were\n" {
		t.Errorf("%v: %s\n%s", same, out, recorded())
	}
	// What is waited for, and why an action is taken, may be worded otherwise.
	for from, to := range map[string]string{"because is about": "because tea leaves are about", "(the node has": "(tea leaves have"} {
		other := bytes.ReplaceAll(recorded(), []byte(from), []byte(to))
		if out, same := printed(t, other); !same || bytes.Equal(other, recorded()) {
			t.Errorf("%s: %s", to, out)
		}
	}
	if out, same := printed(t, []byte("-- transcript --\n")); !same || out != "FILE: 0 steps replayed, all decided as they were\n" {
		t.Errorf("%v: %s", same, out)
	}
}

func TestDifferenceIsShownWithItsPlace(t *testing.T) {
	text := bytes.Replace(recorded(), []byte("  because is about"), []byte("  cancel \x1b[31mnothing\n  because is about"), 1)
	line := 1 + bytes.Count(text[:bytes.Index(text, []byte("> at "))], []byte("\n"))
	want := fmt.Sprintf("FILE:%d: step 1, at 2026-01-02T03:04:05Z:\n- cancel �[31mnothing\n\nFILE: 2 steps replayed, 1 decided otherwise today (- recorded, + today)\n", line)
	if out, same := printed(t, text); same || out != want {
		t.Errorf("%v: got %s, want %s", same, out, want)
	}
}

func TestStepsThatAreNotWhole(t *testing.T) {
	out, same := printed(t, []byte("-- transcript --\n> at 2026-01-02T03:04:05Z\n> incomplete \"the pod takes too much\"\n  done\n"))
	if !same || out != "FILE: 0 steps replayed, all decided as they were\nFILE: 1 step could not be replayed: the pod takes too much\n" {
		t.Errorf("%v: %s", same, out)
	}
}

// A step that the core fails on is found among those around it.
func TestStepThatTheCoreFailsOn(t *testing.T) {
	read, err := transcript.Parse(recorded())
	if err != nil {
		t.Fatal(err)
	}
	bad := read.Steps[1]
	bad.Line = 77
	segment := []transcript.Step{read.Steps[0], bad, read.Steps[1], read.Steps[0]}
	decide := decider(func(t *transcript.Transcript) []transcript.Difference {
		for i := range t.Steps {
			if t.Steps[i].Line == 77 {
				panic("index out of range")
			}
		}
		return transcript.Replay(t)
	})
	found, untried := decide.differences(&transcript.Transcript{Steps: segment})
	if len(found) != 1 || found[0].Step != 1 || found[0].Line != 77 || untried != 1 || !strings.Contains(found[0].Now[0], "the core fails on this, which is a bug: index out of range") {
		t.Errorf("%d steps untried: %+v", untried, found)
	}
}

// evicting is a line of the node's transcript, with an outcome.
func evicting(outcome string) []byte {
	return []byte(`{"kind":"EvictionDecision","time":"2026-01-02T03:04:05Z","outcome":` + outcome + `,"now":1000000000,` +
		`"observation":{"At":1000000000,"Readings":{"memory.available":{"Available":5,"Capacity":100}}},` +
		`"settings":{"Thresholds":[{"Signal":"memory.available","Least":{"Value":10}}],"Transition":300000000000,"MaxPodGrace":0},` +
		`"memory":{},"pods":[{"Namespace":"default","Name":"hog","UID":"u","Active":true,"Memory":50}]}` + "\n")
}

// TestNodeReplay: decisions about evictions are repeated, and a damaged file has a line.
func TestNodeReplay(t *testing.T) {
	ends := func(pod string) []byte {
		return evicting(`{"pressure":{"Memory":true},"signal":"memory.available","least":"10","evicts":"default/` + pod +
			`","grace":1000000000,"message":"The node was low on resource: memory. Threshold quantity: 10, available: 5. Signal: memory.available.","observe":2000000000}`)
	}
	if out, same := printed(t, append(ends("hog"), ends("hog")...)); !same || out != "FILE: 2 steps replayed, all decided as they were\n" {
		t.Errorf("%v: %s", same, out)
	}
	out, same := printed(t, append(ends("hog"), ends("bystander")...))
	if same || !strings.HasPrefix(out, "FILE:2: step 2, at 2026-01-02T03:04:05Z:\n- {") || !strings.Contains(out, `\n+ {"`) && !strings.Contains(out, "\n+ {") || !strings.Contains(out, "default/bystander") {
		t.Errorf("%v: %s", same, out)
	}
	for _, bad := range []string{"{}\n", "{\"kind\": 1}", string(ends("hog")) + "x", string(ends("hog")) + "{\"kind\":\"EvictionDecision\",\"unknown\":1}"} {
		if _, err := replay("-", strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "standard input: line ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	if _, err := replay(filepath.Join(dir, "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := replay(dir, nil); err == nil {
		t.Error("a directory was read")
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("-- transcript --\n> at yesterday\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := replay(bad, nil); err == nil || !strings.HasPrefix(err.Error(), bad+": line 2: ") {
		t.Errorf("bad time: %v", err)
	}
	if _, err := replay("-", strings.NewReader("\x1b\x00nonsense")); err == nil || !strings.HasPrefix(err.Error(), "standard input: ") {
		t.Errorf("nonsense: %v", err)
	}
	// The library that reads the archive panics on an empty marker.
	if _, err := replay("-", strings.NewReader("-- --")); err == nil {
		t.Error("an empty marker was taken")
	}
	if _, err := read("-", endless{}, 1<<10); err == nil || !strings.Contains(err.Error(), "longer than 1024 bytes") {
		t.Errorf("endless: %v", err)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// Whatever a file says, it is replayed or refused.
func FuzzReplay(f *testing.F) {
	f.Add(recorded())
	f.Add([]byte("-- transcript --\n> at 2026-01-02T03:04:05Z\n> memory prepared\n> result CreateContainer web of=x failed A \"b\"\n  do StartContainer web\n> +1s\n> inflight none\n"))
	f.Add(evicting("{}"))
	f.Add([]byte("-- pod.yaml --\nspec: {containers: [{}]}\n-- transcript --\n> at 2026-01-02T03:04:05Z\n> pod pod.yaml\n> observed container= \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		result, err := replay("-", bytes.NewReader(text))
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("an error isn't fit to be shown: %q", err)
			}
			return
		}
		var out strings.Builder
		if _, err := result.print(&out, "FILE"); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("what is printed steers the terminal: %q", out.String())
		}
	})
}
