// Package orphans finds and removes remains of pods on the host that containerd no longer handles: shims,
// processes, cgroups and mounts. It uses the process table, the mount table and runc's records, and queries
// containerd only for its records.
//
// A Sweeper removes orphaned shims while containerd runs. A reset of the node uses the functions for processes,
// cgroups and mounts too, after containerd has ended.
package orphans

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
)

// Patience is the time between the two checks in which a shim has to be missing from containerd's records to count
// as orphaned.
const Patience = 15 * time.Second

// Sweeper removes the orphaned shims of one root directory. It isn't safe for concurrent use.
//
// containerd 2.4 loses track of a shim if the caller of RunPodSandbox disappears before the answer, as a killed
// agent does. Either the call fails with "failed to create shim task: context canceled", and the shim remains, idle
// and without a record; or it fails with "failed to get task pid", and removing the sandbox, which then is in state
// UNKNOWN, leaves its task and container behind.
//
// The sweeper relies on these facts:
//   - The CRI stores a sandbox before it starts its shim, and removes it from the
//     store after the shim. So a sandbox that is neither in that store nor in the
//     CRI's list, while its shim runs, isn't being created or removed.
//   - The container of a sandbox has the CRI's label of kind "sandbox". Any other
//     container in containerd's records is in use.
//   - IDs are random, so none is reused for another sandbox.
//   - A shim's command line has containerd's socket and the sandbox's ID.
//
// They may be untrue for a moment. So an ID only counts as an orphan if two checks, Patience apart, find no record
// of it.
type Sweeper struct {
	layout  rootdir.Runtime
	connect func() (*grpc.ClientConn, error)
	log     logr.Logger
	// unknown maps IDs that containerd has no record of to the time when that was first noticed.
	unknown map[string]time.Time
}

// New returns a sweeper. connect opens a connection to containerd; each is closed after use.
func New(l rootdir.Runtime, connect func() (*grpc.ClientConn, error), log logr.Logger) *Sweeper {
	return &Sweeper{layout: l, connect: connect, log: log, unknown: map[string]time.Time{}}
}

// Sweep compares shims and their remains with containerd's records, and removes those that have had no record for
// Patience at the time now. It reports whether an ID is missing for the first time, so that another Sweep is due
// after Patience.
func (s *Sweeper) Sweep(ctx context.Context, now time.Time) (again bool, err error) {
	// The shims are listed before containerd's records: a sandbox that ends in between is gone by the next Sweep.
	there, err := s.there()
	if err != nil {
		return false, err
	}
	if len(there) == 0 {
		clear(s.unknown)
		return false, nil
	}
	conn, err := s.connect()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	lost, err := newRegistry(conn).lost(ctx, there)
	if err != nil {
		return false, fmt.Errorf("ask containerd what it knows: %w", err)
	}
	for id := range s.unknown {
		if _, ok := lost[id]; !ok {
			delete(s.unknown, id)
		}
	}
	for id, o := range lost {
		since, ok := s.unknown[id]
		switch {
		case !ok:
			s.unknown[id] = now
			again = true
		case now.Sub(since) >= Patience:
			s.remove(ctx, conn, o)
		}
	}
	return again, nil
}

// orphan is a shim, or its remains, under an ID of which containerd has no record.
type orphan struct {
	id    string
	shims []Shim
	// container is the record that containerd's own container store may have although the CRI has none; nil for
	// none.
	container *container
}

// there finds shims, and possible remains of shims, by ID.
func (s *Sweeper) there() (map[string]*orphan, error) {
	shims, err := Shims(s.layout.Socket())
	if err != nil {
		return nil, err
	}
	found := map[string]*orphan{}
	at := func(id string) *orphan {
		if found[id] == nil {
			found[id] = &orphan{id: id}
		}
		return found[id]
	}
	for _, shim := range shims {
		// The check is also needed because the ID becomes part of a path.
		if isID(shim.ID) {
			o := at(shim.ID)
			o.shims = append(o.shims, shim)
		}
	}
	for _, dir := range []string{s.layout.Bundles(), s.layout.RuncContainers()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if isID(e.Name()) {
				at(e.Name())
			}
		}
	}
	return found, nil
}

// isID reports whether id has the form of the CRI's IDs: 32 bytes in hexadecimal.
func isID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 32
}
