package tree

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestOwnLimits: the lowest limit of memory and the least room for processes count, also those of a group above.
func TestOwnLimits(t *testing.T) {
	const asChild = "DECKHAND_TEST_OWN_LIMITS"
	if os.Getenv(asChild) != "" {
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil { // until it is in its group
			t.Fatal(err)
		}
		own, err := ReadOwnLimits()
		fmt.Printf("own %d %d %v\n", own.Memory, own.Processes, err)
		return
	}
	l, err := Find()
	if err != nil {
		t.Fatalf("control groups can't be found: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOwnLimits$")
	cmd.Env = append(os.Environ(), asChild+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("deckhand-test-own-%d", os.Getpid())
	memory, pids := "memory.limit_in_bytes", l.Mounts["pids"] != ""
	if l.V2 {
		memory = "memory.max"
	}
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0); err != nil {
			t.Error(err)
		}
	}
	for _, controller := range []string{"memory", "pids"} {
		dir := l.Mounts[controller]
		if dir == "" {
			continue
		}
		above, own := filepath.Join(dir, name), filepath.Join(dir, name, "own")
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		if l.V2 {
			// In a container this write fails: its uppermost group has processes. The controllers are enabled there.
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +pids"), 0)
			write(filepath.Join(above, "cgroup.subtree_control"), "+memory +pids")
		}
		t.Cleanup(func() { _, _ = os.Remove(own), os.Remove(above) })
		write(filepath.Join(own, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid))
		if controller == "memory" {
			write(filepath.Join(above, memory), strconv.Itoa(256<<20))
			write(filepath.Join(own, memory), strconv.Itoa(512<<20))
		} else {
			write(filepath.Join(above, "pids.max"), "100")
			write(filepath.Join(own, "pids.max"), "1000")
		}
	}
	if _, err := in.Write([]byte{1}); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	var limit, room uint64
	if _, err := fmt.Sscanf(out.String(), "own %d %d <nil>", &limit, &room); err != nil || limit != 256<<20 || pids && (room < 50 || room >= 100) {
		t.Errorf("%s: %v", out.String(), err)
	}
}
