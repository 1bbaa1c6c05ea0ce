package logs

import "bytes"

// header is what precedes the text of a CRI log entry. It is small enough for the processor's registers.
type header struct {
	// stamp and size are how many bytes of the entry its time takes, and all of the header.
	stamp, size     int
	stderr, partial bool
}

// maxHeader is longer than any header: a time of 35 bytes, a stream of 6, tags.
const maxHeader = 128

// fullStdout and fullStderr are what nearly all entries have between their time and their text.
const (
	fullStdout = " stdout F "
	fullStderr = " stderr F "
)

// parseHeader reads the header of an entry; false if the bytes aren't one.
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

// parseRest reads what follows the time in a header, in its less usual forms.
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

// entryEndsLine reports, from an entry's first maxHeader bytes, whether it is the last one of a
// line: all are but partial ones.
func entryEndsLine(entry []byte) bool {
	h, ok := parseHeader(entry)
	return !ok || !h.partial
}
