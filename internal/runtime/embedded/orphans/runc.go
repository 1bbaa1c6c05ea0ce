package orphans

import (
	"encoding/json"
	"os"
)

// Container is runc's record of a container.
type Container struct {
	// Init is the container's first process.
	Init Process
	// Cgroups are its directories, one in each hierarchy.
	Cgroups []string
}

// ReadContainer reads runc's state.json. It returns false if the file is missing or invalid.
func ReadContainer(path string) (Container, bool) {
	var state struct {
		PID     int               `json:"init_process_pid"`
		Start   uint64            `json:"init_process_start"`
		Cgroups map[string]string `json:"cgroup_paths"`
	}
	text, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(text, &state) != nil {
		return Container{}, false
	}
	var c Container
	// Without its start time, the ID doesn't identify a process.
	if state.Start != 0 {
		c.Init = Process{state.PID, state.Start}
	}
	for _, dir := range state.Cgroups {
		c.Cgroups = append(c.Cgroups, dir)
	}
	return c, true
}
