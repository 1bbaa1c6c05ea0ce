package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// LogDevice is the device file of the kernel's log (Documentation/ABI/testing/dev-kmsg).
const LogDevice = "/dev/kmsg"

// OOMKill is a process that the OOM killer killed.
type OOMKill struct {
	// PID is the killed process's ID on the host, Process its name.
	PID     int
	Process string
	// Limit means that a control group reached its limit, rather than that the machine ran out of memory.
	Limit bool
}

// Log reads the records that are added to the kernel's log after OpenLog.
type Log struct{ file *os.File }

// OpenLog opens the kernel's log, usually LogDevice, at its end.
func OpenLog(device string) (*Log, error) {
	file, err := os.Open(device)
	if err != nil {
		return nil, fmt.Errorf("open the kernel's log: %w", err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("find the end of the kernel's log %s: %w", device, err), file.Close())
	}
	return &Log{file}, nil
}

// longestRecord exceeds the size of any record in the kernel's log, in bytes.
const longestRecord = 8 << 10

// OOMKills calls onKill for each process that the OOM killer kills until ctx ends, and then closes the log. It calls
// missed when the kernel has overwritten unread records. It returns an error if the log can't be read any further.
func (l *Log) OOMKills(ctx context.Context, onKill func(OOMKill), missed func()) error {
	defer l.file.Close()
	// A read deadline ends a blocked read. Closing the file during a read is avoided.
	stop := context.AfterFunc(ctx, func() { _ = l.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	return oomKills(ctx, l.file, onKill, missed)
}

// oomKills implements OOMKills. Each read from log returns one record.
func oomKills(ctx context.Context, log io.Reader, onKill func(OOMKill), missed func()) error {
	record := make([]byte, longestRecord)
	for {
		n, err := log.Read(record)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.EPIPE):
			missed() // after missed records, the next read returns the oldest remaining one
			continue
		case err != nil:
			return fmt.Errorf("read the kernel's log: %w", err)
		}
		if kill, ok := parseOOMKill(record[:n]); ok {
			onKill(kill)
		}
	}
}

// killedForMemory matches the line that the kernel writes for each process that it kills. Earlier lines
// (oom-kill:constraint=...) aren't used, because the kernel omits them when it logs much. Before Linux 5.1 the line
// contained "Kill process" instead of "Killed process".
var killedForMemory = regexp.MustCompile(
	`^(Memory cgroup out|Out) of memory(?: \([a-z_]+\))?: Kill(?:ed)? process (\d+) \((.*)\),? (?:total-vm:|score )`)

// parseOOMKill parses a record: "PRIORITY,SEQUENCE,TIME,FLAGS;TEXT", followed by lines of properties. It ignores
// records that processes write into the kernel's log, which always have a facility.
func parseOOMKill(record []byte) (OOMKill, bool) {
	head, text, _ := bytes.Cut(record, []byte(";"))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	priority, _, _ := bytes.Cut(head, []byte(","))
	level, err := strconv.ParseUint(string(priority), 10, 32)
	if err != nil || level > 7 {
		return OOMKill{}, false
	}
	m := killedForMemory.FindSubmatch(text)
	if m == nil {
		return OOMKill{}, false
	}
	pid, err := strconv.Atoi(string(m[2]))
	return OOMKill{PID: pid, Process: string(m[3]), Limit: string(m[1]) != "Out"}, err == nil
}
