package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one error in a configuration, with the place to correct: a line of a File, or a Flag. If the setting is
// missing and no file was read, it has only a Field.
type Problem struct {
	// File is the absolute path of a configuration file, or the name that CheckFile was called with.
	File string `json:"file,omitempty"`
	// Line is the line in File, from 1; 0 for the file as a whole.
	Line int `json:"line,omitempty"`
	// Flag is a flag with its dashes: "--max-pods".
	Flag string `json:"flag,omitempty"`
	// Field is the path of a setting, such as "logging.verbosity" or "evictionHard[memory.available]". It is empty if
	// Flag identifies the setting, or if the problem is about no single setting.
	Field string `json:"field,omitempty"`
	// Message describes the error and the valid values. It contains no secrets.
	Message string `json:"message"`
}

// String formats the problem on one line: "FILE:LINE: field: message", "--flag: message".
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

// InvalidError is the error of an invalid configuration, with all of its problems: by file and line, flags last.
type InvalidError struct {
	Problems []Problem
}

// Error formats a single problem on one line. It formats several problems as a heading and a line for each.
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

// maxProblems limits how many problems are reported.
const maxProblems = 200

// atMost cuts a list of problems to the length most. The last element then says how many problems were omitted.
func atMost(most int, problems []Problem) []Problem {
	if len(problems) <= most {
		return problems
	}
	last := problems[most]
	last.Field, last.Message = "", fmt.Sprintf("here and further on there are %d more problems", len(problems)-most)
	return append(problems[:most:most], last)
}

// sortProblems sorts problems in the order in which a user corrects them: by file in the order of precedence, by
// line, then flags.
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
