package podlogs

import "bytes"

// header is what precedes the text of a CRI log entry.
type header struct {
	stamp   []byte
	stderr  bool
	partial bool
	// size is how many bytes of the entry the header takes.
	size int
}

// maxHeader is longer than any header: a time of 35 bytes, a stream of 6, tags.
const maxHeader = 128

// parseHeader reads the header of an entry; false if the bytes aren't one.
func parseHeader(entry []byte) (header, bool) {
	stamp, rest, ok := bytes.Cut(entry[:min(len(entry), maxHeader)], []byte{' '})
	// "2006-01-02T15:04:05Z" is the shortest form.
	if !ok || len(stamp) < 20 || stamp[10] != 'T' {
		return header{}, false
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return header{}, false
	}
	h := header{stamp: stamp, stderr: string(stream) == "stderr"}
	if !h.stderr && string(stream) != "stdout" {
		return header{}, false
	}
	h.size = len(stamp) + len(stream) + 2
	tags := rest
	if end := bytes.IndexAny(rest, " \n"); end >= 0 {
		tags = rest[:end]
		h.size += end
		if rest[end] == ' ' {
			h.size++
		}
	} else {
		h.size += len(rest)
	}
	first, _, _ := bytes.Cut(tags, []byte{':'})
	h.partial = string(first) == "P"
	return h, true
}
