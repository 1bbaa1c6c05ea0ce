package registry

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Failure is how requests are to fail.
type Failure struct {
	// Kind and Repository say which requests; empty stands for all.
	Kind       Kind
	Repository string
	// Status is the answer, such as 429 or 500.
	Status int
	// RetryAfter is sent along if it isn't zero, in whole seconds.
	RetryAfter time.Duration
	// Times is how many requests fail.
	Times int
}

// Fail lets requests fail, those of earlier failures first.
func (r *Registry) Fail(f Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, &f)
}

// Recover ends all failures. What is stopped, cut off or slow stays so.
func (r *Registry) Recover() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = nil
}

// fail lets a request fail if it is to.
func (r *Registry) fail(w http.ResponseWriter, about Request) bool {
	r.mu.Lock()
	i := slices.IndexFunc(r.failures, func(f *Failure) bool {
		return f.Times > 0 && (f.Kind == "" || f.Kind == about.Kind) && (f.Repository == "" || f.Repository == about.Repository)
	})
	if i < 0 {
		r.mu.Unlock()
		return false
	}
	f := r.failures[i]
	f.Times--
	r.mu.Unlock()
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter/time.Second)))
	}
	code := "UNKNOWN"
	if f.Status == http.StatusTooManyRequests {
		code = "TOOMANYREQUESTS"
	}
	refuse(w, f.Status, code, "this request was to fail")
	return true
}

// fault is what happens to answers with one blob.
type fault struct {
	// rate is in bytes a second; 0 for no limit.
	rate int64
	// stop is what to stop before; nil for nothing.
	stop *Stop
	// cut is how many answers more break off after cutAfter bytes.
	cut      int
	cutAfter int64
}

// Stop is where answers with a blob stop.
type Stop struct {
	after    int64
	reached  chan struct{}
	once     sync.Once
	released chan struct{}
	release  sync.Once
}

// Reached is closed once an answer has stopped here.
func (s *Stop) Reached() <-chan struct{} { return s.reached }

// Release lets all go on. It may be called again.
func (s *Stop) Release() { s.release.Do(func() { close(s.released) }) }

// StopBlob stops answers with this blob, given by its digest, after so many of its bytes,
// until Release.
func (r *Registry) StopBlob(digest string, after int64) *Stop {
	s := &Stop{after: after, reached: make(chan struct{}), released: make(chan struct{})}
	r.change(digest, func(f *fault) { f.stop = s })
	return s
}

// CutBlob breaks the next so many answers with this blob off after so many of its bytes.
func (r *Registry) CutBlob(digest string, after int64, times int) {
	r.change(digest, func(f *fault) { f.cutAfter, f.cut = after, times })
}

// SlowBlob limits answers with this blob to so many bytes a second each.
func (r *Registry) SlowBlob(digest string, bytesPerSecond int64) {
	r.change(digest, func(f *fault) { f.rate = bytesPerSecond })
}

func (r *Registry) change(digest string, do func(*fault)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults[digest] == nil {
		r.faults[digest] = &fault{}
	}
	do(r.faults[digest])
}

// blob answers with a blob or a part of one, which the store doesn't do if the
// part's end is left open.
func (r *Registry) blob(w http.ResponseWriter, q *http.Request, about Request) {
	digest, err := v1.NewHash(about.Reference)
	if err != nil {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", "invalid digest")
		return
	}
	content, err := r.blobs.Get(q.Context(), about.Repository, digest)
	if err != nil {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", "unknown blob")
		return
	}
	defer content.Close()
	data, err := io.ReadAll(content)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN", "the blob can't be read")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", about.Reference)
	http.ServeContent(r.faulty(w, q, about.Reference), q, "", time.Time{}, bytes.NewReader(data))
}

// faulty is w with the faults of the blob as they are now.
func (r *Registry) faulty(w http.ResponseWriter, q *http.Request, digest string) http.ResponseWriter {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.faults[digest]
	if f == nil {
		return w
	}
	out := &faultyWriter{ResponseWriter: w, fault: *f, gone: q.Context().Done(), closing: r.closing, cutAt: -1}
	if f.cut > 0 {
		f.cut--
		out.cutAt = f.cutAfter
	}
	return out
}

// faultyWriter writes a blob as its faults have it.
type faultyWriter struct {
	http.ResponseWriter
	fault         fault
	cutAt         int64 // -1 for not at all
	written       int64
	gone, closing <-chan struct{}
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	total := 0
	for len(p) > 0 {
		n := w.next(len(p))
		if n == 0 {
			// The way to break a connection off; net/http expects this value.
			panic(http.ErrAbortHandler)
		}
		m, err := w.ResponseWriter.Write(p[:n])
		total += m
		w.written += int64(m)
		if err != nil {
			return total, err
		}
		p = p[m:]
	}
	return total, nil
}

// next waits until something may be written, and tells how much of so many bytes; 0
// if the connection is to break off.
func (w *faultyWriter) next(want int) int {
	n := int64(want)
	if s := w.fault.stop; s != nil {
		if left := s.after - w.written; left > 0 {
			n = min(n, left)
		} else if !w.pause(s) {
			return 0
		}
	}
	if w.cutAt >= 0 {
		n = min(n, w.cutAt-w.written)
		if n <= 0 {
			w.flush()
			return 0
		}
	}
	if rate := w.fault.rate; rate > 0 {
		n = min(n, max(1, rate/20))
		wait := time.NewTimer(time.Duration(n) * time.Second / time.Duration(rate))
		defer wait.Stop()
		w.flush()
		if !w.until(wait.C) {
			return 0
		}
	}
	return int(n)
}

// pause stops here until the release; false if nobody waits for the answer any more.
func (w *faultyWriter) pause(s *Stop) bool {
	w.flush()
	s.once.Do(func() { close(s.reached) })
	select {
	case <-s.released:
		w.fault.stop = nil
		return true
	case <-w.gone:
	case <-w.closing:
	}
	return false
}

func (w *faultyWriter) until(t <-chan time.Time) bool {
	select {
	case <-t:
		return true
	case <-w.gone:
	case <-w.closing:
	}
	return false
}

// flush sends what was written, so that the other side has it.
func (w *faultyWriter) flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
