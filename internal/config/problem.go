package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing wrong with a configuration, and where: in a File, on the command
// line (Flag), or else in a Field that a flag should have set.
type Problem struct {
	// File is a configuration file, by its absolute path or the name it was given.
	File string `json:"file,omitempty"`
	// Line is the line in File, from 1; 0 for the file as a whole.
	Line int `json:"line,omitempty"`
	// Flag is a flag as it is written: "--max-pods".
	Flag string `json:"flag,omitempty"`
	// Field is the path of a setting, such as "logging.verbosity" or
	// "evictionHard[memory.available]"; empty where it is that of Flag, or there is none.
	Field string `json:"field,omitempty"`
	// Message says what is wrong and what would be right. It holds no secrets.
	Message string `json:"message"`
}

// String renders the problem on one line: "FILE:LINE: field: message", "--flag: message".
func (p Problem) String() string {
	var parts []string
	switch {
	case p.File != "" && p.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", p.File, p.Line))
	case p.File != "":
		parts = append(parts, p.File)
	case p.Flag != "":
		parts = append(parts, p.Flag)
	}
	if p.Field != "" {
		parts = append(parts, p.Field)
	}
	return strings.Join(append(parts, p.Message), ": ")
}

// InvalidError is a configuration that can't be used, with everything that is wrong about
// it: by file and line, flags last.
type InvalidError struct {
	Problems []Problem
}

// Error renders one problem on one line, and several on a line each below a heading.
func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return "invalid configuration: " + e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "invalid configuration, %d problems:", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// maxProblems is more than a person fixes at once.
const maxProblems = 200

// atMost cuts a list of problems short, and says so with the last.
func atMost(most int, problems []Problem) []Problem {
	if len(problems) <= most {
		return problems
	}
	last := problems[most]
	last.Field, last.Message = "", fmt.Sprintf("here and further on there are %d more problems", len(problems)-most)
	return append(problems[:most:most], last)
}

// sortProblems orders problems as a person goes through them: file by file
// in the order in which they are laid over each other, line by line; then flags.
func sortProblems(problems []Problem, files []string) {
	rank := func(p Problem) int {
		switch {
		case p.File != "":
			return slices.Index(files, p.File)
		case p.Flag == "":
			return len(files)
		default:
			return len(files) + 1
		}
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Line, b.Line))
	})
}
