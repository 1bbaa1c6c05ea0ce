package handler

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// dialTCP connects to host, an address or a name that the node resolves, until ctx is done. When the connection is
// closed, it is reset: otherwise a thousand probes a second would leave sixty thousand sockets in TIME_WAIT and as many
// conntrack entries.
func dialTCP(ctx context.Context, host string, port int) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1} // the connection ends before a first keep-alive
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn) // the type that DialContext returns for "tcp"
	if err := conn.SetLinger(0); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// unanswered is the outcome of a probe without an answer. The outcome is Unknown if this process couldn't open a
// connection, because it or the node has too many files open or too little memory: that says nothing about the
// container.
func unanswered(err error) Outcome {
	for _, own := range []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, own) {
			return unknown(err)
		}
	}
	return failure(err.Error())
}

// abortOnDone makes all reads and writes on conn fail as soon as ctx is done, so that callers needn't wait for ctx
// themselves. Call release before closing the connection.
func abortOnDone(ctx context.Context, conn net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() {
		// An error means that the connection is closed, which also aborts.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
}
