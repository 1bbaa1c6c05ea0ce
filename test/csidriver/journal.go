package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// journal owns the calls and the law's state, in memory and in two files of the state directory: calls.jsonl has a line
// for the begin and one for the end of each call, law.json is replaced with each change.
type journal struct {
	lawFile string
	changed wake.Group

	mu    sync.Mutex
	state driver.State
	index map[int]int // Seq to the index in state.Calls
	seq   int
	law   law
	calls *os.File
}

func openJournal(c config) (*journal, error) {
	j := &journal{lawFile: filepath.Join(c.stateDir, "law.json"), index: map[int]int{}, law: newLaw(c)}
	path := filepath.Join(c.stateDir, "calls.jsonl")
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for lines := bufio.NewReader(bytes.NewReader(data)); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break // the end, or a line that a killed driver didn't finish
		}
		var call driver.Call
		if err := json.Unmarshal(line, &call); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		j.put(call)
	}
	for i := range j.state.Calls {
		if c := &j.state.Calls[i]; c.Code == "" {
			c.Code, c.Held = killed, false
		}
	}
	if err := j.readLaw(); err != nil {
		return nil, err
	}
	j.calls, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return j, err
}

func (j *journal) close() { _ = j.calls.Close() }

// put adds a call to the state or replaces it. The caller has the lock.
func (j *journal) put(c driver.Call) {
	j.seq = max(j.seq, c.Seq)
	if i, ok := j.index[c.Seq]; ok {
		j.state.Calls[i] = c
		return
	}
	j.index[c.Seq] = len(j.state.Calls)
	j.state.Calls = append(j.state.Calls, c)
}

// lawState is the content of law.json.
type lawState struct {
	Entries    []*entry
	Violations []driver.Violation
}

func (j *journal) readLaw() error {
	data, err := os.ReadFile(j.lawFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var s lawState
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", j.lawFile, err)
	}
	j.state.Violations = s.Violations
	j.law.load(s.Entries)
	return nil
}

// save writes both files and wakes readers of the state. The caller has the lock. The driver can't go on without its
// files: a law that forgets would accuse the agent.
func (j *journal) save(c driver.Call, lawChanged bool) {
	j.put(c)
	line, err := json.Marshal(c)
	if err == nil {
		_, err = j.calls.Write(append(line, '\n'))
	}
	if err == nil && lawChanged {
		var data []byte
		if data, err = json.Marshal(lawState{j.law.list(), j.state.Violations}); err == nil {
			err = os.WriteFile(j.lawFile+".new", data, 0o600)
		}
		if err == nil {
			err = os.Rename(j.lawFile+".new", j.lawFile)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "csidriver: the state can't be written:", err)
		kill()
	}
	j.notify()
}

// notify tells readers of the state that it has changed. The caller has the lock.
func (j *journal) notify() {
	j.state.Version++
	j.changed.Wake()
}

// begin records the arrival of a call, and that its outcome is unknown until end.
func (j *journal) begin(c driver.Call, s step) driver.Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Seq, c.Began = j.seq+1, time.Now()
	j.state.Violations = append(j.state.Violations, j.law.begin(c, s)...)
	j.save(c, s.kind != other)
	return c
}

// end records the answer to a call. It counts for the law unless the caller has left.
func (j *journal) end(c driver.Call, s step, maybeLost bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Left = c.Left || j.running(c.Seq).Left
	j.law.end(c, s, maybeLost)
	j.save(c, s.kind != other)
}

// left records that the caller of a call didn't wait for its answer.
func (j *journal) left(seq int, s step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c := j.running(seq); c.Seq == seq && c.Code == "" && !c.Left {
		c.Left = true
		j.law.end(c, s, false)
		j.save(c, s.kind != other)
	}
}

// held records that a call waits for Release after its work.
func (j *journal) held(seq int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := j.running(seq)
	c.Held = true
	j.save(c, false)
}

// running returns the record of a call that has no answer yet, which clear leaves. The caller has the lock.
func (j *journal) running(seq int) driver.Call {
	if i, ok := j.index[seq]; ok {
		return j.state.Calls[i]
	}
	return driver.Call{}
}

// disturbed notes that a connection has ended, or that there is another one.
func (j *journal) disturbed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.law.disturbed = time.Now()
}

// dropped notes that a call isn't handled because its caller has left.
func (j *journal) dropped(s step) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.law.drop(s)
}

// registered notes a status of the registration, or for nil a request for its information.
func (j *journal) registered(r *driver.Registration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r == nil {
		j.state.Infos++
	} else {
		j.state.Registrations = append(j.state.Registrations, *r)
	}
	j.notify()
}

// after returns a copy of the state if it is newer than this version.
func (j *journal) after(version int) (driver.State, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.state
	s.Calls = append([]driver.Call(nil), s.Calls...)
	return s, s.Version > version
}

// clear removes ended calls and violations from memory; the law's state stays.
func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	calls := j.state.Calls
	j.state.Calls, j.state.Violations, j.index = nil, nil, map[int]int{}
	for _, c := range calls {
		if c.Code == "" {
			j.put(c)
		}
	}
	_ = j.calls.Truncate(0)
	j.notify()
}
