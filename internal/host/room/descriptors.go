package room

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// spares is the number of descriptors that are reserved for writes that end pods, for a process with too many open
// files. Each write gets only perLoan of them, because a leak elsewhere in the process takes freed descriptors, too.
const spares, perLoan = 64, 8

// descriptors is a reserve of open descriptors, which are closed when they are needed. It is safe for concurrent use.
type descriptors struct {
	mu   sync.Mutex
	held []int
}

// fill opens the descriptors that are missing, as many as the limit allows.
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

// free closes up to n descriptors, and reports whether it closed any.
func (d *descriptors) free(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := max(len(d.held)-n, 0)
	freed := d.held[rest:]
	for _, fd := range freed {
		_ = unix.Close(fd) // an O_PATH descriptor: nothing is lost
	}
	d.held = d.held[:rest]
	return len(freed) > 0
}

// lend calls write. If there was no free descriptor for write, lend frees some and calls it again.
func (d *descriptors) lend(write func() error) error {
	err := write()
	if (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) && d.free(perLoan) {
		err = write()
		d.fill()
	}
	return err
}
