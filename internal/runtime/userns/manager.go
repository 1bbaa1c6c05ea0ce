package userns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// ErrNone says that a pod has no IDs of its own yet.
var ErrNone = errors.New("the pod has no range of user IDs")

// Config says which IDs there are to allocate.
type Config struct {
	// PodsDir has a directory for every pod (ROOT/pods). Only root may be able to write to it.
	PodsDir string
	// Find finds out which of the host's IDs pods may have, as Finder does. With its error
	// every new pod is refused.
	Find func(context.Context) (Range, error)
	// PerPod is how many each pod gets (KubeletConfiguration userNamespaces.idsPerPod):
	// a multiple of Block; 0 counts as Block.
	PerPod uint32
	// Mapped lists what the processes of the host have mapped; nil asks /proc. It is
	// asked only while a pod's record can't be read.
	Mapped func() ([]Range, error)
}

// Manager allocates ranges. It is safe for concurrent use, for one pod by one
// caller at a time.
type Manager struct {
	conf Config
	// ids may be allocated; noIDs says why none may. Restore sets them.
	ids   Range
	noIDs error

	mu   sync.Mutex
	pods map[types.UID]*holding
}

// holding is what a pod has.
type holding struct {
	// r is zero if that isn't known.
	r Range
	// recorded is set once r is on disk.
	recorded bool
	// bad is why nothing new may be started with r.
	bad error
}

// New makes a manager that knows of no pod: see Restore.
func New(c Config) *Manager {
	if c.PerPod == 0 {
		c.PerPod = Block
	}
	if c.Mapped == nil {
		c.Mapped = mappedByProcesses
	}
	return &Manager{conf: c, pods: map[types.UID]*holding{}}
}

// Restore finds out which IDs there are, and reads what all pods had when the agent last ran. It
// is called once, before anything else.
//
// A record that can't be used doesn't keep the agent from working: the error says,
// for a person, whose it is and what to do. That pod's containers run on, nothing new is
// started in it, and nobody is given its IDs. Of two pods with the same IDs, the one
// that had them first keeps them.
func (m *Manager) Restore(ctx context.Context) error {
	m.ids, m.noIDs = m.conf.Find(ctx)
	entries, err := os.ReadDir(m.conf.PodsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the pods' ranges of user IDs: %w", err)
	}
	type found struct {
		uid     types.UID
		r       Range
		written time.Time
		err     error
	}
	var all []found
	for _, e := range entries {
		uid := types.UID(e.Name())
		if !e.IsDir() || safeopen.Check("pod UID", e.Name()) != nil {
			continue
		}
		path, err := m.path(uid)
		if err != nil {
			return err
		}
		f := found{uid: uid}
		if f.r, f.written, f.err = read(path); !errors.Is(f.err, fs.ErrNotExist) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.uid, b.uid))
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, f := range all {
		h := m.check(f.uid, f.r, f.err)
		m.pods[f.uid] = h
		errs = append(errs, h.bad)
	}
	return errors.Join(errs...)
}

// check returns the pod's holding by its record; its field bad says why the record can't be used.
func (m *Manager) check(uid types.UID, r Range, err error) *holding {
	if err != nil {
		return &holding{bad: fmt.Errorf(
			"the record of the user IDs of pod %s is damaged: %w; its containers run on, but nothing new is started "+
				"in it: remove the pod, "+
				"or, when nothing of it runs, delete the file %s in its directory", uid, err, recordName)}
	}
	h := &holding{r: r, recorded: true}
	for other, o := range m.pods {
		if other != uid && o.r.Length > 0 && o.r.overlaps(r) {
			h.bad = fmt.Errorf("the user IDs %s of pod %s overlap those of pod %s; its containers run on, but "+
				"nothing new is started in it: remove the pod, "+
				"or, when nothing of it runs, delete the file %s in its directory", r, uid, other, recordName)
		}
	}
	return h
}

