package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
)

func TestParseOOMKill(t *testing.T) {
	kill := func(pid int, process string, limit bool) *OOMKill { return &OOMKill{pid, process, limit} }
	const end = " total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:1000\n"
	for record, want := range map[string]*OOMKill{
		"3,339,5140900,-;Out of memory: Killed process 12 (a b)" + end:                                                        kill(12, "a b", false),
		"3,339,5140900,-;Out of memory (oom_kill_allocating_task): Killed process 12 (web)" + end:                             kill(12, "web", false),
		"3,339,5140900,-,caller=T12;Out of memory: Killed process 12 (x) total-vm:)" + end:                                    kill(12, "x) total-vm:", false),
		"3,1,1,-;Out of memory: Kill process 12 (web) score 900 or sacrifice child\n SUBSYSTEM=x\n":                           kill(12, "web", false),
		"3,339,5140900,-;Memory cgroup out of memory: Killed process 12 (web)" + end:                                          kill(12, "web", true),
		"6,338,5140900,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/,task=web,pid=12,uid=0\n": nil,
		"3,339,5140900,-;Out of memory and no killable processes...\n":                                                        nil,
		"3,339,5140900,-;x Out of memory: Killed process 12 (web)" + end:                                                      nil,
		"3,339,5140900,-;Out of memory: Killed process 99999999999999999999 (web)" + end:                                      nil,
		"6,1,1,-;x\n Out of memory: Killed process 12 (web)" + end:                                                            nil,
		// Written by a process: facility 1.
		"11,339,5140900,-;Out of memory: Killed process 12 (web)" + end: nil,
		"-1,339,5140900,-;Out of memory: Killed process 12 (web)" + end: nil,
		"": nil, ";": nil, "3": nil,
	} {
		got, ok := parseOOMKill([]byte(record))
		if ok != (want != nil) || ok && got != *want {
			t.Errorf("%q: %+v, %t", record, got, ok)
		}
	}
}

// TestOOMKills has the kernel kill two processes at the limit of their control group. What was killed before the log was opened isn't reported,
// nor what only pretends to be the kernel's.
func TestOOMKills(t *testing.T) {
	group, err := manager.New(&cgroups.Cgroup{Path: fmt.Sprintf("/deckhand-test-oom-%d", os.Getpid()),
		Resources: &cgroups.Resources{Memory: 16 << 20, SkipDevices: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Destroy(); err != nil {
			t.Error(err)
		}
	})
	const pretended = "deckhand-test"
	ctx, cancel := context.WithCancel(t.Context())
	kills, ended := make(chan OOMKill, 8), make(chan error, 2)
	watch := func() {
		log, err := OpenLog(LogDevice)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			ended <- log.OOMKills(ctx, func(k OOMKill) {
				select {
				case kills <- k:
				case <-ctx.Done():
				}
			}, func() {}) // a busy machine may log more than is read
		}()
	}
	// The log is the machine's: what other tests have killed is in it, too.
	before := map[int]bool{}
	expect := func(pid, watchers int) {
		t.Helper()
		for limit := time.After(time.Minute); watchers > 0; {
			select {
			case got := <-kills:
				switch {
				case got.Process == pretended || before[got.PID]:
					t.Errorf("reported %+v", got)
				case got.PID == pid:
					watchers--
					if got.Process != "tail" || !got.Limit {
						t.Errorf("reported %+v", got)
					}
				}
			case err := <-ended:
				t.Fatalf("the watch ended with %v", err)
			case <-limit:
				t.Fatalf("process %d wasn't reported in time", pid)
			}
		}
		before[pid] = true // for all that is told from here on
	}

	watch()
	if err := os.WriteFile(LogDevice, []byte("<3>Out of memory: Killed process 1 ("+pretended+") total-vm:1kB\n"), 0); err != nil {
		t.Fatal(err)
	}
	expect(runOutOfMemory(t, group), 1)
	watch()
	expect(runOutOfMemory(t, group), 2)
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// runOutOfMemory has a process in the group use memory until the kernel kills it, and returns its number. Outside of it, it couldn't use much.
func runOutOfMemory(t *testing.T, group cgroups.Manager) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", "ulimit -v 500000; read go; exec tail /dev/zero")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err = group.Apply(cmd.Process.Pid); err == nil {
		err = group.Set(&cgroups.Resources{Memory: 16 << 20, SkipDevices: true})
	}
	// On to swap it could use more.
	for _, file := range []string{"memory.swappiness", "memory.swap.max"} { // whichever there is
		if e := cgroups.WriteFile(group.Path("memory"), file, "0"); err == nil && !errors.Is(e, fs.ErrNotExist) {
			err = e
		}
	}
	if err == nil {
		_, err = in.Write([]byte("go\n"))
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("it ended with %v", err)
	}
	return cmd.Process.Pid
}

// played is a log of which some was overwritten, and that ends.
type played struct{ reads []any }

func (p *played) Read(into []byte) (int, error) {
	if len(p.reads) == 0 {
		return 0, io.EOF
	}
	next := p.reads[0]
	p.reads = p.reads[1:]
	if err, ok := next.(error); ok {
		return 0, err
	}
	return copy(into, next.(string)), nil
}

// TestOverwrittenLog: what is left is read, and that some is missing is told.
func TestOverwrittenLog(t *testing.T) {
	var told []string
	log := &played{[]any{&fs.PathError{Op: "read", Path: LogDevice, Err: unix.EPIPE}, "3,339,5140900,-;Out of memory: Killed process 12 (web) total-vm:1kB\n"}}
	err := oomKills(t.Context(), log, func(k OOMKill) { told = append(told, k.Process) }, func() { told = append(told, "missed") })
	if !errors.Is(err, io.EOF) || strings.Join(told, " ") != "missed web" {
		t.Errorf("told %q, and ended with %v", told, err)
	}
}

func TestNoKernelLog(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kmsg")
	if log, err := OpenLog(missing); err == nil || log != nil || err.Error() != "open the kernel's log: open "+missing+": no such file or directory" {
		t.Errorf("%v, %v", log, err)
	}
}
