package env

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ParseFile returns the variables of an env file; if a name occurs twice, the later one counts. The format is a
// subset of the POSIX shell's
// (https://kubernetes.io/docs/tasks/inject-data-application/define-environment-variable-via-file/#env-file-syntax):
//
//	# lines that start with # are comments, also after blanks
//	NAME='value'
//	OTHER = 'blanks around = are ignored,
//	line breaks and everything else between the quotes count'
//
// Only blanks may follow the closing quote on its line: neither another string, which a shell would concatenate,
// nor a comment. Names are restricted as in the API: printable ASCII without '=', at most 128 bytes. A value has at
// most 32 KiB, the file 64 KiB.
//
// Errors have the line's number but quote nothing of it.
func ParseFile(text []byte) (map[string]string, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it is larger than the %d KiB an env file may have", maxFile>>10)
	}
	vars := make(map[string]string)
	for line := 1; ; {
		text = bytes.TrimLeft(text, " \t")
		switch {
		case len(text) == 0:
			return vars, nil
		case text[0] == '\n':
			text = text[1:]
			line++
			continue
		case text[0] == '#':
			_, text = cutLine(text)
			line++
			continue
		}
		name, value, rest, err := declaration(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		vars[name] = value
		line += 1 + strings.Count(value, "\n")
		text = rest
	}
}

// declaration parses NAME='value' at the beginning of text, including the end of its last line.
func declaration(text []byte) (name, value string, rest []byte, err error) {
	line, _ := cutLine(text)
	head, _, ok := bytes.Cut(line, []byte{'='})
	if !ok {
		return "", "", nil, errors.New("there is no \"=\" in it: write NAME='value'")
	}
	text = bytes.TrimLeft(text[len(head)+1:], " \t")
	if name, err = variable(head); err != nil {
		return "", "", nil, err
	}
	if len(text) == 0 || text[0] != '\'' {
		return "", "", nil, errors.New("the value isn't in single quotes: write NAME='value'")
	}
	quoted, text, ok := bytes.Cut(text[1:], []byte{'\''})
	switch {
	case !ok:
		return "", "", nil, errors.New("the value has no closing quote")
	case len(quoted) > maxValue:
		return "", "", nil, fmt.Errorf("the value is longer than the %d KiB it may have", maxValue>>10)
	case bytes.IndexByte(quoted, 0) >= 0:
		return "", "", nil, errors.New("the value has a NUL byte, which no environment variable can have")
	}
	tail, rest := cutLine(text)
	switch tail = bytes.TrimLeft(tail, " \t"); {
	case len(tail) == 0:
		return name, string(quoted), rest, nil
	case tail[0] == '\r':
		return "", "", nil, errors.New("a carriage return follows the value: end lines with a line feed alone")
	}
	return "", "", nil, errors.New(
		"something follows the closing quote of the value, and nothing may: neither another string nor a comment")
}

// variable parses the name before "=".
func variable(head []byte) (string, error) {
	name := string(bytes.TrimRight(head, " \t"))
	switch {
	case len(name) > maxName:
		return "", fmt.Errorf("the name is longer than the %d bytes it may have", maxName)
	case len(validation.IsRelaxedEnvVarName(name)) > 0:
		return "", errors.New("the name is empty or has other characters than printable ASCII")
	}
	return name, nil
}

// cutLine splits the first line off text, without its line feed.
func cutLine(text []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(text, []byte{'\n'})
	return line, rest
}
