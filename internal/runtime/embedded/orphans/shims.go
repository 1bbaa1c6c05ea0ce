package orphans

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Shim is a running shim, or a short-lived process of the shim's program that containerd started.
type Shim struct {
	Process
	// ID is the sandbox or container on the shim's command line. Any process can have such a command line: validate
	// the ID before it becomes part of a path.
	ID string
}

// Shims returns the shims of the containerd with this socket.
func Shims(socket string) ([]Shim, error) {
	pids, err := numbers()
	if err != nil {
		return nil, err
	}
	var found []Shim
	for _, pid := range pids {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			continue // It ended meanwhile.
		}
		id, ok := shimID(line, socket)
		if !ok {
			continue
		}
		if s, ok := readStat(pid); ok {
			found = append(found, Shim{Process{pid, s.Start}, id})
		}
	}
	return found, nil
}

// shimID parses a shim's command line, which has containerd's socket and the sandbox's ID.
func shimID(cmdline []byte, socket string) (string, bool) {
	args := strings.Split(string(bytes.TrimSuffix(cmdline, []byte{0})), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") {
		return "", false
	}
	var id, address string
	for i := 1; i+1 < len(args); i++ {
		switch args[i] {
		case "-id":
			id = args[i+1]
		case "-address":
			address = args[i+1]
		}
	}
	return id, address == socket
}
