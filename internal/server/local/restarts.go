package local

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// FollowLogs copies a container's log to out as it grows. When the container restarts, it continues with the log of the
// next instance, unless request.Previous is set. It ends when there won't be another instance, when ctx ends, or when
// LimitBytes were copied. Before the log of each instance except the first, it calls the function restarted with the
// number of that instance, which is the restart count.
func (c *Client) FollowLogs(ctx context.Context, request LogRequest, out io.Writer,
	restarted func(instance int)) error {
	request.Follow = true
	for {
		response, err := c.do(ctx, http.MethodGet, "/v1/logs", request.query(), nil)
		if request.AtLeast > 0 && IsNotFound(err) {
			return nil // the pod was removed meanwhile, or ended before its restart
		}
		if err != nil {
			return err
		}
		if request.AtLeast > 0 {
			// Without the header, the log is of the requested instance.
			if n, err := strconv.Atoi(response.Header.Get(instanceHeader)); err == nil {
				request.AtLeast = n
			}
			restarted(request.AtLeast)
		}
		counted := &lastByte{w: out}
		_, err = io.Copy(counted, &trailedBody{response})
		response.Body.Close()
		if err != nil {
			return fmt.Errorf("read the log of %s in %s/%s: %w", request.Container, request.Namespace, request.Pod, err)
		}
		next := response.Trailer.Get(nextTrailer)
		limited := request.LimitBytes > 0
		request.LimitBytes -= counted.written
		if next == "" || request.Previous || limited && request.LimitBytes <= 0 {
			return nil
		}
		if request.AtLeast, err = strconv.Atoi(next); err != nil {
			return fmt.Errorf("read the agent's answer: %w", err)
		}
		request.LimitBytes = max(0, request.LimitBytes)
		request.Tail = -1
		if err := counted.endLine(); err != nil {
			return err
		}
	}
}

// lastByte remembers the last byte that was written.
type lastByte struct {
	w       io.Writer
	written int64
	last    byte
}

func (l *lastByte) Write(b []byte) (int, error) {
	n, err := l.w.Write(b)
	if n > 0 {
		l.written, l.last = l.written+int64(n), b[n-1]
	}
	return n, err
}

func (l *lastByte) endLine() error {
	if l.written == 0 || l.last == '\n' {
		return nil
	}
	_, err := l.w.Write([]byte{'\n'})
	return err
}
