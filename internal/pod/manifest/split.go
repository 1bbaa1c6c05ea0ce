package manifest

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/deckhand-node/deckhand/internal/kit/yaml"
)

// chunk is a piece of text between two document separators.
type chunk struct {
	text []byte
	// line is the number of the chunk's first line in the whole text, from 1.
	line int
}

// firstLine returns the line, in the whole text, of the chunk's first byte that isn't white space.
func (c chunk) firstLine() int {
	rest := bytes.TrimLeft(c.text, " \t\r\n")
	return c.line + bytes.Count(c.text[:len(c.text)-len(rest)], []byte{'\n'})
}

// parse reads the nodes of the chunk's documents. If there is an error, it also returns the nodes of the documents
// before the error.
func (c chunk) parse() ([]*yaml.Node, *Error) {
	if err := checkText(c); err != nil {
		return nil, err
	}
	if err := checkSize(c); err != nil {
		return nil, err
	}
	roots, err := yaml.Parse(c.text, c.line, maxDocuments)
	if err != nil {
		above := c.line - 1
		clear := *err
		clear.Line -= above
		clear = yaml.Explain(clear, c.text)
		clear.Line += above
		err = &clear
	}
	return roots, err
}

// plainText removes the byte order mark of UTF-8. UTF-16 is an error, because the message of the YAML parser would
// be misleading.
func plainText(data []byte) ([]byte, *Error) {
	if bytes.HasPrefix(data, []byte{0xFF, 0xFE}) || bytes.HasPrefix(data, []byte{0xFE, 0xFF}) {
		return nil, &Error{Line: 1, Message: "the file is UTF-16: save it as UTF-8"}
	}
	return bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")), nil
}

// checkText returns an error for NUL bytes and for bytes that aren't UTF-8.
func checkText(c chunk) *Error {
	at, what := bytes.IndexByte(c.text, 0), "a NUL byte: this is not a text file"
	if at < 0 && !utf8.Valid(c.text) {
		at, what = firstInvalid(c.text), "bytes that are not UTF-8 text"
	}
	if at < 0 {
		return nil
	}
	return &Error{Line: c.line + bytes.Count(c.text[:at], []byte{'\n'}), Message: "it holds " + what}
}

func firstInvalid(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// checkSize returns an error for a document that would take too much memory to read. It counts the bytes that can
// begin an element: see maxMarks.
func checkSize(c chunk) *Error {
	marks := 0
	for _, b := range c.text {
		switch b {
		case ',', ':', '-', '[', '{', '?', '\n', '\r':
			marks++
		}
	}
	if marks <= maxMarks {
		return nil
	}
	return &Error{Line: c.line, Message: fmt.Sprintf(
		"the document is too large (more than %d elements): use several documents or files", maxMarks)}
}

// split splits a text at the lines that separate YAML documents: "---" and "...", alone or followed by white space
// and other text. YAML forbids such lines anywhere else, even in quoted and block text, so no document is split in
// two. Chunks that only have comments and directives are left out.
func split(text []byte) []chunk {
	var chunks []chunk
	keep := func(c chunk) {
		if !empty(c.text) {
			chunks = append(chunks, c)
		}
	}
	cur, start := chunk{line: 1}, 0
	for line, at := 1, 0; at < len(text); line++ {
		end := len(text)
		if nl := bytes.IndexByte(text[at:], '\n'); nl >= 0 {
			end = at + nl + 1
		}
		if separator(text[at:end]) {
			cur.text = text[start:at]
			keep(cur)
			cur, start = chunk{line: line}, at+len("---")
		}
		at = end
	}
	cur.text = text[start:]
	keep(cur)
	return chunks
}

func separator(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0
}

// empty reports whether the text has nothing but white space, comments and directives.
func empty(text []byte) bool {
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		if len(line) > 0 && line[0] == '%' {
			continue
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
