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

// The limits of a termination message are those in the API comments of terminationMessagePath and
// terminationMessagePolicy. Like the kubelet, the reader uses the last bytes of the file rather than the first.
const (
	fileBytes = 4096
	logBytes  = 2048
	logLines  = 80
	// margin is the number of bytes that are read in addition to the limit, so that a character that starts before
	// the limit isn't cut into invalid UTF-8.
	margin = utf8.UTFMax - 1
)

// Logs reads container logs.
type Logs interface {
	// Last returns the text of the last lines of an instance's log, at most the last size bytes; fs.ErrNotExist
	// (wrapped) if there is no log.
	Last(l Log, attempt, lines, size int) ([]byte, error)
}

// MessageReader reads termination messages according to v1.Container's terminationMessagePath and
// terminationMessagePolicy. Its methods may be called concurrently.
type MessageReader struct {
	podsDir string
	logs    Logs
	log     logr.Logger
}

// NewMessageReader returns a reader. podsDir is the absolute path of the directory that has the pods' directories:
// files elsewhere weren't created for termination messages.
func NewMessageReader(podsDir string, logs Logs, log logr.Logger) *MessageReader {
	return &MessageReader{podsDir: podsDir, logs: logs, log: log}
}

// Message returns the termination message of an ended instance, as valid UTF-8 of at most 4096 bytes; empty if it
// has none. If the policy is FallbackToLogsOnError, the file is empty and the instance failed, it returns the end
// of the log.
//
// Read errors are logged and count as an empty message. Message reads a few KiB and blocks only on disk I/O.
func (r *MessageReader) Message(identity translate.Identity, c *pod.Container) string {
	b, err := r.file(identity, c)
	r.complain(err, "termination message", identity, c)
	if len(b) > 0 {
		return text(b, fileBytes)
	}
	// An instance that never started has no log: the runtime reports the reason.
	if c.TerminationMessagePolicy != v1.TerminationMessageFallbackToLogsOnError || c.ExitCode == 0 ||
		c.StartedAt.IsZero() {
		return ""
	}
	l := Log{Namespace: identity.Namespace, Pod: identity.Name, UID: identity.UID, Container: c.Name}
	b, err = r.logs.Last(l, c.Attempt, logLines, logBytes+margin)
	r.complain(err, "log in place of a termination message", identity, c)
	return text(b, logBytes)
}

// complain logs an error, once for each end of an instance. A missing file isn't an error: it was removed with its
// pod.
func (r *MessageReader) complain(err error, what string, identity translate.Identity, c *pod.Container) {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	r.log.Info("Can't read why a container ended", "source", what, "pod", klog.KRef(identity.Namespace, identity.Name),
		"containerName", c.Name, "containerID", c.ID, "err", err.Error())
}

// file returns the end of the termination message file.
func (r *MessageReader) file(identity translate.Identity, c *pod.Container) ([]byte, error) {
	path := c.TerminationMessagePath
	if path == "" {
		return nil, nil
	}
	// The path may be mounted from a volume of the pod, which may lead anywhere on the host. No pod can write to
	// the containers directory or its parents.
	if filepath.Dir(path) != filepath.Join(r.podsDir, string(identity.UID), "containers", c.Name) {
		return nil, fmt.Errorf("%s is mounted in its place", path)
	}
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
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

// text returns b as valid UTF-8, at most the last limit bytes.
func text(b []byte, limit int) string {
	s := strings.ToValidUTF8(string(b), string(utf8.RuneError))
	from := max(0, len(s)-limit)
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:]
}
