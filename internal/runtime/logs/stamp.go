package logs

import (
	"bytes"
	"time"
)

// stampFormat is RFC 3339 with nine digits for the fraction of a second, so that lines are aligned.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// appendStamp appends an entry's timestamp in stampFormat and a space; nothing if the timestamp is invalid.
func appendStamp(to, stamp []byte) []byte {
	const seconds = len("2006-01-02T15:04:05")
	// Nearly all timestamps are in UTC with a fraction of a second without its trailing zeros. Appending the zeros
	// is much faster than parsing and formatting the time.
	if fraction, ok := bytes.CutSuffix(stamp, []byte{'Z'}); ok && isUTC(fraction) {
		to = append(to, fraction[:seconds]...)
		if fraction = fraction[seconds:]; len(fraction) == 0 {
			fraction = []byte{'.'}
		}
		to = append(to, fraction...)
		return append(append(to, "000000000"[len(fraction)-1:]...), 'Z', ' ')
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return to
	}
	return append(at.AppendFormat(to, stampFormat), ' ')
}

// isUTC reports whether a timestamp without its zone has the form 2006-01-02T15:04:05.999999999, with one to nine
// digits after the point, or no fraction and no point.
func isUTC(stamp []byte) bool {
	const form = "0000-00-00T00:00:00.000000000"
	if len(stamp) > len(form) || len(stamp) < len("0000-00-00T00:00:00") || len(stamp) == len("0000-00-00T00:00:00.") {
		return false
	}
	for i, c := range stamp {
		if form[i] != '0' && c != form[i] || form[i] == '0' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
