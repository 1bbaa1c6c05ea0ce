package room

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// A process with too many open files has spares descriptors left for writes that end pods. Each write gets perLoan of
// them, because a leak elsewhere takes the freed ones, too.
const spares, perLoan = 64, 8

// descriptors are descriptors that are held back. It is safe for concurrent use.
type descriptors struct {
	mu   sync.Mutex
	held []int
}

// fill opens the descriptors that are missing, as far as the limit allows that.
func (d *descriptors) fill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.held) < spares {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		d.held = append(d.held, fd)
	}
}

// free closes up to n descriptors, and reports whether there was one.
func (d *descriptors) free(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := max(len(d.held)-n, 0)
	freed := d.held[rest:]
	for _, fd := range freed {
		_ = unix.Close(fd) // of a path: nothing is lost
	}
	d.held = d.held[:rest]
	return len(freed) > 0
}

// lend calls write, and once more with some of the descriptors if there was none left for it.
func (d *descriptors) lend(write func() error) error {
	err := write()
	if (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) && d.free(perLoan) {
		err = write()
		d.fill()
	}
	return err
}
