package stats

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// Where the first process has ended since they were listed, the others count. What would take long holds nobody up.
func TestOpenFiles(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	gone, own, due := ended.Process.Pid, os.Getpid(), time.Now().Add(time.Hour)
	alive, got := openFiles([]int{own}, due), openFiles([]int{gone, own}, due)
	if alive == nil || got == nil || got.Open == 0 || got.Limit != alive.Limit {
		t.Errorf("%+v, and %+v without the one that has ended", got, alive)
	}
	if none := openFiles([]int{gone}, due); none != nil {
		t.Errorf("nobody has %+v", none)
	}
	if late := openFiles([]int{own}, time.Now()); late != nil {
		t.Errorf("without time for it: %+v", late)
	}
	began := time.Now()
	if many := openFiles(slices.Repeat([]int{own}, 1_000_000), due); many != nil {
		t.Errorf("of a million processes: %+v, after %s", many, time.Since(began))
	}
}
