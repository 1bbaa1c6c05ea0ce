package allocation

import (
	v1 "k8s.io/api/core/v1"
)

// amount is what room is counted in: thousandths of a CPU, bytes of memory.
type amount [2]int64

const (
	cpu = iota
	memory
)

var names = [...]v1.ResourceName{cpu: v1.ResourceCPU, memory: v1.ResourceMemory}

func amountOf(l v1.ResourceList) amount {
	return amount{cpu: l.Cpu().MilliValue(), memory: l.Memory().Value()}
}

func (a amount) minus(b amount) amount { return amount{a[cpu] - b[cpu], a[memory] - b[memory]} }

func (a amount) atLeast(b amount) amount {
	return amount{max(a[cpu], b[cpu]), max(a[memory], b[memory])}
}

// short tells of which resources there isn't enough room to grow by a. One that
// doesn't grow is never short, even where more is held than there is: to refuse
// that would make nothing better.
func (a amount) short(room amount) []int {
	var out []int
	for i := range a {
		if a[i] > 0 && a[i] > room[i] {
			out = append(out, i)
		}
	}
	return out
}
