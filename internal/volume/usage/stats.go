package usage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// Stats is how full a claim's file system is, as statfs(2) has it. A volume that is a directory of a larger file
// system has what that has.
type Stats struct {
	Namespace, Claim string
	// In bytes. What is available is what users other than root may still write.
	Capacity, Available, Used uint64
	// File systems that make inodes as they need them have none here.
	Inodes, InodesFree, InodesUsed uint64
}

// StatsConfig is what a StatsReader works with.
type StatsConfig struct {
	// Volumes lists all mounted volumes. It must not block.
	Volumes func() []volume.Instance
	// Statfs asks a file system; nil for statfs(2). It may never return.
	Statfs func(path string, st *unix.Statfs_t) error
	// Took is called with how long a file system took to answer; nil for nobody.
	Took func(time.Duration)
}

const (
	// fresh is how long an answer is good for.
	fresh = 10 * time.Second
	// patience is how long Stats waits for answers altogether.
	patience = time.Second
)

// StatsReader asks the file systems of mounted claims, and others, how full they are. One that doesn't answer
// holds up nobody: it is left out until it does. Its methods may be called by many goroutines.
type StatsReader struct {
	volumes func() []volume.Instance
	answers *Answers[unix.Statfs_t]
}

// NewStatsReader returns a reader.
func NewStatsReader(c StatsConfig) *StatsReader {
	if c.Statfs == nil {
		c.Statfs = statfs
	}
	if c.Took == nil {
		c.Took = func(time.Duration) {}
	}
	return &StatsReader{c.Volumes, NewAnswers(fresh, func(path string) (st unix.Statfs_t, err error) {
		began := time.Now()
		if err = c.Statfs(path, &st); err == nil {
			c.Took(time.Since(began))
		}
		return st, err
	})}
}

func statfs(path string, st *unix.Statfs_t) error {
	for {
		if err := unix.Statfs(path, st); err != unix.EINTR {
			return err
		}
	}
}

// Stats returns what is known of every mounted claim, each once, by namespace and name. It takes at most a
// second; what doesn't answer by then, or answers with an error, is left out. Answers may be 10 seconds old.
func (r *StatsReader) Stats() []Stats {
	claims := mounted(r.volumes())
	paths := make([]string, len(claims))
	for i := range claims {
		paths[i] = claims[i].path
	}
	var list []Stats
	for i, answer := range r.FileSystems(context.Background(), paths) {
		if answer.Err == nil {
			list = append(list, claims[i].stats(&answer.Value))
		}
	}
	return list
}

// errNoAnswer is what is known of a file system that doesn't answer.
var errNoAnswer = errors.New("the file system doesn't answer")

// FileSystems returns what the file systems say that paths are on, as Stats does; with an error, nothing is known of
// one now.
func (r *StatsReader) FileSystems(ctx context.Context, paths []string) []Answer[unix.Statfs_t] {
	list := r.answers.Get(ctx, paths, patience, patience)
	for i := range list {
		if list[i].Err == nil && time.Since(list[i].At) > fresh+patience { // what it said before it stopped answering
			list[i].Err = errNoAnswer
		}
	}
	return list
}

// Close waits until no question is under way, or ctx ends: then it says how many file systems don't answer. No
// question is asked after it.
func (r *StatsReader) Close(ctx context.Context) error { return r.answers.Close(ctx) }

// claim is a mounted claim.
type claim struct{ namespace, name, path string }

// mounted lists the claims among the volumes that have a file system, each once.
func mounted(volumes []volume.Instance) []claim {
	var list []claim
	for i := range volumes {
		v := &volumes[i]
		if v.Spec.Claim == nil || v.Spec.Block() {
			continue
		}
		path := v.Mounted.Path
		if path == "" {
			path = v.Dir
		}
		list = append(list, claim{v.Spec.Claim.Namespace, v.Spec.Claim.Name, path})
	}
	slices.SortFunc(list, func(a, b claim) int {
		return strings.Compare(a.namespace+"/"+a.name+"/"+a.path, b.namespace+"/"+b.name+"/"+b.path)
	})
	return slices.CompactFunc(list, func(a, b claim) bool { return a.namespace == b.namespace && a.name == b.name })
}

func (c claim) stats(st *unix.Statfs_t) Stats {
	s := StatsOf(st)
	s.Namespace, s.Claim = c.namespace, c.name
	return s
}

// StatsOf is how full a file system is, of no claim.
func StatsOf(st *unix.Statfs_t) Stats {
	// Sizes are in fragments where a file system has them.
	size := uint64(st.Frsize)
	if size == 0 {
		size = uint64(st.Bsize)
	}
	return Stats{
		Capacity:  st.Blocks * size,
		Available: st.Bavail * size,
		Used:      (st.Blocks - min(st.Bfree, st.Blocks)) * size,
		Inodes:    st.Files, InodesFree: st.Ffree, InodesUsed: st.Files - min(st.Ffree, st.Files),
	}
}
