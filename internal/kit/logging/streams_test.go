package logging_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

// file is what a stream ends in: it keeps every write apart.
type file struct {
	writes []string
	fails  error
}

func (f *file) Write(p []byte) (int, error) {
	if f.fails != nil {
		return 0, f.fails
	}
	f.writes = append(f.writes, string(p))
	return len(p), nil
}

func TestSplit(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out, errs bytes.Buffer
		log := open(t, logging.Config{Format: format, SplitStream: true, Out: &out, Err: &errs}).Logger()
		log.Info("Well")
		log.Error(errors.New("e"), "Badly")
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "Well") {
			t.Errorf("%s: out has %q", format, got)
		}
		if got := errs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "Badly") {
			t.Errorf("%s: err has %q", format, got)
		}
	}
}

// held is a log that holds lines back for a second, and what it has written of them.
func held(t *testing.T, size int64, f *file) (*logging.Log, *file) {
	errs := &file{}
	return open(t, logging.Config{Format: "text", SplitStream: true, InfoBufferSize: size, FlushFrequency: time.Second, Out: f, Err: errs}), errs
}

func TestLinesAreHeldBackForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{}
		l, errs := held(t, 1<<20, f)
		log := l.Logger()
		expect := func(when string, writes int, last string) {
			t.Helper()
			synctest.Wait()
			if len(f.writes) != writes || writes > 0 && !strings.Contains(f.writes[writes-1], last) {
				t.Fatalf("%s: %q was written", when, f.writes)
			}
		}
		log.Info("one")
		time.Sleep(600 * time.Millisecond)
		log.Info("two")
		time.Sleep(300 * time.Millisecond)
		expect("too early", 0, "")
		log.Error(nil, "badly")
		if len(errs.writes) != 1 {
			t.Errorf("errors have to wait: %q", errs.writes)
		}
		time.Sleep(100 * time.Millisecond)
		expect("a second after the first", 1, "two")
		time.Sleep(time.Hour)
		expect("nothing to do", 1, "two")
		log.Info("three")
		l.Flush()
		expect("flushed", 2, "three")
		time.Sleep(time.Hour)
		log.Info("four")
		time.Sleep(999 * time.Millisecond)
		expect("an old deadline", 2, "three")
		l.Close()
		expect("closed", 3, "four")
		log.Info("five")
		expect("after the end", 4, "five")
	})
}

func TestABufferTakesWholeLines(t *testing.T) {
	f := &file{}
	l, _ := held(t, 200, f)
	for range 10 {
		l.Logger().Info("some line")
	}
	l.Logger().Info(strings.Repeat("x", 1000))
	l.Close()
	lines := 0
	for _, w := range f.writes {
		if !strings.HasPrefix(w, "I") || !strings.HasSuffix(w, "\n") || len(w) > 200 && strings.Count(w, "\n") > 1 {
			t.Errorf("one write of %q", w)
		}
		lines += strings.Count(w, "\n")
	}
	if lines != 11 || len(f.writes) > 8 {
		t.Errorf("%d lines in %d writes", lines, len(f.writes))
	}
}

// A disk that is full for a while costs the lines of that time, not all later ones.
func TestLoggingGoesOnAfterAFailure(t *testing.T) {
	f := &file{fails: errors.New("no space left on device")}
	l, _ := held(t, 1<<20, f)
	l.Logger().Info("lost")
	l.Flush()
	f.fails = nil
	l.Logger().Info("kept")
	l.Flush()
	if len(f.writes) != 1 || !strings.Contains(f.writes[0], "kept") || strings.Contains(f.writes[0], "lost") {
		t.Errorf("%q was written", f.writes)
	}
}
