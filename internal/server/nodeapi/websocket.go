package nodeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// SPDY, and WebSocket up to version 4, are passed through to the runtime. Runtimes don't support the newer WebSocket
// protocols: version 5 of exec and attach (KEP-4006), and port-forward, which tunnels SPDY in WebSocket messages.
// Both are translated to SPDY here.

// tunnelProtocol tunnels SPDY in WebSocket messages.
const tunnelProtocol = portforward.WebsocketsSPDYTunnelingPrefix + portforward.PortForwardV1Name

const (
	// frameSize is the maximum payload of a WebSocket message to the client, in bytes.
	frameSize = 16 << 10
	// farewell is how long a client may take to read the last messages.
	farewell = 5 * time.Second
	// maxRefusal is the maximum number of bytes that are read of the runtime's error message.
	maxRefusal = 4 << 10
)

// offers reports whether a client requests a WebSocket with this subprotocol.
func offers(r *http.Request, protocol string) bool {
	return websocket.IsWebSocketUpgrade(r) && slices.Contains(websocket.Subprotocols(r), protocol)
}

// upgrade upgrades a request to a WebSocket. If that fails, it has answered with the error.
func upgrade(w http.ResponseWriter, r *http.Request, protocol string) (*websocket.Conn, error) {
	return (&websocket.Upgrader{
		Subprotocols: []string{protocol}, ReadBufferSize: frameSize, WriteBufferSize: frameSize + 16,
		// The client is authenticated. API servers pass on the Origin header of their clients.
		CheckOrigin: func(*http.Request) bool { return true },
	}).Upgrade(w, r, nil)
}

// say sends the close message; the client closes the connection after it.
func say(client *websocket.Conn, code int) {
	until := time.Now().Add(farewell)
	// an error means that the client is gone
	_ = client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), until)
	_ = client.SetReadDeadline(until)
}

// channels maps the channels of version 5 to the stream types of SPDY.
var channels = [...]string{
	remotecommand.StreamStdIn: v1.StreamTypeStdin, remotecommand.StreamStdOut: v1.StreamTypeStdout,
	remotecommand.StreamStdErr: v1.StreamTypeStderr,
	remotecommand.StreamErr:    v1.StreamTypeError, remotecommand.StreamResize: v1.StreamTypeResize,
}

// endOfChannel is the first byte of a message that closes a channel; the second byte is the channel's number.
const endOfChannel = 255

// translate connects each channel of a WebSocket with the corresponding SPDY stream of the runtime.
func (a *api) translate(w http.ResponseWriter, r *http.Request, at *url.URL, o streamOptions) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // closes the connection to the runtime
	runtime, err := a.overSPDY(ctx, at)
	if err != nil {
		refusal{}.Error(w, r, err)
		return
	}
	// cancel runs before Close: an orderly close needs the runtime to read, which it may never do.
	defer runtime.Close()
	defer cancel()
	client, err := upgrade(w, r, remotecommand.StreamProtocolV5Name)
	if err != nil {
		return
	}
	defer client.Close()
	s := &session{client: client}
	wanted := [len(channels)]bool{o.stdin, o.stdout, o.stderr, remotecommand.StreamErr: true,
		remotecommand.StreamResize: o.tty}
	for n, is := range wanted {
		if !is {
			continue
		}
		// The runtime starts the command when all streams exist.
		if s.streams[n], err = runtime.CreateStream(http.Header{v1.StreamType: {channels[n]}}); err != nil {
			s.fail(fmt.Errorf("the container runtime has no stream for %s: %w", channels[n], err))
			say(client, websocket.CloseNormalClosure)
			return
		}
	}
	s.run(cancel)
}

// overSPDY opens a SPDY connection to the runtime's streams.
func (a *api) overSPDY(ctx context.Context, at *url.URL) (httpstream.Connection, error) {
	dialer, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: a.streams})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(httpstream.HeaderProtocolVersion, remotecommand.StreamProtocolV4Name)
	response, err := dialer.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	runtime, err := dialer.NewConnection(response)
	if err != nil {
		return nil, err
	}
	if got := response.Header.Get(httpstream.HeaderProtocolVersion); got != remotecommand.StreamProtocolV4Name {
		runtime.Close()
		return nil, fmt.Errorf("the container runtime speaks %q, not %s", got, remotecommand.StreamProtocolV4Name)
	}
	return runtime, nil
}

// session is an exec or attach of one client.
type session struct {
	client  *websocket.Conn
	streams [len(channels)]httpstream.Stream
	// writing is held while a message is sent.
	writing sync.Mutex
}

