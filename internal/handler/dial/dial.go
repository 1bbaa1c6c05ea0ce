// Package dial opens the TCP connections of probes and hooks: each serves one try
// and leaves nothing behind.
package dial

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"
)

// TCP connects to host, an address or a name that the node resolves, until ctx ends.
// Closing the connection resets it: a thousand probes a second would otherwise leave
// sixty thousand sockets in TIME_WAIT and as many conntrack entries.
func TCP(ctx context.Context, host string, port int) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1} // the connection is over before a first keep-alive
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn) // that's what "tcp" makes
	if err := conn.SetLinger(0); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// CutOff makes all reading and writing on conn fail as soon as ctx ends, so that
// nobody has to wait beside them. Call release before the connection is closed.
func CutOff(ctx context.Context, conn net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() {
		// An error means that the connection is closed, which cuts off as well.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
}
