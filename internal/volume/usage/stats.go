package usage

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// Stats is the usage of the file system that a claim's volume is on, according to statfs(2). If the volume is only a
// directory of the file system, the usage includes other files.
type Stats struct {
	Namespace, Claim string
	// Capacity, Available and Used are in bytes. Available is the free space that users other than root may use.
	Capacity, Available, Used uint64
	// Inodes, InodesFree and InodesUsed are numbers of inodes. They are 0 for file systems that allocate inodes
	// dynamically.
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
	// Fresh is the age up to which Stats reuses a result.
	Fresh = 10 * time.Second
	// patience is how long Stats and FileSystems wait for all results together.
	patience = time.Second
)

// StatsReader reads the usage of file systems, those of mounted claims and others. A call doesn't wait for a file
// system that hangs: Stats leaves it out until it responds. Its methods are safe for concurrent use.
type StatsReader struct {
	volumes func() []volume.Instance
	answers *Answers[unix.Statfs_t]
}

// NewStatsReader returns a StatsReader. Close has to be called when it isn't needed any more.
func NewStatsReader(c StatsConfig) *StatsReader {
	if c.Statfs == nil {
		c.Statfs = statfs
	}
	if c.Took == nil {
		c.Took = func(time.Duration) {}
	}
	return &StatsReader{c.Volumes, NewAnswers(Fresh, func(path string) (st unix.Statfs_t, err error) {
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

// Stats returns the usage of every mounted claim once, sorted by namespace and name. It takes at most a second; file
// systems that don't respond by then, or fail, are left out. Results may be 10 seconds old.
func (r *StatsReader) Stats() []Stats {
	claims := mounted(r.volumes())
	paths := make([]string, len(claims))
	for i := range claims {
		paths[i] = claims[i].path
	}
	var list []Stats
	for i, answer := range r.FileSystems(context.Background(), paths, Fresh) {
		if answer.Err == nil {
			list = append(list, claims[i].stats(&answer.Value))
		}
	}
	return list
}

// errNoAnswer is the error for a file system that doesn't respond.
var errNoAnswer = errors.New("the file system doesn't answer")

// FileSystems returns the usage of the file systems of these paths, in the same order. Results that are at most maxAge
// old are reused. Like Stats, it takes at most a second. If there is no such result for a path by then, its Answer has
// an error.
func (r *StatsReader) FileSystems(ctx context.Context, paths []string,
	maxAge time.Duration) []Answer[unix.Statfs_t] {
	oldest := time.Now().Add(-maxAge)
	list := r.answers.GetWithin(ctx, paths, maxAge, patience, patience)
	for i := range list {
		if list[i].Err == nil && list[i].At.Before(oldest) { // it hasn't responded since
			list[i].Err = errNoAnswer
		}
	}
	return list
}

// Close waits until no query is running. If ctx ends before, it returns an error that lists the paths whose file
// systems don't respond. After Close, no query is started.
func (r *StatsReader) Close(ctx context.Context) error { return r.answers.Close(ctx) }

// claim is a mounted claim.
type claim struct{ namespace, name, path string }

// mounted lists the claims of the volumes that aren't block devices, each claim once.
func mounted(volumes []volume.Instance) []claim {
	var list []claim
	for i := range volumes {
		v := &volumes[i]
		if v.Spec.Claim == nil || v.Spec.Block() {
			continue
		}
		list = append(list, claim{v.Spec.Claim.Namespace, v.Spec.Claim.Name, v.Path()})
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

// StatsOf converts a result of statfs(2). Namespace and Claim of the result are empty. Whatever a network or FUSE file
// system reports, the free part isn't more than the whole.
func StatsOf(st *unix.Statfs_t) Stats {
	// Blocks, Bavail and Bfree are in units of the fragment size if the file system reports one, else of the block
	// size.
	size := uint64(max(st.Frsize, 0))
	if size == 0 {
		size = uint64(max(st.Bsize, 0))
	}
	bytes := func(blocks uint64) uint64 {
		if high, low := bits.Mul64(blocks, size); high == 0 {
			return low
		}
		return math.MaxUint64
	}
	available := st.Bavail
	if available > math.MaxInt64 { // negative: more than the blocks for other users than root are in use (statvfs(3))
		available = 0
	}
	return Stats{
		Capacity:  bytes(st.Blocks),
		Available: bytes(min(available, st.Blocks)),
		Used:      bytes(st.Blocks - min(st.Bfree, st.Blocks)),
		Inodes:    st.Files, InodesFree: min(st.Ffree, st.Files), InodesUsed: st.Files - min(st.Ffree, st.Files),
	}
}

// Space is the size of a file system and its free part. Values that a file system doesn't have are nil: btrfs has no
// fixed number of inodes, and some file systems have no blocks.
type Space struct {
	// Capacity and Available are in bytes. Available is the free space that users other than root may use.
	Capacity, Available *uint64
	Inodes, InodesFree  *uint64
}

// SpaceOf converts a result of statfs(2).
func SpaceOf(st *unix.Statfs_t) Space {
	var space Space
	s := StatsOf(st)
	if s.Capacity > 0 {
		space.Capacity, space.Available = &s.Capacity, &s.Available
	}
	if s.Inodes > 0 {
		space.Inodes, space.InodesFree = &s.Inodes, &s.InodesFree
	}
	return space
}