// run copies data both ways until the runtime's streams end or the client leaves. hangUp closes the connection to the
// runtime.
func (s *session) run(hangUp func()) {
	var in, out sync.WaitGroup
	in.Go(func() {
		defer hangUp()
		defer s.client.Close() // unblocks writes to a client that is gone
		s.fromClient()
	})
	for _, n := range []int{remotecommand.StreamStdOut, remotecommand.StreamStdErr} {
		if s.streams[n] != nil {
			out.Go(func() { s.toClient(n, hangUp) })
		}
	}
	first := slices.IndexFunc(s.streams[1:], func(stream httpstream.Stream) bool { return stream != nil })
	_ = s.send([]byte{byte(1 + first)}) // signals that all streams exist; fromClient notices if the client is gone
	out.Go(func() {
		if !s.toClient(remotecommand.StreamErr, hangUp) {
			s.fail(errors.New("the streams ended before the container runtime returned the command's status"))
		}
	})
	out.Wait()
	hangUp()
	say(s.client, websocket.CloseNormalClosure)
	in.Wait()
}

// toClient sends the data of stream n to the client, and reports whether there was any. If the client is gone, it calls
// hangUp.
func (s *session) toClient(n int, hangUp func()) (some bool) {
	message := make([]byte, 1+frameSize)
	message[0] = byte(n)
	for {
		length, err := s.streams[n].Read(message[1:])
		if length > 0 {
			some = true
			if s.send(message[:1+length]) != nil {
				s.client.Close()
				hangUp()                                 // otherwise fromClient may wait for the runtime forever
				_, _ = io.Copy(io.Discard, s.streams[n]) // otherwise this stream would block the others
				return some
			}
		}
		if err != nil {
			return some
		}
	}
}

func (s *session) send(message []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.client.WriteMessage(websocket.BinaryMessage, message)
}

// fail sends the client an error instead of the command's result.
func (s *session) fail(err error) {
	status, marshalling := json.Marshal(apierrors.NewInternalError(err).Status())
	if marshalling == nil {
		_ = s.send(append([]byte{remotecommand.StreamErr}, status...)) // an error means that the client is gone
	}
}

// fromClient copies the client's messages to the streams until the client leaves.
func (s *session) fromClient() {
	buffer := make([]byte, frameSize)
	for {
		_, message, err := s.client.NextReader()
		if err != nil {
			return
		}
		head := buffer[:1]
		if _, err := io.ReadFull(message, head); err != nil {
			continue // an empty message; if the client is gone, NextReader fails next
		}
		over := head[0] == endOfChannel
		if over {
			if _, err := io.ReadFull(message, head); err != nil {
				continue
			}
		}
		var stream httpstream.Stream
		if n := int(head[0]); n == remotecommand.StreamStdIn || n == remotecommand.StreamResize {
			stream = s.streams[n]
		}
		switch {
		case stream == nil: // the runtime doesn't read this channel
		case over:
			_ = stream.Close() // the runtime may be gone
		default:
			_, _ = io.CopyBuffer(stream, message, buffer) // a command may end before its input does
		}
	}
}

// tunnel forwards the SPDY of a port-forward in WebSocket messages.
func (a *api) tunnel(w http.ResponseWriter, r *http.Request, at *url.URL) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, at.String(), nil)
	if err != nil {
		refusal{}.Error(w, r, err)
		return
	}
	request.Header = http.Header{
		httpstream.HeaderConnection: {httpstream.HeaderUpgrade}, httpstream.HeaderUpgrade: {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: {portforward.PortForwardV1Name},
	}
	response, err := a.streams.RoundTrip(request)
	if err != nil {
		refusal{}.Error(w, r, err)
		return
	}
	defer response.Body.Close()
	runtime, ok := response.Body.(io.ReadWriteCloser)
	if got := response.Header.Get(httpstream.HeaderUpgrade); !ok || !strings.EqualFold(got, spdy.HeaderSpdy31) {
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // as much as can be read
		refusal{}.Error(w, r, fmt.Errorf("the container runtime refuses to forward ports: %s: %s", response.Status,
			text))
		return
	}
	client, err := upgrade(w, r, tunnelProtocol)
	if err != nil {
		return
	}
	defer client.Close()
	// The request's context doesn't close hijacked connections, and either end may have stopped reading.
	defer context.AfterFunc(r.Context(), func() {
		runtime.Close()
		client.Close()
	})()
	var in sync.WaitGroup
	in.Go(func() {
		defer runtime.Close()
		defer client.Close()
		for {
			_, message, err := client.NextReader()
			if err != nil {
				return
			}
			_, _ = io.Copy(runtime, message) // if the runtime is gone, reading from it ends
		}
	})
	_, _ = io.Copy(messages{client}, runtime) // one end is gone
	runtime.Close()                           // the runtime may no longer read the client's data
	say(client, websocket.CloseNormalClosure)
	in.Wait()
}

// messages is an io.Writer that sends each Write as one binary WebSocket message.
type messages struct{ client *websocket.Conn }

// Write implements io.Writer.
func (m messages) Write(b []byte) (int, error) {
	if err := m.client.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}