// Get returns what the pod has. It is for what is started among processes that
// run with it already; the error is ErrNone if there is nothing.
func (m *Manager) Get(uid types.UID) (Range, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.look(uid); h == nil {
		return Range{}, ErrNone
	} else if h.bad != nil {
		return Range{}, h.bad
	} else if h.recorded {
		return h.r, nil
	}
	return Range{}, ErrNone
}

// look returns the pod's holding, or nil. A record that was bad is looked at again:
// a person may have fixed or deleted it.
func (m *Manager) look(uid types.UID) *holding {
	h := m.pods[uid]
	if h == nil || h.bad == nil {
		return h
	}
	path, err := m.path(uid)
	if err != nil {
		return h
	}
	r, _, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		delete(m.pods, uid)
		return nil
	}
	h = m.check(uid, r, err)
	m.pods[uid] = h
	return h
}

// Ensure returns what the pod has, and gives it a range if it has none. When it
// returns without an error, the record survives a loss of power. A new sandbox needs it.
func (m *Manager) Ensure(uid types.UID) (Range, error) {
	path, err := m.path(uid)
	if err != nil {
		return Range{}, err
	}
	m.mu.Lock()
	h := m.look(uid)
	if h == nil {
		if h, err = m.take(uid); err != nil {
			m.mu.Unlock()
			return Range{}, err
		}
	}
	r, recorded, bad := h.r, h.recorded, h.bad
	m.mu.Unlock()
	if bad != nil || recorded {
		return r, bad
	}
	// It stays taken if this fails: the record may be in place all the same.
	if err := m.write(path, r); err != nil {
		return Range{}, fmt.Errorf("the pod's user IDs can't be recorded: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.recorded = true
	return r, nil
}

// take reserves a free range for the pod.
func (m *Manager) take(uid types.UID) (*holding, error) {
	if m.noIDs != nil {
		return nil, m.noIDs
	}
	taken := make([]Range, 0, len(m.pods))
	var unknown error
	for _, h := range m.pods {
		if h.r.Length > 0 {
			taken = append(taken, h.r)
		} else {
			unknown = h.bad
		}
	}
	if unknown != nil {
		mapped, err := m.conf.Mapped()
		if err != nil {
			return nil, fmt.Errorf("no pod is given user IDs, since it isn't known which ones are in use: %w; %w", err,
				unknown)
		}
		taken = append(taken, mapped...)
	}
	r, ok := free(m.ids, m.conf.PerPod, taken)
	if !ok {
		return nil, fmt.Errorf("all user IDs for pods (%s, %d for each) are in use by %d pods: wait until one is "+
			"removed, or raise maxPods or the subordinate IDs of the user %q",
			m.ids, m.conf.PerPod, len(m.pods), Owner)
	}
	h := &holding{r: r}
	m.pods[uid] = h
	return h, nil
}

// free finds the first n IDs in a row among ids that aren't taken.
func free(ids Range, n uint32, taken []Range) (Range, bool) {
	slices.SortFunc(taken, func(a, b Range) int { return cmp.Compare(a.HostID, b.HostID) })
	at := uint64(ids.HostID)
	for _, t := range taken {
		if uint64(t.HostID) >= at+uint64(n) {
			break
		}
		if t.end() > at {
			at = (t.end() + Block - 1) / Block * Block
		}
	}
	if n == 0 || at+uint64(n) > ids.end() {
		return Range{}, false
	}
	return Range{HostID: uint32(at), Length: n}, true
}

// Release gives back what the pod has. Nothing of the pod may run any more. What
// it hasn't got is no error; on another error nothing is given back.
func (m *Manager) Release(uid types.UID) error {
	path, err := m.path(uid)
	if err != nil {
		return err
	}
	m.mu.Lock()
	_, known := m.pods[uid]
	m.mu.Unlock()
	if !known {
		return nil
	}
	if err := remove(path); err != nil {
		return fmt.Errorf("the pod's user IDs can't be given back: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
	return nil
}
