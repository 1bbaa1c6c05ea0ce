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

// What runtimes speak over SPDY, and over WebSocket up to version 4, goes through as it is. The newest of what is
// spoken over WebSocket, they don't: version 5 of exec and attach (KEP-4006), and port-forward, which is SPDY in
// messages of a WebSocket. It is translated into SPDY here.

// tunnelProtocol carries SPDY in messages.
const tunnelProtocol = portforward.WebsocketsSPDYTunnelingPrefix + portforward.PortForwardV1Name

const (
	// frameSize is how much a message carries at most that is sent here.
	frameSize = 16 << 10
	// farewell is how long a client may take to read what is left for it.
	farewell = 5 * time.Second
	// maxRefusal is how much is read of what the runtime says when it refuses.
	maxRefusal = 4 << 10
)

// offers reports whether a client asks for a WebSocket on which this protocol is spoken.
func offers(r *http.Request, protocol string) bool {
	return websocket.IsWebSocketUpgrade(r) && slices.Contains(websocket.Subprotocols(r), protocol)
}

// upgrade makes a WebSocket of a request. If it can't, the client has been told.
func upgrade(w http.ResponseWriter, r *http.Request, protocol string) (*websocket.Conn, error) {
	return (&websocket.Upgrader{
		Subprotocols: []string{protocol}, ReadBufferSize: frameSize, WriteBufferSize: frameSize + 16,
		// The client has shown who it is. API servers pass on the pages that their clients come from.
		CheckOrigin: func(*http.Request) bool { return true },
	}).Upgrade(w, r, nil)
}

// say sends a client the last message, after which it closes the connection.
func say(client *websocket.Conn, code int) {
	until := time.Now().Add(farewell)
	// who has left isn't told
	_ = client.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), until)
	_ = client.SetReadDeadline(until)
}

// channels are those of version 5 by their number, as streams of SPDY are called.
var channels = [...]string{
	remotecommand.StreamStdIn: v1.StreamTypeStdin, remotecommand.StreamStdOut: v1.StreamTypeStdout,
	remotecommand.StreamStdErr: v1.StreamTypeStderr,
	remotecommand.StreamErr:    v1.StreamTypeError, remotecommand.StreamResize: v1.StreamTypeResize,
}

// endOfChannel is, in the place of a channel's number, that the one which follows has come to its end.
const endOfChannel = 255

// translate connects the channels of a WebSocket with the runtime's streams, which are the same one for one.
func (a *api) translate(w http.ResponseWriter, r *http.Request, at *url.URL, o streamOptions) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // closes the connection to the runtime
	runtime, err := a.overSPDY(ctx, at)
	if err != nil {
		refusal{}.Error(w, r, err)
		return
	}
	// An end in order would have to be read by the runtime, which may never do that.
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
		// The runtime begins when all are there.
		if s.streams[n], err = runtime.CreateStream(http.Header{v1.StreamType: {channels[n]}}); err != nil {
			s.fail(fmt.Errorf("the container runtime has no stream for %s: %w", channels[n], err))
			say(client, websocket.CloseNormalClosure)
			return
		}
	}
	s.run(cancel)
}

// overSPDY asks for the runtime's streams.
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

// session is one client's exec or attach.
type session struct {
	client  *websocket.Conn
	streams [len(channels)]httpstream.Stream
	// writing is held by who sends a message.
	writing sync.Mutex
}

// run carries what is said both ways until the runtime has said all, or the client has left. hangUp closes the
// connection to the runtime.
func (s *session) run(hangUp func()) {
	var in, out sync.WaitGroup
	in.Go(func() {
		defer hangUp()
		defer s.client.Close() // nor does a client that has left hold up what is written
		s.fromClient()
	})
	for _, n := range []int{remotecommand.StreamStdOut, remotecommand.StreamStdErr} {
		if s.streams[n] != nil {
			out.Go(func() { s.toClient(n, hangUp) })
		}
	}
	first := slices.IndexFunc(s.streams[1:], func(stream httpstream.Stream) bool { return stream != nil })
	_ = s.send([]byte{byte(1 + first)}) // that all is there; whether the client is, is found by who reads
	out.Go(func() {
		if !s.toClient(remotecommand.StreamErr, hangUp) {
			s.fail(errors.New("the streams ended before the container runtime said what came of the command"))
		}
	})
	out.Wait()
	hangUp()
	say(s.client, websocket.CloseNormalClosure)
	in.Wait()
}

// toClient sends what comes on a stream, and reports whether anything did. It hangs up if the client has left.
func (s *session) toClient(n int, hangUp func()) (some bool) {
	message := make([]byte, 1+frameSize)
	message[0] = byte(n)
	for {
		length, err := s.streams[n].Read(message[1:])
		if length > 0 {
			some = true
			if s.send(message[:1+length]) != nil {
				s.client.Close()
				hangUp()                                 // who reads from the client may wait for the runtime
				_, _ = io.Copy(io.Discard, s.streams[n]) // or other streams would wait for this one
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

// fail tells the client that there will be no result.
func (s *session) fail(err error) {
	status, marshalling := json.Marshal(apierrors.NewInternalError(err).Status())
	if marshalling == nil {
		_ = s.send(append([]byte{remotecommand.StreamErr}, status...)) // who has left isn't told
	}
}

// fromClient hands on what the client says, until it leaves.
func (s *session) fromClient() {
	buffer := make([]byte, frameSize)
	for {
		_, message, err := s.client.NextReader()
		if err != nil {
			return
		}
		head := buffer[:1]
		if _, err := io.ReadFull(message, head); err != nil {
			continue // an empty one; that the client has left is found next
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
		case stream == nil: // nobody reads it
		case over:
			_ = stream.Close() // the runtime may have gone
		default:
			_, _ = io.CopyBuffer(stream, message, buffer) // a command may end before its input does
		}
	}
}

// tunnel carries the SPDY of a port-forward in messages.
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
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // what there is of it
		refusal{}.Error(w, r, fmt.Errorf("the container runtime refuses to forward ports: %s: %s", response.Status,
			text))
		return
	}
	client, err := upgrade(w, r, tunnelProtocol)
	if err != nil {
		return
	}
	defer client.Close()
	// The request's context doesn't end connections that have been taken over, and either end may have stopped to read.
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
			_, _ = io.Copy(runtime, message) // that the runtime has gone is found by who reads of it
		}
	})
	_, _ = io.Copy(messages{client}, runtime) // either has left
	runtime.Close()                           // it may not read what the client says
	say(client, websocket.CloseNormalClosure)
	in.Wait()
}

// messages writes each piece as one.
type messages struct{ client *websocket.Conn }

// Write implements io.Writer.
func (m messages) Write(b []byte) (int, error) {
	if err := m.client.WriteMessage(websocket.BinaryMessage, b); err != nil {
		return 0, err
	}
	return len(b), nil
}
