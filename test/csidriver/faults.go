package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// Codes of calls without an answer.
const (
	cut    = "cut"
	killed = "killed"
)

// deadlineMargin is how long before the caller's deadline an answer may be lost: the two clocks start apart.
const deadlineMargin = 100 * time.Millisecond

// rules are the rules that tests have added.
type rules struct {
	mu   sync.Mutex
	last int
	list []*rule
}

type rule struct {
	driver.Rule
	seen     int
	released chan struct{}
}

func newRules() *rules { return &rules{} }

func (r *rules) add(added driver.Rule) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	added.ID, added.Nth = r.last, max(added.Nth, 1)
	if added.Count == 0 {
		added.Count = 1
	}
	r.list = append(r.list, &rule{Rule: added, released: make(chan struct{})})
	return added.ID
}

// release removes a rule, 0 for all, and lets its calls go on.
func (r *rules) release(id int) (found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rest []*rule
	for _, x := range r.list {
		if id != 0 && x.ID != id {
			rest = append(rest, x)
			continue
		}
		close(x.released)
		found = true
	}
	r.list = rest
	return found || id == 0
}

// match counts the call for every rule that selects it, and returns the first one that acts on it.
func (r *rules) match(c driver.Call) *rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	var acts *rule
	for _, x := range r.list {
		if x.Method != "" && x.Method != c.Method || x.Volume != "" && x.Volume != c.Volume ||
			x.Target != "" && x.Target != c.Target {
			continue
		}
		x.seen++
		if acts == nil && x.seen >= x.Nth && (x.Count < 0 || x.seen < x.Nth+x.Count) {
			acts = x
		}
	}
	return acts
}

// interceptor logs each call, applies the rules, and holds the calls against the law.
type interceptor struct {
	journal *journal
	rules   *rules
	conns   *connections
	log     io.Writer // for each call, or nil

	mu     sync.Mutex
	busy   map[string]bool   // what a call works on
	active map[string]active // the last call for it
}

// active is a call that isn't answered.
type active struct {
	left <-chan struct{}
	seq  int
	step step
}

// settleTime is how long a call waits until the driver notices that the caller of the call before has left.
const settleTime = 200 * time.Millisecond

// begin records a call. If the call before isn't answered, it waits a little until the driver notices that its caller
// has left: a client whose deadline passed, or that connects again, may be ahead of what the driver sees. A call whose
// own caller has left by then is out of date, and fails without a record.
func (i *interceptor) begin(ctx context.Context, c driver.Call, s step) (driver.Call, *rule, error) {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	for settled := false; ; {
		i.mu.Lock()
		before, unanswered := i.active[s.key()]
		if unanswered && !settled {
			i.mu.Unlock()
			select {
			case <-before.left:
				i.journal.left(before.seq, before.step)
				i.leave(before.step, before.seq)
			case <-ctx.Done():
				settled = true
			case <-timer.C:
				settled = true
			}
			continue
		}
		defer i.mu.Unlock()
		if err := ctx.Err(); err != nil {
			i.journal.dropped(s)
			return c, nil, status.FromContextError(err).Err()
		}
		rule := i.rules.match(c)
		if rule != nil {
			c.Rule, c.Held = rule.ID, rule.Hold && !rule.After
		}
		c = i.journal.begin(c, s)
		if s.key() != "" {
			i.active[s.key()] = active{ctx.Done(), c.Seq, s}
		}
		return c, rule, nil
	}
}

func (i *interceptor) leave(s step, seq int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.active[s.key()].seq == seq {
		delete(i.active, s.key())
	}
}

// skipped are the answers to calls that a rule skips.
func skipped(method string) (any, error) {
	switch method {
	case "NodeStageVolume":
		return &csi.NodeStageVolumeResponse{}, nil
	case "NodeUnstageVolume":
		return &csi.NodeUnstageVolumeResponse{}, nil
	case "NodePublishVolume":
		return &csi.NodePublishVolumeResponse{}, nil
	case "NodeUnpublishVolume":
		return &csi.NodeUnpublishVolumeResponse{}, nil
	case "NodeExpandVolume":
		return &csi.NodeExpandVolumeResponse{}, nil
	}
	return nil, status.Errorf(codes.Internal, "no rule can skip %s", method)
}

// noMount is the context's key for calls that are answered without mounts.
type noMount struct{}

