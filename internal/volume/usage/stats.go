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

// Stats is the usage of a claim's file system according to statfs(2). For a volume that is a directory of a larger
// file system, it is that file system's usage.
type Stats struct {
	Namespace, Claim string
	// In bytes. Available is the space for users other than root.
	Capacity, Available, Used uint64
	// File systems that allocate inodes dynamically report none.
	Inodes, InodesFree, InodesUsed uint64
}

// StatsConfig configures a StatsReader.
type StatsConfig struct {
	// Volumes lists all mounted volumes. It must not block.
	Volumes func() []volume.Instance
	// Statfs queries a file system; nil for statfs(2). It may never return.
	Statfs func(path string, st *unix.Statfs_t) error
	// Took is called with the duration of each successful query; it may be nil.
	Took func(time.Duration)
}

const (
	// fresh is how long a result is reused.
	fresh = 10 * time.Second
	// patience is how long Stats waits for results altogether.
	patience = time.Second
)

// StatsReader reads the usage of file systems, of mounted claims and others. A file system that hangs delays
// nobody: it is left out until it responds. Its methods are safe for concurrent use.
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

// Stats returns the usage of every mounted claim once, by namespace and name. It takes at most a second; file
// systems that don't respond by then, or fail, are left out. Results may be 10 seconds old.
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

// errNoAnswer is the error for a file system that doesn't respond.
var errNoAnswer = errors.New("the file system doesn't answer")

// FileSystems returns the usage of the file systems of these paths, with the delays of Stats. If there is no
// current result, the Answer has an error.
func (r *StatsReader) FileSystems(ctx context.Context, paths []string) []Answer[unix.Statfs_t] {
	list := r.answers.Get(ctx, paths, patience, patience)
	for i := range list {
		if list[i].Err == nil && time.Since(list[i].At) > fresh+patience { // it hangs since then
			list[i].Err = errNoAnswer
		}
	}
	return list
}

// Close waits until no query is running, or ctx ends: its error then lists the paths whose file systems don't
// respond. No query starts after it.
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

// StatsOf converts a result of statfs(2), for no claim.
func StatsOf(st *unix.Statfs_t) Stats {
	// Sizes are in fragments, if the file system has those.
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
