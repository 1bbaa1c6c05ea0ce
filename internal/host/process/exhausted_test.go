package process_test

import (
	"fmt"
	"io/fs"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/process"
)

// TestExhausted: the texts are those of runc 1.5 and Go 1.26 in a control group at its pids.max. What a
// pod can write into them doesn't count.
func TestExhausted(t *testing.T) {
	const command = "/\"a\\\": \nfork/exec x: resource temporarily unavailable"
	for text, want := range map[string]bool{
		(&fs.PathError{Op: "fork/exec", Path: "/opt/cni/bin/bridge", Err: unix.EAGAIN}).Error():                                     true,
		"rpc error: code = Unknown desc = runc run failed: unable to start init: fork/exec /proc/self/fd/6: " + unix.EAGAIN.Error(): true,
		"runc init error(s): nsexec-1[9566]: unable to spawn stage-2: Resource temporarily unavailable; nsexec-0[9565]: failed":     true,
		"exit status 2: runtime/cgo: pthread_create failed: Resource temporarily unavailable":                                       true,
		"runtime: failed to create new OS thread (have 2 already; errno=11)":                                                        true,
		fmt.Sprintf("dial unix /run/containerd.sock: connect: %s", unix.EAGAIN):                                                     false,
		(&fs.PathError{Op: "openat2", Path: "x", Err: unix.EAGAIN}).Error():                                                         false,
		fmt.Sprintf("exec: %q: executable file not found in $PATH: unknown", command):                                               false,
		fmt.Sprintf("exec: %q: stat %s: no such file or directory: unknown", command, command):                                      false,
		fmt.Sprintf("command %q exited with 1", "sh -c '"+command+"'"):                                                              false,
		fmt.Sprintf("run %q in the container: fork/exec /x: %s", "sh", unix.EAGAIN):                                                 true,
		"fork/exec /bin/x: no such file or directory":                                                                               false,
	} {
		if got := process.Exhausted(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
