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

// Raw sets a terminal to raw mode, in which it passes on each key press, including those for signals, until restore
// is called.
func Raw(terminal *os.File) (restore func() error, err error) {
	before, err := term.MakeRaw(int(terminal.Fd()))
	if err != nil {
		return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	return func() error {
		// EIO means that the terminal is gone.
		if err := term.Restore(int(terminal.Fd()), before); err != nil && !errors.Is(err, syscall.EIO) {
			return fmt.Errorf("restore the terminal (`reset` does): %w", err)
		}
		return nil
	}, nil
}

// Sizes sends the size of a terminal, and its changes.
type Sizes struct {
	terminal *os.File
	changed  chan os.Signal
	// Redraw means that a different size is sent first, so that a running process redraws its screen.
	Redraw bool
}

// NewSizes watches the size of a terminal until stop is called.
func NewSizes(terminal *os.File) (sizes *Sizes, stop func()) {
	s := &Sizes{terminal: terminal, changed: make(chan os.Signal, 1)}
	signal.Notify(s.changed, syscall.SIGWINCH)
	return s, func() { signal.Stop(s.changed) }
}

// size is a terminal's size in columns and rows, as in the protocol.
type size struct{ Width, Height uint16 }

// send sends the size, and each change, until a session has ended.
func (s *Sizes) send(to *json.Encoder, ended <-chan struct{}) {
	redraw := s.Redraw
	for {
		width, height, err := term.GetSize(int(s.terminal.Fd()))
		if err != nil {
			return // the terminal is gone
		}
		now := size{uint16(width), uint16(height)}
		if redraw {
			redraw = false
			err = to.Encode(size{now.Width + 1, now.Height + 1})
		}
		if err != nil || to.Encode(now) != nil {
			return // the session has ended
		}
		select {
		case <-s.changed:
		case <-ended:
			return
		}
	}
}
