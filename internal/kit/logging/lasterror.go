package logging

import "github.com/go-logr/logr"

// LastError logs an error of repeated work once: again only when its text differs from that of the last one. The zero
// value is ready for use, by one goroutine.
type LastError struct{ text string }

// Log logs err unless it has the text of the last one.
func (l *LastError) Log(log logr.Logger, err error, message string, keysAndValues ...any) {
	if text := err.Error(); text != l.text {
		l.text = text
		log.WithCallDepth(1).Error(err, message, keysAndValues...)
	}
}

// Clear is called after success: the next error is logged whatever its text. It reports whether there was one before.
func (l *LastError) Clear() bool {
	failed := l.text != ""
	l.text = ""
	return failed
}
