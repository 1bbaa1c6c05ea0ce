package state_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
)

// Files that Kubernetes 1.36.3 has written.
const (
	cpusFresh  = `{"policyName":"static","defaultCpuSet":"","checksum":3083571066}`
	cpusOfOne  = `{"policyName":"static","defaultCpuSet":"0,2-5","entries":{"uid-1":{"main":"1"}},"checksum":2005335544}`
	cpusOfMore = `{"policyName":"static","defaultCpuSet":"0,2-5","entries":{"uid-0":{"x":"4"},"uid-1":{"b":"2-3","main":"1"}},"checksum":306021867}`

	memoryFresh = `{"policyName":"Static","machineState":{},"checksum":3940083781}`
	memoryOfOne = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":12,"systemReserved":2,"allocatable":10,"reserved":5,"free":5}},"cells":[0]},"1":{"numberOfAssignments":0,"memoryMap":{"hugepages-2Mi":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":1},"memory":{"total":0,"systemReserved":0,"allocatable":0,"reserved":0,"free":0}},"cells":[1]}},"entries":{"uid-1":{"main":[{"numaAffinity":[0,1],"type":"memory","size":5}]}},"checksum":1520347977}`
)

// TestCPUs: the kubelet's files are read, and written the same.
func TestCPUs(t *testing.T) {
	for _, text := range []string{cpusFresh, cpusOfOne, cpusOfMore} {
		c, err := state.DecodeCPUs([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		again := state.CPUManagerCheckpoint{PolicyName: c.Policy, DefaultCPUSet: c.Shared.String(), Entries: map[string]map[string]string{}}
		for uid, containers := range c.Of {
			again.Entries[uid] = map[string]string{}
			for name, set := range containers {
				again.Entries[uid][name] = set.String()
			}
		}
		if got, err := again.Encode(); err != nil || string(got) != text {
			t.Errorf("%s, %v, want %s", got, err, text)
		}
	}
	c, err := state.DecodeCPUs([]byte(cpusOfMore))
	if err != nil || !c.Of["uid-1"]["b"].Equals(cpuset.New(2, 3)) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestOtherCPUs: older and newer forms, and files that can't be used.
func TestOtherCPUs(t *testing.T) {
	for text, want := range map[string]string{
		`{"policyName":"static","defaultCpuSet":"0","entries":{"id-1":"1-2"},"checksum":0}`:                        "",
		`{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":"1"}},"checksum":0}`:                       "",
		`{"policyName":"static","defaultCpuSet":"0","entries":{},"podEntries":{"u":{"cpuSet":"3"}},"checksum":17}`: "",
		`{"policyName":"static","defaultCpuSet":"0","future":7,"entries":{"u":{"c":"1"}},"checksum":0}`:            "",
		`{"policyName":"static","defaultCpuSet":"0","entries":{"id-1":"1-2"},"checksum":17}`:                       "checksum",
		`{"policyName":"static","defaultCpuSet":"0","entries":{"id-1":"1-2","u":{"c":"1"}},"checksum":0}`:          "checksum",
		strings.Replace(cpusOfOne, "2005335544", "2005335545", 1):                                                  "checksum",
		strings.Replace(cpusOfOne, `"1"`, `"2"`, 1):                                                                "checksum",
		`{"policyName":"static","defaultCpuSet":"5-3","checksum":0}`:                                               `the CPUs "5-3"`,
		`{"policyName":"static","defaultCpuSet":"0","entries":{"u":7},"checksum":0}`:                               "cannot unmarshal",
		`{"policyName":"static"`: "unexpected end",
		``:                       "unexpected end",
		`null`:                   "no policyName",
	} {
		c, err := state.DecodeCPUs([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", text, c, err, want)
		}
	}
}

func TestMemory(t *testing.T) {
	for _, text := range []string{memoryFresh, memoryOfOne} {
		c, err := state.DecodeMemory([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := c.Encode()
		if diff := cmp.Diff(text, string(got)); err != nil || diff != "" {
			t.Errorf("%v (-want +got): %s", err, diff)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(memoryOfOne, `"size":5`, `"size":6`, 1):                                           "checksum",
		`{"policyName":"Static","machineState":{"0":null},"checksum":0}`:                                  "NUMA node 0 has no state",
		`{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":null}}},"checksum":0}`:         "no figures of memory",
		`{"policyName":"Static","machineState":{"x":{}},"checksum":0}`:                                    "cannot unmarshal",
		`{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":{"total":-1}}}},"checksum":0}`: "cannot unmarshal",
		`{`: "unexpected end",
	} {
		if c, err := state.DecodeMemory([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", text, c, err, want)
		}
	}
	if _, err := state.DecodeMemory([]byte(`{"policyName":"Static","machineState":{},"podEntries":{"u":{}},"checksum":7}`)); err != nil {
		t.Error(err)
	}
}
