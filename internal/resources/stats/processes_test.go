package stats

import (
	"os"
	"os/exec"
	"testing"
)

// Where the first process has ended since they were listed, the others count.
func TestOpenFilesWhileOneEnds(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	alive := openFiles([]int{os.Getpid()})
	got := openFiles([]int{ended.Process.Pid, os.Getpid()})
	if alive == nil || got == nil || got.Open == 0 || got.Limit != alive.Limit {
		t.Errorf("%+v, and %+v without the one that has ended", got, alive)
	}
	if none := openFiles([]int{ended.Process.Pid}); none != nil {
		t.Errorf("nobody has %+v", none)
	}
}
