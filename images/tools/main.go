// Command tools is the one program of the test images deckhand.local/tools:1 and :2:
// a process that does what a test tells it to, and keeps a diary about it.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

const usage = `tools COMMAND

  act [FLAG...]         live until a signal comes; see tools act -h
  look [FLAG...] FILE...  tell as JSON what it finds out about itself; see tools look -h
  survey [FLAG...] DIR...  tell as JSON what is in directories; see tools survey -h
  check FILE            exit 0 if FILE exists, else 1
  append FILE TEXT      add a line with the time and TEXT to FILE
  write FILE TEXT       make FILE hold TEXT and nothing else
  fail-once FILE CODE   exit with CODE if FILE doesn't exist, and make it; else exit 0
  cat FILE              print FILE, with newlines for the zero bytes in it
  burn DURATION         use as much CPU time as it can get, and tell as JSON how much that was
  sample DURATION       ask each millisecond for the CPU that a thread runs on, and tell it as JSON
  fork MOST             make so many processes, and tell as JSON how many it could
  parent CODE COMMAND...  run a command of this program as a child, print how it ended, and exit with CODE
  tell [ARG...]         tell as JSON what it was started with, and its host name
`

func main() {
	err := run(os.Args[1:])
	var code exitCode
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(2)
	}
}

// exitCode is an ending that was asked for.
type exitCode int

func (c exitCode) Error() string { return "exit " + strconv.Itoa(int(c)) }

func run(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "act":
		return act(args[1:])
	case len(args) > 0 && args[0] == "look":
		return look(args[1:])
	case len(args) > 0 && args[0] == "survey":
		return survey(args[1:])
	case len(args) > 0 && args[0] == "tell":
		return tell(args[1:])
	case len(args) == 2 && args[0] == "burn":
		return burn(args[1])
	case len(args) == 2 && args[0] == "sample":
		return sample(args[1])
	case len(args) == 2 && args[0] == "fork":
		return fork(args[1])
	case len(args) > 2 && args[0] == "parent":
		return parent(args[1], args[2:])
	case len(args) == 3 && args[0] == "write":
		return os.WriteFile(args[1], []byte(args[2]), 0o644)
	case len(args) == 2 && args[0] == "check":
		return check(args[1])
	case len(args) == 3 && args[0] == "append":
		return diary(args[1]).add(args[2])
	case len(args) == 3 && args[0] == "fail-once":
		return failOnce(args[1], args[2])
	case len(args) == 2 && args[0] == "cat":
		return cat(args[1])
	}
	return fmt.Errorf("no command %q\n\n%s", strings.Join(args, " "), usage)
}

func check(file string) error {
	if exists(file) {
		return nil
	}
	fmt.Println(file + " isn't there")
	return exitCode(1)
}

// exists is what tests switch things with: it is asked again whenever it matters.
func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func failOnce(file, text string) error {
	code, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(exitCode(code), f.Close())
}

func cat(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = fmt.Println(strings.ReplaceAll(string(text), "\x00", "\n"))
	return err
}
