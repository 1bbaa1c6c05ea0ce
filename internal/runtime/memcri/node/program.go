package node

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Forever is a value of Behaviour.IgnoreTerm: the container ends only with SIGKILL.
const Forever time.Duration = 1<<63 - 1

// Behaviour scripts a container after its start. The zero value runs until it is stopped, and then ends at once
// with exit code 0.
type Behaviour struct {
	// Exits ends the container by itself, with ExitCode, after ExitAfter.
	Exits     bool
	ExitAfter time.Duration
	ExitCode  int32
	// Reason replaces the reason that depends on the exit code (Completed, Error).
	Reason string
	// IgnoreTerm is how long the container continues after the stop signal; with Forever until it is killed. Stop
	// signals other than SIGTERM and SIGINT end it at once.
	IgnoreTerm time.Duration
	// TermCode is the exit code after the stop signal.
	TermCode int32
	// Output is written to the container's log at its start.
	Output []Line
	// StartError makes StartContainer fail with this message.
	StartError string
}

// Line is a line of a container's output, to stdout unless Stderr is set.
type Line struct {
	Stderr bool
	Text   string
}

// Stream returns the stream's name in the CRI log format.
func (l Line) Stream() string {
	if l.Stderr {
		return "stderr"
	}
	return "stdout"
}

// Example is the behaviour of deckhand's example image for a command:
//
//	sleep D        end with 0 after D ("1h")
//	exit CODE [D]  end with CODE, after D
//	logs N         write N lines, odd ones to stdout and even ones to stderr, and end
//	serve          write a line and run until stopped
//	ignore-term    write a line and run until killed
//	burst BYTES    write this many bytes as lines of 100, and end
//	cat /dev/zero  run out of memory
//
// Anything else runs until it is stopped.
func Example(command []string) Behaviour {
	for i, word := range command {
		args := command[i+1:]
		switch word {
		case "sleep":
			return Behaviour{Exits: true, ExitAfter: duration(args, 0)}
		case "exit":
			return Behaviour{Exits: true, ExitCode: int32(number(args)), ExitAfter: duration(args, 1)}
		case "logs":
			b := Behaviour{Exits: true}
			for n := 1; n <= number(args); n++ {
				b.Output = append(b.Output, Line{Stderr: n%2 == 0, Text: fmt.Sprintf("line %d", n)})
			}
			return b
		case "serve":
			return Behaviour{Output: []Line{{Text: "listens"}}}
		case "burst":
			return Behaviour{Exits: true, Output: burst(number(args))}
		case "cat":
			if len(args) > 0 && args[0] == "/dev/zero" {
				return Behaviour{Exits: true, ExitCode: 137, Reason: "OOMKilled"}
			}
			return Behaviour{Exits: true}
		case "ignore-term":
			return Behaviour{IgnoreTerm: Forever, Output: []Line{{Text: "ignoring SIGTERM"}}}
		}
	}
	return Behaviour{}
}

func burst(bytes int) (lines []Line) {
	const length = 100 // with its newline
	for ; bytes > 0; bytes -= length {
		lines = append(lines, Line{Text: strings.Repeat("x", min(bytes, length)-1)})
	}
	return lines
}

// number parses the first argument; an invalid number counts as 0.
func number(args []string) int {
	if len(args) == 0 {
		return 0
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 0
	}
	return n
}

// duration parses argument i; an invalid duration counts as 0.
func duration(args []string, i int) time.Duration {
	if i >= len(args) {
		return 0
	}
	d, err := time.ParseDuration(args[i])
	if err != nil {
		return 0
	}
	return d
}
