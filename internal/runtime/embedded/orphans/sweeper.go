// Package orphans finds and removes what pods have left on the host where containerd no longer
// does: shims, processes, cgroups and mounts. It works from the process table, the mount table
// and runc's records, and asks containerd only what it still knows.
//
// A Sweeper removes the shims that containerd has lost while it runs. The functions for
// processes, cgroups and mounts also serve a reset of the node, when containerd is gone.
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

// Patience is how long after the first look a shim has to be unknown still.
const Patience = 15 * time.Second

// Sweeper removes the shims of one root directory that containerd has lost. It isn't safe for concurrent use.
//
// containerd 2.4 loses a shim when the caller of RunPodSandbox goes away before the
// answer, as a killed agent does. Either the call fails with "failed to create
// shim task: context canceled" and the shim stays, idle and known to nobody; or
// it fails with "failed to get task pid", and removing the sandbox, which then is
// in state UNKNOWN, forgets the task and container below it.
//
// What this rests on:
//   - The CRI stores a sandbox before it starts its shim, and removes it from the
//     store after the shim. So a sandbox that is neither in that store nor in the
//     CRI's list, while its shim runs, is no sandbox under way.
//   - The container of a sandbox has the CRI's label of kind "sandbox". Any other
//     container that containerd has a record of is somebody's.
//   - IDs are random, so none comes back for another sandbox.
//   - A shim's command line names containerd's socket and the sandbox.
//
// None of it has to hold for long: only what was unknown twice, Patience apart, is
// taken for an orphan.
type Sweeper struct {
	layout  rootdir.Runtime
	connect func() (*grpc.ClientConn, error)
	log     logr.Logger
	// unknown says since when containerd doesn't know what runs under an ID.
	unknown map[string]time.Time
}

// New makes a sweeper. connect opens a connection to containerd; each is closed
// after use.
func New(l rootdir.Runtime, connect func() (*grpc.ClientConn, error), log logr.Logger) *Sweeper {
	return &Sweeper{layout: l, connect: connect, log: log, unknown: map[string]time.Time{}}
}

// Look compares what there is with what containerd knows, and removes what has
// been unknown for Patience at the time now. It reports whether something is
// unknown for the first time, so that another look is due after Patience.
func (s *Sweeper) Look(ctx context.Context, now time.Time) (again bool, err error) {
	// Before the question what is known: a sandbox that ends in between is gone by
	// the next look.
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

// orphan is what runs or lies around under an ID that containerd doesn't know.
type orphan struct {
	id    string
	shims []Shim
	// container is the record that containerd may have below the CRI.
	container *container
}

// there finds shims, and what may have outlived its shim, by ID.
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
		// Also because a path is made of it.
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

// isID reports whether id is one that the CRI makes: 32 bytes in hexadecimal.
func isID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 32
}
