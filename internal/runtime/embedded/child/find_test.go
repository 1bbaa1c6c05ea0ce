package child

import (
	"os"
	"slices"
	"testing"
)

// containerd forks all the time, and for a moment each fork is called as it is itself.
func TestForksAreNotTakenForContainerd(t *testing.T) {
	for name, c := range map[string]struct {
		parents map[int]int
		want    []int
	}{
		"alone":                         {map[int]int{5503: 1}, []int{5503}},
		"a fork whose number is higher": {map[int]int{5503: 1, 11129: 5503}, []int{5503}},
		"a fork whose number is lower":  {map[int]int{30000: 1, 12: 30000}, []int{30000}},
		"its parent has ended":          {map[int]int{11129: 1}, []int{11129}},
		"none":                          {map[int]int{}, nil},
	} {
		if got := eldest(c.parents); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestParentOf(t *testing.T) {
	if got := parentOf(os.Getpid()); got != os.Getppid() {
		t.Errorf("my parent is %d, not %d", got, os.Getppid())
	}
	if got := parentOf(1 << 30); got != 0 {
		t.Errorf("nobody's parent is %d", got)
	}
}
