package logs

import (
	"bytes"
	"time"
)

// stampFormat is RFC 3339 with nine digits, so that lines stay aligned.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// appendStamp appends an entry's time in stampFormat, and a space; nothing if it is no time.
func appendStamp(to, stamp []byte) []byte {
	const seconds = len("2006-01-02T15:04:05")
	// Nearly all are in UTC with some digits of a second, of which those at the end that are
	// zero were left out. To put these back is much faster than to compute with the time.
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

// isUTC reports whether a time without its zone has the form 2006-01-02T15:04:05.999999999,
// with up to nine digits behind the point, or none and no point.
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
