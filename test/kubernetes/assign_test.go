package kubelet

import (
	"bufio"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// rounds multiplies how many random cases the kubelet and deckhand are compared in.
var rounds = flag.Int("rounds", 1, "how many times as many random machines are compared; 250 for all that have to")

// deckhand is a program of deckhand's module that answers questions to internal/resources/assign. The modules have
// their own versions of the same libraries, so that they can't be one program.
type deckhand struct {
	t         *testing.T
	questions *json.Encoder
	answers   *json.Decoder
}

func startDeckhand(t *testing.T) *deckhand {
	program := filepath.Join(t.TempDir(), "assign")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./test/assign")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build test/assign: %v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program)
	run.Stderr = os.Stderr
	in, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = run.Wait() // killed by the test's context if it doesn't end
	})
	return &deckhand{t, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))}
}

// ask asks a question, and reads the answer into a value. It returns the error that deckhand says there is.
func (d *deckhand) ask(question map[string]any, answer any) string {
	d.t.Helper()
	if err := d.questions.Encode(question); err != nil {
		d.t.Fatal(err)
	}
	var text json.RawMessage
	if err := d.answers.Decode(&text); err != nil {
		d.t.Fatal(err)
	}
	var fault struct{ Error string }
	if err := json.Unmarshal(text, &fault); err != nil {
		d.t.Fatal(err)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		d.t.Fatalf("%s: %v", text, err)
	}
	return fault.Error
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAssign compares deckhand with the kubelet in choosing CPUs and memory.
func TestAssign(t *testing.T) {
	d := startDeckhand(t)
	for name, compare := range map[string]func(*testing.T, *deckhand, *rand.Rand){
		"files of CPUs":   compareCPUFiles,
		"files of memory": compareMemoryFiles,
		"memory":          compareMemory,
		"merges":          compareMerges,
		"CPUs":            compareCPUs,
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("the seed is %d", seed)
			compare(t, &deckhand{t, d.questions, d.answers}, rand.New(rand.NewPCG(seed, 0)))
		})
	}
}
