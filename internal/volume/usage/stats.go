package usage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// StatsReader asks the file systems of mounted claims how full they are. One that doesn't answer
// holds up nobody: it is left out until it does. Its methods may be called by many goroutines.
type StatsReader struct {
	StatsConfig
	asking sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// known holds what was asked, by path.
	known map[string]*question
}

// question is what is known of one file system.
type question struct {
	// answered is closed when the answer is there. Until then nobody asks again.
	answered chan struct{}
	// late says that it was waited for once in vain: it isn't waited for again.
	late atomic.Bool
	// When it was answered, and how.
	at  time.Time
	st  unix.Statfs_t
	err error
}

// NewStatsReader returns a reader.
func NewStatsReader(c StatsConfig) *StatsReader {
	if c.Statfs == nil {
		c.Statfs = statfs
	}
	if c.Took == nil {
		c.Took = func(time.Duration) {}
	}
	return &StatsReader{StatsConfig: c, known: map[string]*question{}}
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
	claims := mounted(r.Volumes())
	questions := r.ask(claims)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	late := false
	var list []Stats
	for i, q := range questions {
		if q == nil {
			continue
		}
		if !late && !q.late.Load() {
			select {
			case <-q.answered:
			case <-timer.C:
				late = true
			}
		}
		switch {
		case !q.done():
			q.late.Store(true)
		case q.err == nil:
			list = append(list, claims[i].stats(&q.st))
		}
	}
	return list
}

// Close waits until no question is under way, or ctx ends: then it says how many file systems don't answer. No
// question is asked after it.
func (r *StatsReader) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	done := make(chan struct{})
	go func() { // as long as a file system doesn't answer: nothing in the process can end that
		r.asking.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop asking file systems how full they are: %w: these don't answer: %s", context.Cause(ctx), strings.Join(r.hanging(), ", "))
	}
}

func (r *StatsReader) hanging() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for path, q := range r.known {
		if !q.done() {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}

func (q *question) done() bool {
	select {
	case <-q.answered:
		return true
	default:
		return false
	}
}

// ask returns a question for each claim, and asks what isn't known. Nil where nothing may be asked any more.
func (r *StatsReader) ask(claims []claim) []*question {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	list := make([]*question, len(claims))
	wanted := make(map[string]bool, len(claims))
	for i, c := range claims {
		wanted[c.path] = true
		q := r.known[c.path]
		if (q == nil || q.done() && now.Sub(q.at) >= fresh) && !r.closed {
			q = &question{answered: make(chan struct{})}
			r.known[c.path] = q
			r.asking.Go(func() { r.query(c.path, q) })
		}
		list[i] = q
	}
	for path, q := range r.known {
		if !wanted[path] && q.done() {
			delete(r.known, path)
		}
	}
	return list
}

func (r *StatsReader) query(path string, q *question) {
	began := time.Now()
	q.err = r.Statfs(path, &q.st)
	q.at = time.Now()
	if q.err == nil {
		r.Took(q.at.Sub(began))
	}
	close(q.answered)
}

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
	// Sizes are in fragments where a file system has them.
	size := uint64(st.Frsize)
	if size == 0 {
		size = uint64(st.Bsize)
	}
	return Stats{
		Namespace: c.namespace, Claim: c.name,
		Capacity:  st.Blocks * size,
		Available: st.Bavail * size,
		Used:      (st.Blocks - min(st.Bfree, st.Blocks)) * size,
		Inodes:    st.Files, InodesFree: st.Ffree, InodesUsed: st.Files - min(st.Ffree, st.Files),
	}
}
