package cpu

// stock counts cores: whole[s] are free cores of s CPUs, part[f] are cores of which f CPUs are free and others aren't.
// A core of one CPU counts as a part, as it can't be broken.
type stock struct{ whole, part []int }

func stockOf(cores []*core) stock {
	size := 1
	for _, c := range cores {
		size = max(size, c.size)
	}
	s := stock{whole: make([]int, size+1), part: make([]int, size+1)}
	for _, c := range cores {
		s.of(c)[len(c.free)]++
	}
	return s
}

func (s stock) of(c *core) []int {
	if c.whole() && c.size > 1 {
		return s.whole
	}
	return s.part
}

// cost returns how many whole cores are broken and how many cores are touched by the best choice of n CPUs, if at most
// breaks cores may be broken; false if there is none. A second broken core is never needed: as long as a free core is
// larger than the rest, only that one is.
func (s stock) cost(n, breaks int) (broken, cores int, ok bool) {
	if cores, ok = s.unbroken(n, len(s.whole)-1); ok || breaks == 0 {
		return 0, cores, ok
	}
	for size := len(s.whole) - 1; size > 1; size-- {
		if s.whole[size] == 0 {
			continue
		}
		s.whole[size]--
		for taken := 1; taken < size && taken <= n; taken++ {
			if more, found := s.unbroken(n-taken, len(s.whole)-1); found && (!ok || more+1 < cores) {
				cores, ok = more+1, true
			}
		}
		s.whole[size]++
	}
	return 1, cores, ok
}

// unbroken returns the least number of cores of which n CPUs can be taken without breaking one, if no whole core has
// more than size CPUs.
func (s stock) unbroken(n, size int) (cores int, ok bool) {
	for size > 1 && s.whole[size] == 0 {
		size--
	}
	if size <= 1 {
		return s.parts(n)
	}
	for count := min(s.whole[size], n/size); count >= 0; count-- {
		if rest := n - count*size; ok && count+(rest+size-1)/size >= cores {
			break // from here on it takes at least as many
		} else if more, found := s.unbroken(rest, size-1); found && (!ok || count+more < cores) {
			cores, ok = count+more, true
		}
	}
	return cores, ok
}

// parts returns the least number of cores, none of which is wholly free, that have n free CPUs.
func (s stock) parts(n int) (cores int, ok bool) {
	for free := len(s.part) - 1; free > 0 && n > 0; free-- {
		count := min(s.part[free], (n+free-1)/free)
		cores += count
		n -= count * free
	}
	return cores, n <= 0
}

// pick chooses n CPUs of the cores at the score's cost, as many as possible of the first ones.
func pick(cores []*core, n int, want score) (ids []int) {
	s := stockOf(cores)
	broken, touched := want.broken, want.cores
	for _, c := range cores {
		if n == 0 {
			break
		}
		s.of(c)[len(c.free)]--
		for take := min(n, len(c.free)); take >= 0; take-- {
			b, t := broken, touched
			if take > 0 {
				t--
				if c.whole() && take < c.size {
					b--
				}
			}
			if b < 0 || t < 0 {
				continue
			}
			if lost, more, ok := s.cost(n-take, b); ok && lost == b && more == t {
				ids = append(ids, c.free[:take]...)
				n, broken, touched = n-take, b, t
				break
			}
		}
	}
	return ids
}
