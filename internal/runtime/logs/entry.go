package logs

import "bytes"

// header is the part of a CRI log entry before its text. It is small enough to be passed in CPU registers.
type header struct {
	// stamp is the length of the timestamp in bytes, size that of the whole header.
	stamp, size     int
	stderr, partial bool
}

// maxHeader is longer than any header: a timestamp of 35 bytes, a stream of 6, tags.
const maxHeader = 128

// fullStdout and fullStderr are the bytes between timestamp and text in nearly all entries.
const (
	fullStdout = " stdout F "
	fullStderr = " stderr F "
)

// parseHeader parses the header of an entry; false if it isn't one.
func parseHeader(entry []byte) (header, bool) {
	end := bytes.IndexByte(entry[:min(len(entry), maxHeader)], ' ')
	// "2006-01-02T15:04:05Z" is the shortest form.
	if end < 20 || entry[10] != 'T' {
		return header{}, false
	}
	h := header{stamp: end, size: end + len(fullStdout)}
	if len(entry) >= h.size {
		switch string(entry[end:h.size]) {
		case fullStdout:
			return h, true
		case fullStderr:
			h.stderr = true
			return h, true
		}
	}
	return h.parseRest(entry[end+1 : min(len(entry), maxHeader)])
}

// parseRest parses the rest of a header after the timestamp, in its less common forms.
func (h header) parseRest(entry []byte) (header, bool) {
	stream, tags, ok := bytes.Cut(entry, []byte{' '})
	h.stderr = string(stream) == "stderr"
	if !ok || !h.stderr && string(stream) != "stdout" {
		return header{}, false
	}
	h.size = h.stamp + len(stream) + 2
	if end := bytes.IndexAny(tags, " \n"); end >= 0 {
		h.size += end
		if tags[end] == ' ' {
			h.size++
		}
		tags = tags[:end]
	} else {
		h.size += len(tags)
	}
	first, _, _ := bytes.Cut(tags, []byte{':'})
	h.partial = string(first) == "P"
	return h, true
}

// entryEndsLine reports, from an entry's first maxHeader bytes, whether it is the last one of a line: all but
// partial entries are.
func entryEndsLine(entry []byte) bool {
	h, ok := parseHeader(entry)
	return !ok || !h.partial
}
