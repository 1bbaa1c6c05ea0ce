// Package terminaltest has terminals for tests, which play the role of the user.
package terminaltest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Console is the user's end of a terminal: reading from it reads the screen, writing to it types on the keyboard.
type Console struct {
	*os.File
	// Terminal is the end of the terminal that programs use.
	Terminal *os.File
	t        testing.TB
	before   *unix.Termios
}

// patience is the maximum time until an expected text appears on the screen. Only a failing test waits that long.
const patience = time.Minute

// Open opens a terminal until the test ends.
func Open(t testing.TB, rows, columns uint16) *Console {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	c := &Console{File: master, t: t}
	number := 0
	c.control(func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if c.Terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Terminal.Close() })
	c.Resize(rows, columns)
	c.before = c.modes()
	return c
}

// control calls do with the console's descriptor. It doesn't change the file's mode, so that read deadlines still work.
func (c *Console) control(do func(fd int) error) {
	c.t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil || failed != nil {
		c.t.Fatal(err, failed)
	}
}

// Resize changes the terminal's size. The kernel notifies the programs that have it as their controlling terminal.
func (c *Console) Resize(rows, columns uint16) {
	c.t.Helper()
	c.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// Shows reads the screen until the output ends with the given text, and returns the whole output.
func (c *Console) Shows(text string) string {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	var screen strings.Builder
	for b := make([]byte, 1); !strings.HasSuffix(screen.String(), text); {
		if _, err := c.Read(b); err != nil {
			c.t.Fatalf("the screen shows %q, not %q: %v", screen.String(), text, err)
		}
		screen.Write(b)
	}
	return screen.String()
}

// Full waits until the terminal's buffer is full, because the test doesn't read the screen.
func (c *Console) Full() {
	c.t.Helper()
	for end, last, same := time.Now().Add(patience), 0, 0; same < 10; time.Sleep(10 * time.Millisecond) {
		now := 0
		c.control(func(fd int) (err error) {
			now, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
			return err
		})
		if same++; now != last || now == 0 {
			last, same = now, 0
		}
		if time.Now().After(end) {
			c.t.Fatal("the screen doesn't fill")
		}
	}
}

// Shell tests an interactive shell in a container, with a terminal that has 24 lines of 100 columns: resizing, the end
// of a command by Ctrl-C, and the exit code, which is 5.
func (c *Console) Shell() {
	c.t.Helper()
	c.Shows("# ")
	// Sizes, including the first one, are sent separately from the input and may arrive later.
	c.Types("until [ \"$(stty size)\" = '24 100' ]; do :; done; echo si''zed\n")
	c.Shows("sized\r\n")
	c.Resize(30, 120)
	c.Types("until [ \"$(stty size)\" = '30 120' ]; do :; done; echo resi''zed\n")
	c.Shows("resized\r\n")
	c.Types("cat\n")
	c.Types("here\n") // appears twice: echoed by the terminal, and printed by cat
	c.Shows("here\r\nhere\r\n")
	c.Types("\x03")
	c.Shows("# ")
	c.Types("exit 5\n")
}

// Line reads the next line of the screen.
func (c *Console) Line() string {
	c.t.Helper()
	return strings.TrimRight(c.Shows("\n"), "\r\n")
}

// Types presses keys.
func (c *Console) Types(keys string) {
	c.t.Helper()
	if _, err := io.WriteString(c, keys); err != nil {
		c.t.Fatal(err)
	}
}

// Restored fails the test unless the terminal has its original modes.
func (c *Console) Restored() {
	c.t.Helper()
	if now := c.modes(); *now != *c.before {
		c.t.Errorf("the terminal is %+v, and was %+v", now, c.before)
	}
}

func (c *Console) modes() *unix.Termios {
	c.t.Helper()
	modes, err := unix.IoctlGetTermios(int(c.Terminal.Fd()), unix.TCGETS)
	if err != nil {
		c.t.Fatal(err)
	}
	return modes
}
