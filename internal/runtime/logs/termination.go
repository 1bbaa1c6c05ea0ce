package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// The limits are those of the API's comments on the two fields. That the last
// bytes of the file count, rather than the first, is what the kubelet does.
const (
	fileBytes = 4096
	logBytes  = 2048
	logLines  = 80
	// margin is how many more bytes are read, so that a character isn't taken for a broken
	// one because it begins before the limit.
	margin = utf8.UTFMax - 1
)

// Logs reads container logs.
type Logs interface {
	// Last returns the text of the last lines of an instance's log, and of that no
	// more than the last size bytes; fs.ErrNotExist (wrapped) if there is no log.
	Last(l Log, attempt, lines, size int) ([]byte, error)
}

// MessageReader reads the termination messages of v1.Container's terminationMessagePath and
// terminationMessagePolicy, and no more of a file than counts. Its methods may be called
// concurrently.
type MessageReader struct {
	podsDir string
	logs    Logs
	log     logr.Logger
}

// NewMessageReader returns a reader. podsDir is the absolute path of the directory that holds the
// pods' directories: a file elsewhere isn't one that was made for a message.
func NewMessageReader(podsDir string, logs Logs, log logr.Logger) *MessageReader {
	return &MessageReader{podsDir: podsDir, logs: logs, log: log}
}

// Message returns what an ended instance left as its termination message, as valid
// UTF-8 of at most 4096 bytes; empty if nothing. Where the policy asks for it, the
// end of the log stands in for an empty file of an instance that failed.
//
// What can't be read is logged and counts as empty. It reads a few KiB and never
// waits for anybody but the disk.
func (r *MessageReader) Message(who translate.Identity, c *pod.Container) string {
	b, err := r.file(who, c)
	r.complain(err, "termination message", who, c)
	if len(b) > 0 {
		return text(b, fileBytes)
	}
	// One that never ran has written no log: the runtime says why.
	if c.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError || c.ExitCode == 0 ||
		c.StartedAt.IsZero() {
		return ""
	}
	l := Log{Namespace: who.Namespace, Pod: who.Name, UID: who.UID, Container: c.Name}
	b, err = r.logs.Last(l, c.Attempt, logLines, logBytes+margin)
	r.complain(err, "log in place of a termination message", who, c)
	return text(b, logBytes)
}

// complain logs an error, once for each end of an instance. What is gone is no error:
// it went with its pod.
func (r *MessageReader) complain(err error, what string, who translate.Identity, c *pod.Container) {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	r.log.Info("Can't read why a container ended", "source", what, "pod", klog.KRef(who.Namespace, who.Name),
		"containerName", c.Name, "containerID", c.ID, "err", err.Error())
}

// file returns the end of the message's file.
func (r *MessageReader) file(who translate.Identity, c *pod.Container) ([]byte, error) {
	path := c.TerminationMessagePath
	if path == "" {
		return nil, nil
	}
	// What is mounted there may be a volume of the pod's own, which may lead anywhere on
	// the host. No pod can write to this directory, or to those on the way to it.
	if filepath.Dir(path) != filepath.Join(r.podsDir, string(who.UID), "containers", c.Name) {
		return nil, fmt.Errorf("%s is mounted in its place", path)
	}
	// Without O_NONBLOCK, opening a pipe would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	size := min(info.Size(), fileBytes+margin)
	b := make([]byte, size)
	n, err := f.ReadAt(b, info.Size()-size)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// text is b as valid UTF-8, and of that no more than the last limit bytes.
func text(b []byte, limit int) string {
	s := strings.ToValidUTF8(string(b), string(utf8.RuneError))
	from := max(0, len(s)-limit)
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:]
}
