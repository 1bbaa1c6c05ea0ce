package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// Raw has a terminal hand on each key as it is pressed, also those that are signals otherwise, until restore is called.
func Raw(terminal *os.File) (restore func() error, err error) {
	before, err := term.MakeRaw(int(terminal.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	return func() error {
		if err := term.Restore(int(terminal.Fd()), before); err != nil && !errors.Is(err, syscall.EIO) { // which is a terminal that is gone
			return fmt.Errorf("restore the terminal (`reset` does): %w", err)
		}
		return nil
	}, nil
}

// Sizes are those of a terminal, as they change.
type Sizes struct {
	terminal *os.File
	changed  chan os.Signal
	// Redraw has the process hear of another size first, so that one that runs already draws its screen again.
	Redraw bool
}

// NewSizes looks at a terminal until stop is called.
func NewSizes(terminal *os.File) (sizes *Sizes, stop func()) {
	s := &Sizes{terminal: terminal, changed: make(chan os.Signal, 1)}
	signal.Notify(s.changed, syscall.SIGWINCH)
	return s, func() { signal.Stop(s.changed) }
}

// size is a terminal's in columns and rows, in the protocol's form.
type size struct{ Width, Height uint16 }

// tell sends the size, and each that follows, until a session has ended.
func (s *Sizes) tell(to *json.Encoder, ended <-chan struct{}) {
	redraw := s.Redraw
	for {
		width, height, err := term.GetSize(int(s.terminal.Fd()))
		if err != nil {
			return // it is gone
		}
		now := size{uint16(width), uint16(height)}
		if redraw {
			redraw = false
			err = to.Encode(size{now.Width + 1, now.Height + 1})
		}
		if err != nil || to.Encode(now) != nil {
			return // the session is over
		}
		select {
		case <-s.changed:
		case <-ended:
			return
		}
	}
}
