// Command assign answers questions to the packages of internal/resources/assign: one JSON text each from standard input
// to standard output. The tests of test/kubernetes, a module of its own, compare the answers with the kubelet's.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
)

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "assign:", err)
		os.Exit(1)
	}
}

// question is one question: the member that is set, about the machine of the last Machine.
type question struct {
	// EncodeCPUs and EncodeMemory ask for the text of a file.
	EncodeCPUs   *state.CPUManagerCheckpoint
	EncodeMemory *state.MemoryManagerCheckpoint
	// DecodeCPUs and DecodeMemory are the texts of files.
	DecodeCPUs, DecodeMemory string
}

type answer struct {
	// Error says that the question has no answer.
	Error string `json:",omitempty"`
	// Text is a file.
	Text   string                         `json:",omitempty"`
	CPUs   *cpus                          `json:",omitempty"`
	Memory *state.MemoryManagerCheckpoint `json:",omitempty"`
}

// cpus is a state.CPUs in text form.
type cpus struct {
	Policy, Shared string
	Of             map[string]map[string]string
}

func serve(in io.Reader, out io.Writer) error {
	questions, buffer := json.NewDecoder(in), bufio.NewWriter(out)
	answers := json.NewEncoder(buffer)
	for {
		var q question
		if err := questions.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		a, err := q.answer()
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
		if err := buffer.Flush(); err != nil {
			return err
		}
	}
}

func (q *question) answer() (a answer, err error) {
	var text []byte
	switch {
	case q.EncodeCPUs != nil:
		text, err = q.EncodeCPUs.Encode()
		a.Text = string(text)
	case q.EncodeMemory != nil:
		text, err = q.EncodeMemory.Encode()
		a.Text = string(text)
	case q.DecodeCPUs != "":
		var c *state.CPUs
		if c, err = state.DecodeCPUs([]byte(q.DecodeCPUs)); err == nil {
			a.CPUs = &cpus{c.Policy, c.Shared.String(), texts(c.Of)}
		}
	case q.DecodeMemory != "":
		a.Memory, err = state.DecodeMemory([]byte(q.DecodeMemory))
	default:
		err = fmt.Errorf("the question asks nothing")
	}
	return a, err
}

func texts(of map[string]map[string]cpuset.CPUSet) map[string]map[string]string {
	out := map[string]map[string]string{}
	for uid, containers := range of {
		out[uid] = map[string]string{}
		for name, set := range containers {
			out[uid][name] = set.String()
		}
	}
	return out
}
