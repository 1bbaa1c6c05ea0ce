package pressure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// stateVersion is the format of the state file.
const stateVersion = 1

// maxState limits how much of the file is read.
const maxState = 1 << 20

// state is the content of the state file, which preserves Memory when the agent is restarted.
type state struct {
	Version int `json:"version"`
	// Boot is the ID of the boot to which the times in Memory refer.
	Boot   string `json:"boot"`
	Memory Memory `json:"memory"`
}

// load returns the Memory in the file. It is the zero Memory if the file doesn't exist, if it is from another boot, and
// after an error: an unreadable file must not stop the agent.
func load(path, boot string, now time.Duration) (Memory, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Memory{}, nil
	}
	if err != nil {
		return Memory{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxState))
	if err != nil {
		return Memory{}, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return Memory{}, fmt.Errorf("%s: %w", path, err)
	}
	if s.Version != stateVersion || s.Boot != boot || boot == "" {
		return Memory{}, nil
	}
	return s.Memory.until(now), nil
}

// until returns the Memory with impossible values corrected, such as times later than now: the file may have any
// content.
func (m Memory) until(now time.Duration) Memory {
	m = m.clone()
	for id, since := range m.Met {
		m.Met[id] = max(min(since, now), 0)
	}
	pressed := map[v1.NodeConditionType]time.Duration{}
	for _, k := range kinds() { // a later version of the agent may have saved other conditions
		if last, ok := m.Pressed[k.condition]; ok {
			pressed[k.condition] = max(min(last, now), 0)
		}
	}
	m.Pressed = pressed
	for signal, n := range m.Reclaimed {
		m.Reclaimed[signal] = max(n, 0)
	}
	m.At = max(min(m.At, now), 0)
	m.FreshAfter, m.Until = min(m.FreshAfter, now), min(m.Until, now+longest+endPatience)
	return m
}

func save(path, boot string, m Memory) error {
	data, err := json.Marshal(state{stateVersion, boot, m})
	if err != nil {
		return err
	}
	return atomicfile.WriteVolatile(path, data, 0o600)
}
