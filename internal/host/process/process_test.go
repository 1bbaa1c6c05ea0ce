package process_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/process"
)

// Both change the process they run in for good. So the test program, called with
// this variable, is a process of its own that tries one thing and tells about it.
const trialVariable = "OWNPROCESS_TEST_TRIAL"

// trial is what such a process tries.
type trial struct {
	// Powerless takes CAP_SYS_RESOURCE away first.
	Powerless bool
	// OOMScores are set one after the other.
	OOMScores []int
	// OpenFiles is raised to, if it isn't 0.
	OpenFiles uint64
}

// outcome is what it tells.
type outcome struct {
	// Errors has one for each OOM score, OOMScore is what came of them.
	Errors   []string
	OOMScore string
	// Got and Error are RaiseOpenFiles's, Soft the limit that the process has then.
	Got   uint64
	Error string
	Soft  uint64
	// Child are the soft and hard limits of a child, "1024 4096".
	Child string
}

func TestMain(m *testing.M) {
	text := os.Getenv(trialVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	out, err := try(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		os.Exit(1)
	}
}

func try(text string) (outcome, error) {
	var t trial
	var o outcome
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return o, err
	}
	runtime.LockOSThread() // capabilities are a thread's
	if t.Powerless {
		if err := dropPower(); err != nil {
			return o, err
		}
	}
	for _, score := range t.OOMScores {
		o.Errors = append(o.Errors, fmt.Sprint(process.SetOOMScoreAdj(score)))
	}
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return o, err
	}
	o.OOMScore = strings.TrimSpace(string(score))
	if t.OpenFiles == 0 {
		return o, nil
	}
	got, err := process.RaiseOpenFiles(t.OpenFiles)
	o.Got, o.Error = got, fmt.Sprint(err)
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return o, err
	}
	o.Soft = now.Cur
	child, err := exec.Command("sh", "-c", "echo $(ulimit -Sn) $(ulimit -Hn)").Output()
	o.Child = strings.TrimSpace(string(child))
	return o, err
}

func capabilities() (header unix.CapUserHeader, data [2]unix.CapUserData, err error) {
	header = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	err = unix.Capget(&header, &data[0])
	return header, data, err
}

func dropPower() error {
	header, data, err := capabilities()
	if err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	return unix.Capset(&header, &data[0])
}

// powerful reports whether this process, and so its children, has CAP_SYS_RESOURCE.
func powerful(t *testing.T) bool {
	t.Helper()
	_, data, err := capabilities()
	if err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// run runs a trial in a process that starts with these limits of open files.
func run(t *testing.T, soft, hard int, what trial) outcome {
	t.Helper()
	text, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -S -n "$1" && ulimit -H -n "$2" && exec "$0"`, os.Args[0], strconv.Itoa(soft), strconv.Itoa(hard))
	// The race detector would let every process sleep for a second at its end.
	cmd.Env = append(os.Environ(), trialVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var o outcome
	if err := json.Unmarshal(stdout, &o); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	return o
}

func TestOOMScore(t *testing.T) {
	t.Run("raising", func(t *testing.T) {
		if o := run(t, 64, 4096, trial{Powerless: true, OOMScores: []int{901, 1000}}); o.OOMScore != "1000" || o.Errors[0] != "<nil>" || o.Errors[1] != "<nil>" {
			t.Errorf("score %s, says %q", o.OOMScore, o.Errors)
		}
	})
	t.Run("lowering without the capability", func(t *testing.T) {
		o := run(t, 64, 4096, trial{Powerless: true, OOMScores: []int{900, -1000}})
		if o.OOMScore != "900" || !strings.Contains(o.Errors[1], "-1000") || !strings.Contains(o.Errors[1], "takes the capability CAP_SYS_RESOURCE") {
			t.Errorf("score %s, says %q", o.OOMScore, o.Errors)
		}
	})
	t.Run("lowering as far as this process may", func(t *testing.T) {
		o := run(t, 64, 4096, trial{OOMScores: []int{-1000}})
		if worked := o.OOMScore == "-1000" && o.Errors[0] == "<nil>"; worked != powerful(t) {
			t.Errorf("with the capability: %v, but the score is %s and it says %q", powerful(t), o.OOMScore, o.Errors)
		}
	})
	t.Run("out of range", func(t *testing.T) {
		for _, score := range []int{-1001, 1001} {
			if err := process.SetOOMScoreAdj(score); err == nil || !strings.Contains(err.Error(), "-1000..1000") {
				t.Errorf("%d: says %v", score, err)
			}
		}
	})
}

func TestOpenFiles(t *testing.T) {
	const far = 1 << 62
	for name, c := range map[string]struct {
		soft, hard int
		what       trial
		got        uint64
		child, err string
	}{
		// What Go has done suffices: children get what the service manager gave.
		"less than Go took":      {64, 4096, trial{OpenFiles: 100}, 4095, "64 4096", "<nil>"},
		"what Go took":           {64, 4096, trial{OpenFiles: 4095}, 4095, "64 4096", "<nil>"},
		"one more than Go took":  {64, 4096, trial{OpenFiles: 4096}, 4095, "64 4096", "<nil>"},
		"exactly what is there":  {4096, 4096, trial{OpenFiles: 4096}, 4096, "4096 4096", "<nil>"},
		"powerless":              {64, 4096, trial{Powerless: true, OpenFiles: 5000}, 4095, "64 4096", "4095 files open at once, not 5000: its hard limit is 4096"},
		"powerless, Go had none": {4096, 4096, trial{Powerless: true, OpenFiles: 5000}, 4096, "4096 4096", "LimitNOFILE=1024:5001"},
		"powerless and far":      {64, 4096, trial{Powerless: true, OpenFiles: far}, 4095, "64 4096", "CAP_SYS_RESOURCE"},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, run(t, c.soft, c.hard, c.what), c.got, c.child, c.err)
		})
	}
	t.Run("as far as this process may", func(t *testing.T) {
		o, toofar := run(t, 64, 4096, trial{OpenFiles: 5000}), run(t, 64, 4096, trial{OpenFiles: far})
		if !powerful(t) {
			check(t, o, 4095, "64 4096", "CAP_SYS_RESOURCE")
			check(t, toofar, 4095, "64 4096", "CAP_SYS_RESOURCE")
			return
		}
		most, err := os.ReadFile("/proc/sys/fs/nr_open")
		if err != nil {
			t.Fatal(err)
		}
		nrOpen, err := strconv.ParseUint(strings.TrimSpace(string(most)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		check(t, o, 5000, "5000 5000", "<nil>")
		check(t, toofar, nrOpen, fmt.Sprintf("%[1]d %[1]d", nrOpen), "fs.nr_open")
	})
}

func check(t *testing.T, o outcome, got uint64, child, err string) {
	t.Helper()
	if o.Got != got || o.Soft != got || o.Child != child || !strings.Contains(o.Error, err) {
		t.Errorf("%+v: want %d, children with %s, and to be told %s", o, got, child, err)
	}
}
