package filewatch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// limit is a sysctl that limits what one user can watch. In a user namespace, its sysctl inspace applies as well.
type limit struct {
	objects         string
	sysctl, inspace string
	// enough is a value that is enough for most machines.
	enough int
}

var (
	maxInstances = limit{"inotify instances", "fs.inotify.max_user_instances", "user.max_inotify_instances", 1024}
	maxWatches   = limit{"inotify watches", "fs.inotify.max_user_watches", "user.max_inotify_watches", 524288}
)

// Explain returns an error with advice for an error of inotify_init(2) or inotify_add_watch(2). The result doesn't wrap
// ENOSPC, because from these calls it doesn't mean that a disk is full.
func Explain(err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return maxWatches.exceeded()
	case errors.Is(err, unix.EMFILE):
		if fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			return errors.Join(maxInstances.exceeded(), unix.Close(fd))
		}
		return fmt.Errorf("inotify_init: %w: raise the limit of open files (LimitNOFILE of a systemd unit, ulimit -n)",
			err)
	}
	return err
}

func (l limit) exceeded() error {
	name, n := l.sysctl, value(l.sysctl)
	if inspace := value(l.inspace); inspace < n {
		name, n = l.inspace, inspace
	}
	shown := strconv.Itoa(n)
	if n == math.MaxInt {
		shown = "unknown"
	}
	return fmt.Errorf("this user's programs use all %s (%s is %s): raise the limit: sysctl -w %s=%d",
		l.objects, name, shown, name, max(l.enough, 2*min(n, math.MaxInt32/4)))
}

// value returns a sysctl's value, a very large number if it can't be read.
func value(sysctl string) int {
	text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(sysctl, ".", "/"))
	n, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if cmp.Or(err, convErr) != nil {
		return math.MaxInt
	}
	return n
}
