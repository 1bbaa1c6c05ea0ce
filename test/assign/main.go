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

	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/resources/assign/align"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
	"github.com/deckhand-node/deckhand/internal/resources/assign/memory"
	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
)

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "assign:", err)
		os.Exit(1)
	}
}

// question is one question: the member that is set.
type question struct {
	// Machine is what later questions are about.
	Machine *topology.Machine
	// Options are the CPU manager's, from here on.
	Options map[string]string
	// Reserve is how many CPUs are reserved.
	Reserve int
	// ChooseCPUs and HintCPUs ask for CPUs, Merge for NUMA nodes.
	ChooseCPUs, HintCPUs *askCPUs
	Merge                *merge
	// ChooseMemory and HintMemory ask for memory.
	ChooseMemory, HintMemory *askMemory
	// ReuseMemory asks what init containers have left.
	ReuseMemory *reuse
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
	Text string `json:",omitempty"`
	// OK says that there is a choice.
	OK     bool
	Set    []int        `json:",omitempty"`
	Hints  []align.Hint `json:",omitempty"`
	Hint   align.Hint
	Blocks []state.Block     `json:",omitempty"`
	State  state.NUMANodeMap `json:",omitempty"`
	Reused [][]state.Block
	// Misfits are how many blocks don't fit.
	Misfits int                            `json:",omitempty"`
	CPUs    *cpus                          `json:",omitempty"`
	Memory  *state.MemoryManagerCheckpoint `json:",omitempty"`
}

// cpus is a state.CPUs in text form.
type cpus struct {
	Policy, Shared string
	Of             map[string]map[string]string
}

type askCPUs struct {
	Free, Reusable []int
	Count          int
	Near           align.Mask
}

func (q *askCPUs) ask() cpu.Ask {
	return cpu.Ask{Count: q.Count, Near: q.Near, Reusable: cpuset.New(q.Reusable...)}
}

type merge struct {
	Policy  align.Policy
	Closest bool
	Wishes  []align.Wish
}

type askMemory struct {
	Reserved map[int]memory.Amounts
	Entries  state.ContainerMemoryAssignments
	Near     align.Mask
	memory.Ask
}

type reuse struct {
	Later []state.Block
	Of    [][]state.Block
}

// subject is what questions are about.
type subject struct {
	machine *topology.Machine
	policy  cpu.Policy
}

func serve(in io.Reader, out io.Writer) error {
	questions, buffer := json.NewDecoder(in), bufio.NewWriter(out)
	answers := json.NewEncoder(buffer)
	s := subject{machine: &topology.Machine{}}
	for {
		var q question
		if err := questions.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		a, err := s.answer(&q)
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

func (s *subject) answer(q *question) (a answer, err error) {
	var text []byte
	switch {
	case q.Machine != nil:
		s.machine = q.Machine
	case q.Options != nil:
		s.policy, err = cpu.PolicyOf(s.machine, q.Options)
	case q.Reserve > 0:
		set, ok := s.policy.Reserve(s.machine, q.Reserve)
		a.Set, a.OK = set.List(), ok
	case q.ChooseCPUs != nil:
		set, ok := s.policy.Choose(s.machine, cpuset.New(q.ChooseCPUs.Free...), q.ChooseCPUs.ask())
		a.Set, a.OK = set.List(), ok
	case q.HintCPUs != nil:
		free := cpuset.New(append(q.HintCPUs.Free, q.HintCPUs.Reusable...)...)
		a.Hints = s.policy.Hints(s.machine, free, q.HintCPUs.Count)
	case q.Merge != nil:
		g := align.Merger{Policy: q.Merge.Policy, Closest: q.Merge.Closest, Nodes: s.machine.Nodes}
		a.Hint, a.OK = g.Merge(q.Merge.Wishes)
	case q.ChooseMemory != nil:
		u, misfits := memory.Compute(s.machine, q.ChooseMemory.Reserved, q.ChooseMemory.Entries)
		a.Blocks, a.OK = u.Choose(q.ChooseMemory.Ask, q.ChooseMemory.Near)
		a.State, a.Misfits = u.State(), len(misfits)
	case q.HintMemory != nil:
		u, _ := memory.Compute(s.machine, q.HintMemory.Reserved, q.HintMemory.Entries)
		a.Hints = u.Hints(q.HintMemory.Ask)
	case q.ReuseMemory != nil:
		a.Reused = memory.Reuse(q.ReuseMemory.Later, q.ReuseMemory.Of)
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