func (i *interceptor) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	p, _ := peer.FromContext(ctx)
	conn := p.Addr.String()
	request, err := protojson.Marshal(req.(proto.Message))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	s := stepOf(req)
	s.conn = conn
	c := driver.Call{Method: path.Base(info.FullMethod), Volume: s.volume, Target: s.target, Request: request}
	if c.Target != "" {
		c.Mounted, _ = mountinfo.Mounted(c.Target) // false where nothing is
	}
	c, rule, err := i.begin(ctx, c, s)
	if err != nil {
		return nil, err
	}
	defer i.leave(s, c.Seq)
	stop := context.AfterFunc(ctx, func() { i.journal.left(c.Seq, s) })
	resp, code, err := i.answer(ctx, req, c, s, rule, handler)
	stop()
	c.Ended, c.Code, c.Message, c.Held = time.Now(), code, "", false
	if err != nil {
		c.Message = status.Convert(err).Message()
	}
	deadline, limited := ctx.Deadline()
	c.Left = ctx.Err() != nil
	i.journal.end(c, s, limited && time.Until(deadline) < deadlineMargin)
	if i.log != nil {
		logCall(i.log, info.FullMethod, req.(proto.Message), err)
	}
	if code == cut {
		i.conns.cut(conn)
	}
	return resp, err
}

// logCall writes a call as csi-driver-host-path and csi-mock do, whose logs Kubernetes' own specs read. It hides secrets.
func logCall(w io.Writer, method string, req proto.Message, err error) {
	req = proto.Clone(req)
	if r, ok := req.(interface{ GetSecrets() map[string]string }); ok {
		for key := range r.GetSecrets() {
			r.GetSecrets()[key] = "***stripped***"
		}
	}
	line := struct {
		Method    string
		Request   any
		Error     string
		FullError any
	}{Method: method, Request: req}
	if err != nil {
		line.Error, line.FullError = err.Error(), status.Convert(err).Proto()
	}
	if data, err := json.Marshal(line); err == nil { // with the names of fields as in the .proto file
		_, _ = fmt.Fprintf(w, "gRPCCall: %s\n", data)
	}
}

// answer does with a call what its rule says. The code is that of err, or cut.
func (i *interceptor) answer(ctx context.Context, req any, c driver.Call, s step, r *rule, handler grpc.UnaryHandler) (
	resp any, code string, err error) {
	unlock, free := i.lock(s)
	defer unlock()
	if r != nil && !r.After {
		if r.Hold {
			<-r.released
		}
		if acted, resp, code, err := i.act(c, r); acted {
			return resp, code, err
		}
		if r.Do == driver.NoMount {
			ctx = context.WithValue(ctx, noMount{}, true)
		}
	}
	if !free {
		err = status.Error(codes.Aborted, "another call for the volume and target is under way")
		return nil, status.Code(err).String(), err
	}
	resp, err = handler(ctx, req)
	if r != nil && r.After {
		if r.Hold {
			i.journal.held(c.Seq)
			<-r.released
		}
		if acted, resp, code, err := i.act(c, r); acted {
			return resp, code, err
		}
	}
	return resp, status.Code(err).String(), err
}

// act ends a call by its rule, and reports whether it did.
func (i *interceptor) act(c driver.Call, r *rule) (acted bool, resp any, code string, err error) {
	switch r.Do {
	case driver.Fail:
		return true, nil, r.Code.String(), status.Error(r.Code, r.Message)
	case driver.Cut:
		return true, nil, cut, status.Error(codes.Unavailable, "the connection is cut")
	case driver.Kill:
		kill()
	case driver.Skip:
		resp, err = skipped(c.Method)
		return true, resp, status.Code(err).String(), err
	}
	return false, nil, "", nil
}

// lock keeps two calls from working on one thing at a time, as the specification advises: the second isn't free to
// work.
func (i *interceptor) lock(s step) (unlock func(), free bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := s.key()
	if key == "" || i.busy[key] {
		return func() {}, key == ""
	}
	i.busy[key] = true
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.busy, key)
	}, true
}

// connections numbers the connections of a listener, so that one can be cut and its end is noticed.
type connections struct {
	net.Listener
	journal *journal

	mu    sync.Mutex
	count int
	open  map[string]net.Conn
}

type connection struct {
	net.Conn
	of   *connections
	name address
	once sync.Once
}

type address string

func (a address) Network() string { return "unix" }
func (a address) String() string  { return string(a) }

func (l *connections) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count++; l.count > 1 {
		l.journal.disturbed()
	}
	c := &connection{Conn: conn, of: l, name: address("client " + strconv.Itoa(l.count))}
	l.open[c.name.String()] = conn
	return c, nil
}

// cut closes a connection.
func (l *connections) cut(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.open[name]; c != nil {
		_ = c.Close()
	}
}

func (c *connection) RemoteAddr() net.Addr { return c.name }

func (c *connection) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		delete(c.of.open, c.name.String())
		c.of.mu.Unlock()
		c.of.journal.disturbed()
	})
	return c.Conn.Close()
}
