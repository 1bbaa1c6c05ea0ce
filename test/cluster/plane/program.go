package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Program is the owner of a control plane that isn't a test.
type Program struct {
	ctx      context.Context
	dir      string
	err      error
	cleanups []func()
}

// NewProgram returns an owner whose control plane keeps everything in an empty directory, and is killed when ctx ends.
func NewProgram(ctx context.Context, dir string) *Program { return &Program{ctx: ctx, dir: dir} }

func (o *Program) Helper()                           {}
func (o *Program) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (o *Program) Failed() bool                      { return o.err != nil }
func (o *Program) Cleanup(f func())                  { o.cleanups = append(o.cleanups, f) }
func (o *Program) Context() context.Context          { return o.ctx }
func (o *Program) TempDir() string                   { return o.dir }
func (o *Program) Fatalf(format string, args ...any) { o.Fatal(fmt.Sprintf(format, args...)) }

// Fatal ends what is under way, which returns the error.
func (o *Program) Fatal(args ...any) {
	o.err = errors.New(strings.TrimSpace(fmt.Sprintln(args...)))
	panic(o)
}

// StartAt starts the control plane from the program at a path, with the API server on an address of this machine which pods reach, too.
// A node counts as lost after as long as a kube-controller-manager waits by itself.
func (o *Program) StartAt(program, address string) (*Plane, error) {
	return Try(o, func() *Plane { return start(o, program, address, lost) })
}

// lost is a kube-controller-manager's own --node-monitor-grace-period.
const lost = 50 * time.Second

// Start starts the control plane on loopback from the program at a path. A node counts as lost after as long as a kube-controller-manager waits by
// itself.
func (o *Program) Start(program string) (*Plane, error) {
	return Try(o, func() *Plane { return StartPatient(o, program, lost) })
}

// Try returns what do returns, or what is fatal to its owner.
func Try[T any](o *Program, do func() T) (result T, err error) {
	defer func() {
		if o.err != nil {
			_ = recover() // Fatal's
			err = o.err
		}
	}()
	return do(), nil
}

// End ends the control plane.
func (o *Program) End() {
	for i := len(o.cleanups) - 1; i >= 0; i-- {
		o.cleanups[i]()
	}
}
