package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
)

const (
	// errorTrailer is the HTTP trailer with an error that occurred after log lines were sent.
	errorTrailer = "Deckhand-Error"
	// nextTrailer is the HTTP trailer with the LogRequest.AtLeast of the next instance, after a followed instance has
	// ended. It is missing if there won't be another instance.
	nextTrailer = "Deckhand-Next-Instance"
	// instanceHeader is the HTTP header with the number of the instance that the log belongs to.
	instanceHeader = "Deckhand-Instance"
)

func (s *Server) podLogs(w http.ResponseWriter, r *http.Request) error {
	request, err := parseLogRequest(r.URL.Query())
	if err != nil {
		return &StatusError{http.StatusBadRequest, err}
	}
	view, ok := s.agent.Pod(request.Namespace, request.Pod)
	if !ok {
		return notFound(request.Namespace, request.Pod)
	}
	status := pod.StatusNamed(&view.Pod.Status, request.Container)
	if status == nil {
		return &StatusError{http.StatusNotFound,
			fmt.Errorf("pod %s has no container %q", request.Pod, request.Container)}
	}
	log := logs.Log{Namespace: request.Namespace, Pod: request.Pod, UID: view.Pod.UID, Container: request.Container}
	attempts, err := s.logs.Attempts(log)
	if err != nil {
		return err
	}
	attempt, err := chooseAttempt(request, status, attempts)
	if err != nil {
		return err
	}
	wake, cancel := s.agent.Changed()
	defer cancel()
	followed := &logs.Followed{Log: log, Wake: wake, Latest: func() *v1.Pod {
		if view, ok := s.agent.Pod(log.Namespace, log.Pod); ok {
			return view.Pod
		}
		return nil
	}}
	text := &logWriter{w: w, flusher: http.NewResponseController(w)}
	copied := logs.Request{
		Log: log, Attempt: attempt, OrLater: request.AtLeast > 0, Onward: request.AllInstances,
		Options: request.Options,
		Begun: func(n int) {
			attempt = n
			text.instance(n)
		},
	}
	err = s.logs.Copy(r.Context(), text, copied, followed)
	if r.Context().Err() != nil {
		err = errors.New("the agent stopped") // if the client is gone instead, it doesn't receive this error
		text.start()
	}
	if err == nil {
		text.start()
		if now := followed.Current(); request.Follow && (!now.Final || now.Attempt > attempt) {
			w.Header().Set(nextTrailer, strconv.Itoa(attempt+1))
		}
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = &StatusError{http.StatusNotFound,
			fmt.Errorf("the log of container %s in pod %s is gone", request.Container, request.Pod)}
	}
	if text.begun {
		w.Header().Set(errorTrailer, err.Error())
		return nil
	}
	return err
}

// chooseAttempt returns the number of the first instance whose log is sent; attempts are those that have a log. The
// restart count in the status is the number of the newest instance.
func chooseAttempt(request LogRequest, status *v1.ContainerStatus, attempts []int) (int, error) {
	switch {
	case request.AtLeast > 0:
		return request.AtLeast, nil
	case request.AllInstances:
		if len(attempts) > 0 {
			return attempts[0], nil
		}
		return int(status.RestartCount), nil
	}
	attempt, err := logs.Choose(request.Pod, status, request.Previous, attempts)
	if err != nil {
		return 0, &StatusError{http.StatusBadRequest, err}
	}
	return attempt, nil
}

// logWriter flushes every batch of lines.
type logWriter struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	begun   bool
}

var _ io.Writer = (*logWriter)(nil)

func (l *logWriter) start() {
	if l.begun {
		return
	}
	l.begun = true
	l.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	l.w.Header().Set("Trailer", errorTrailer+", "+nextTrailer)
}

// instance sends the HTTP header with the instance's number at once, before the log has any line.
func (l *logWriter) instance(n int) {
	if l.begun {
		return
	}
	l.w.Header().Set(instanceHeader, strconv.Itoa(n))
	l.start()
	// If the client is gone, Write fails too.
	_ = l.flusher.Flush()
}

func (l *logWriter) Write(b []byte) (int, error) {
	l.start()
	n, err := l.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, l.flusher.Flush()
}
