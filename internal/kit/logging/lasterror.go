package logging

import "github.com/go-logr/logr"

// LastError logs an error of a repeated operation only if its text differs from that of the previous error. The zero
// value is ready for use, by one goroutine.
type LastError struct{ text string }

// Log logs err unless it has the text of the previous error.
func (l *LastError) Log(log logr.Logger, err error, message string, keysAndValues ...any) {
	if text := err.Error(); text != l.text {
		l.text = text
		log.WithCallDepth(1).Error(err, message, keysAndValues...)
	}
}

// Clear is called after success: the next error is logged whatever its text. It reports whether there was an error
// before.
func (l *LastError) Clear() bool {
	failed := l.text != ""
	l.text = ""
	return failed
}
