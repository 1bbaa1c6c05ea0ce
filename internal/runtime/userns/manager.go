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

// ErrNone means that no range of IDs is allocated to a pod.
var ErrNone = errors.New("the pod has no range of user IDs")

// Config configures a Manager.
type Config struct {
	// PodsDir has a directory for every pod (ROOT/pods). Only root may be able to write to it.
	PodsDir string
	// Find finds the host's IDs that pods may use, as Finder does. If it fails, new pods get its error.
	Find func(context.Context) (Range, error)
	// PerPod is the number of IDs for each pod (KubeletConfiguration userNamespaces.idsPerPod): a multiple of
	// Block; 0 means Block.
	PerPod uint32
	// Mapped lists the IDs that processes of the host have mapped; nil reads /proc. It is called only while a pod's
	// record can't be read.
	Mapped func() ([]Range, error)
}

// Manager allocates ranges. It is safe for concurrent use by one caller per pod.
type Manager struct {
	conf Config
	// ids is the range that pods' IDs are allocated from; noIDs is the error if there is none. Restore sets them.
	ids   Range
	noIDs error

	mu   sync.Mutex
	pods map[types.UID]*holding
}

// holding is the allocation of a pod.
type holding struct {
	// r is the allocated range; zero if the record can't be read.
	r Range
	// recorded is set once r is on disk.
	recorded bool
	// bad is the reason why nothing new may be started with r.
	bad error
}

// New returns a manager without allocations: see Restore.
func New(c Config) *Manager {
	c.PerPod = cmp.Or(c.PerPod, Block)
	if c.Mapped == nil {
		c.Mapped = mappedByProcesses
	}
	return &Manager{conf: c, pods: map[types.UID]*holding{}}
}

// Restore finds the available IDs, and reads the allocations of all pods. Call it once, before any other method.
//
// An invalid record doesn't prevent the agent from working: the error names, for the administrator, the pod and the
// remedy. That pod's containers run on, nothing new is started in it, and its IDs aren't allocated to other pods.
// If two pods have the same IDs, the one with the older record keeps them.
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

// check returns the holding of a pod; r and err are the result of reading the pod's record. The holding's field bad is
// set if the record can't be used.
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

// Get returns the pod's allocation, which new processes in an existing sandbox have to use. The error is ErrNone if
// the pod has no allocation.
func (m *Manager) Get(uid types.UID) (Range, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.lookup(uid); h == nil {
		return Range{}, ErrNone
	} else if h.bad != nil {
		return Range{}, h.bad
	} else if h.recorded {
		return h.r, nil
	}
	return Range{}, ErrNone
}

// lookup returns the pod's holding, or nil. It reads an invalid record again: the administrator may have fixed or
// deleted it.
func (m *Manager) lookup(uid types.UID) *holding {
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

// Ensure returns the pod's allocation, and allocates a range if the pod has none. Call it before a sandbox is
// created. Once Ensure has returned without an error, the record of the allocation survives a power failure.
func (m *Manager) Ensure(uid types.UID) (Range, error) {
	path, err := m.path(uid)
	if err != nil {
		return Range{}, err
	}
	m.mu.Lock()
	h := m.lookup(uid)
	if h == nil {
		if h, err = m.reserve(uid); err != nil {
			m.mu.Unlock()
			return Range{}, err
		}
	}
	r, recorded, bad := h.r, h.recorded, h.bad
	m.mu.Unlock()
	if bad != nil || recorded {
		return r, bad
	}
	// If the write fails, the range stays allocated, because the record may be on disk nevertheless.
	if err := m.write(path, r); err != nil {
		return Range{}, fmt.Errorf("the pod's user IDs can't be recorded: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.recorded = true
	return r, nil
}

// reserve reserves a free range for the pod.
func (m *Manager) reserve(uid types.UID) (*holding, error) {
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
			return nil, fmt.Errorf("can't allocate user IDs to pods, since the IDs in use can't be determined: %w; %w",
				err, unknown)
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

// free returns the first n consecutive IDs among ids that aren't taken.
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

// Release frees the pod's allocation. Nothing of the pod may run any more. A missing allocation isn't an error; if
// an error is returned, nothing was freed.
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
