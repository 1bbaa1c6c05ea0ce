package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// plugin is one registration of a device plugin.
type plugin struct {
	resource, endpoint string
	// announced is the socket in plugins_registry by which the plugin registered; empty if the plugin called
	// Register.
	announced string
	options   *api.DevicePluginOptions
	conn      *grpc.ClientConn
	client    api.DevicePluginClient
	// stop makes follow end for this plugin. number is the sequence number of the registration. Run sets both.
	stop   func()
	number int
	// taken is closed when Run has accepted the plugin.
	taken chan struct{}
	// listed means that the plugin has listed its devices. The manager's mutex guards it.
	listed bool
	// wrong is the problem of the plugin's last list; empty if there was none. Only the goroutine that follows the
	// plugin uses it.
	wrong string
}

// Socket returns the path of the registration socket in the directory of device plugins.
func Socket(dir string) string { return filepath.Join(dir, "kubelet.sock") }

// again is the delay before the next attempt to serve the socket, or to call a plugin that doesn't respond.
const again = 10 * time.Second

// Run registers plugins and receives their lists until ctx ends. It first removes all sockets in the directory: plugins
// notice this and register again.
func (m *Manager) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer func() {
		running.Wait()
		select {
		case <-m.relisted:
			m.recordLists()
		default:
		}
	}()
	defer close(m.ended)
	running.Go(func() { m.serve(ctx) })
	running.Go(func() { paced(ctx, m.affected.Woken(), m.wakeHolders) })
	running.Go(func() { paced(ctx, m.relisted, m.recordLists) })
	for number := 1; ; {
		var due <-chan time.Time
		if next := m.expire(); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
		case <-m.look:
		case p := <-m.connected:
			own, stop := context.WithCancel(ctx)
			p.stop, p.number = stop, number
			number++
			m.markFollowed(p)
			running.Go(func() {
				defer p.conn.Close()
				defer stop()
				m.follow(own, p)
			})
		}
	}
}

// serve serves the registration socket.
func (m *Manager) serve(ctx context.Context) {
	for last := (logging.LastError{}); ; {
		err := m.serveOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		last.Log(m.conf.Log, err, "No device plugin can register until that is corrected")
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

func (m *Manager) serveOnce(ctx context.Context) error {
	entries, err := os.ReadDir(m.conf.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() == fs.ModeSocket {
			if err := os.Remove(filepath.Join(m.conf.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	listener, err := socket.Listen(Socket(m.conf.Dir))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterRegistrationServer(server, registration{Manager: m})
	defer context.AfterFunc(ctx, server.Stop)()
	err = server.Serve(listener)
	server.Stop()
	return err
}

// registration is the gRPC service at the registration socket.
type registration struct {
	api.UnsafeRegistrationServer
	*Manager
}

// Register implements api.RegistrationServer.
func (r registration) Register(ctx context.Context, q *api.RegisterRequest) (*api.Empty, error) {
	name := q.GetEndpoint()
	if name == "" || name != filepath.Base(name) {
		return nil, status.Errorf(codes.InvalidArgument,
			"endpoint %q: it has to be the name of the plugin's socket in %s", name, r.conf.Dir)
	}
	p := &plugin{resource: q.GetResourceName(), endpoint: filepath.Join(r.conf.Dir, name)}
	if err := r.connect(ctx, p, []string{q.GetVersion()}); err != nil {
		r.conf.Log.Error(err, "A device plugin was refused", "resourceName", q.GetResourceName(), "endpoint", name)
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &api.Empty{}, nil
}

// Register implements pluginwatch.Handler.
func (m *Manager) Register(ctx context.Context, r pluginwatch.Registration) error {
	return m.connect(ctx, &plugin{resource: r.Name, endpoint: r.Endpoint, announced: r.Socket}, r.Versions)
}

// Patience implements pluginwatch.Handler.
func (m *Manager) Patience() time.Duration { return m.limits.ask }

// Gone implements pluginwatch.Handler.
func (m *Manager) Gone(r pluginwatch.Registration) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for p := range m.followed {
		if p.resource == r.Name && p.announced == r.Socket {
			p.stop()
		}
	}
}

// connect connects to a plugin and passes it to Run.
func (m *Manager) connect(ctx context.Context, p *plugin, versions []string) error {
	if !slices.Contains(versions, api.Version) {
		return fmt.Errorf("device plugin for %q: it has version %s of the API, and has to have %s", p.resource,
			cmp.Or(strings.Join(versions, ", "), "no"), api.Version)
	}
	if !pod.IsExtendedResource(v1.ResourceName(p.resource)) || len(validation.IsQualifiedName(p.resource)) > 0 {
		return fmt.Errorf("device plugin for %q: its name has to be that of an extended resource, such as "+
			"example.com/gpu", p.resource)
	}
	conn, err := pluginwatch.Connect(p.endpoint)
	if err != nil {
		return err
	}
	p.taken = make(chan struct{})
	p.conn, p.client = conn, api.NewDevicePluginClient(conn)
	ctx, cancel := context.WithTimeout(ctx, m.limits.ask)
	defer cancel()
	if p.options, err = p.client.GetDevicePluginOptions(ctx, &api.Empty{}); err != nil {
		conn.Close()
		return fmt.Errorf("device plugin for %s: failed to get device plugin options: %s", p.resource,
			status.Convert(err).Message())
	}
	select {
	case m.connected <- p:
		<-p.taken
		m.conf.Meter.Registered(p.resource)
		return nil
	case <-m.ended:
		err = errors.New("the agent is ending")
	case <-ctx.Done():
		err = ctx.Err()
	}
	conn.Close()
	return err
}

// markFollowed records that lists are received from the plugin. It stops earlier registrations of its socket that
// haven't listed their devices. Earlier registrations that have continue until the new one lists its devices.
func (m *Manager) markFollowed(p *plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.followed {
		if other.resource == p.resource && other.endpoint == p.endpoint && !other.listed {
			other.stop()
		}
	}
	m.followed[p] = true
	close(p.taken)
}

// follow receives the plugin's lists until it ends or is replaced.
func (m *Manager) follow(ctx context.Context, p *plugin) {
	log := m.conf.Log.WithValues("resourceName", p.resource, "endpoint", p.endpoint)
	late := time.AfterFunc(m.limits.list, func() {
		log.Info("A device plugin has registered, but doesn't list its devices: it is waited for; if that lasts, "+
			"restart it", "duration", m.limits.list)
	})
	defer late.Stop()
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	for first := true; err == nil; first = false {
		var list *api.ListAndWatchResponse
		if list, err = stream.Recv(); err != nil {
			break
		}
		if first {
			late.Stop()
			log.Info("A device plugin has registered", "devices", len(list.GetDevices()))
		}
		m.listed(ctx, p, list.GetDevices())
		// Plugins that send lists all the time are slowed down by the stream's flow control.
		select {
		case <-ctx.Done():
		case <-time.After(perList + time.Duration(len(list.GetDevices()))*perDevice):
		}
	}
	m.mu.Lock()
	delete(m.followed, p)
	s := m.resources[p.resource]
	current := s != nil && s.plugin == p
	if s == nil && ctx.Err() == nil { // the node has the resource, but no devices
		s = &resourceState{devices: map[string]*api.Device{}}
		m.resources[p.resource], current = s, true
	}
	if current {
		s.plugin, s.until = nil, time.Now().Add(m.limits.absent)
	}
	var affected []types.UID
	if current {
		affected = m.holders(p.resource, func(id string) bool { return s.devices[id] != nil })
	}
	m.mu.Unlock()
	if ctx.Err() == nil {
		log.Info("A device plugin has ended: its devices are given to nobody until it registers again; containers "+
			"keep theirs", "err", status.Convert(err).Message())
	}
	if current {
		m.look.Wake()
		m.changed.Wake()
		m.affected.Wake(affected...)
	}
}

// The pause before the next list of a plugin is received, per list and per device in the list: about twenty times the
// cost of processing them.
const (
	perList   = time.Millisecond
	perDevice = 20 * time.Microsecond
)

// listed processes a plugin's list of devices. ctx is the context of follow, which ends when the plugin is replaced.
func (m *Manager) listed(ctx context.Context, p *plugin, list []*api.Device) {
	devices, wrong := make(map[string]*api.Device, len(list)), ""
	for _, d := range list {
		known := devices[d.GetID()]
		switch {
		case d.GetID() == "":
			wrong = "a device has no ID, and isn't used"
		case known != nil:
			wrong = fmt.Sprintf("device %q is listed twice, and counts once", d.GetID())
		}
		if d.GetID() != "" && (known == nil || known.GetHealth() == api.Healthy) { // both entries have to be healthy
			devices[d.GetID()] = d
		}
	}
	if wrong != "" && wrong != p.wrong { // not for each list
		m.conf.Log.Info("A device plugin's list of devices isn't as it should be", "resourceName", p.resource,
			"reason", wrong)
	}
	p.wrong = wrong
	m.mu.Lock()
	s := m.resources[p.resource]
	if ctx.Err() != nil || s != nil && s.plugin != nil && s.plugin.number > p.number { // it was replaced
		p.stop()
		m.mu.Unlock()
		return
	}
	if s == nil {
		s = &resourceState{}
		m.resources[p.resource] = s
	}
	p.listed = true
	before, was := s.plugin, s.devices
	s.plugin, s.devices, s.gone = p, devices, false
	others := len(was) != len(devices) || s.prestart != p.options.GetPreStartRequired()
	s.prestart = p.options.GetPreStartRequired()
	changed := map[string]bool{} // some plugins repeat their lists
	for id, d := range was {
		if before == nil || devices[id] == nil || devices[id].GetHealth() != d.GetHealth() {
			changed[id] = true
		}
	}
	for id := range devices {
		if was[id] == nil {
			others, changed[id] = true, true
		}
	}
	affected := m.holders(p.resource, func(id string) bool { return changed[id] })
	if before != nil && before != p {
		before.stop()
	}
	m.mu.Unlock()
	if before != nil && before != p {
		m.conf.Log.Info("Another device plugin has registered in place of the one before", "resourceName", p.resource,
			"endpoint", p.endpoint)
	}
	if others {
		m.relisted.Wake()
	}
	if before == nil || len(changed) > 0 {
		m.changed.Wake()
	}
	m.affected.Wake(affected...)
}

// holders returns the pods that have a device of the resource for which the function such returns true. The caller
// holds the manager's mutex.
func (m *Manager) holders(resource string, such func(id string) bool) []types.UID {
	var uids []types.UID
	for uid, p := range m.pods {
		for name, h := range p.containers.all {
			if name == resource && slices.ContainsFunc(h.ids, such) {
				uids = append(uids, uid)
				break
			}
		}
	}
	return uids
}

// paced calls do for each wake-up, but at most once in gap, until ctx ends.
func paced(ctx context.Context, woken <-chan struct{}, do func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
		}
		do()
		select {
		case <-ctx.Done():
			return
		case <-time.After(gap):
		}
	}
}

// wakeHolders wakes the pods whose devices' health has changed.
func (m *Manager) wakeHolders() {
	for _, uid := range m.affected.Drain() {
		m.conf.Wake(uid)
	}
}

// recordLists writes the record after plugins' lists have changed.
func (m *Manager) recordLists() {
	if err := m.save(); err != nil {
		m.conf.Log.Error(err, "After a restart the agent will count other devices until their plugins have registered")
	}
}

// expire removes the capacity of resources whose plugins were absent for too long, and returns when the next one
// expires.
func (m *Manager) expire() (next time.Time) {
	m.mu.Lock()
	changed := false
	for name, s := range m.resources {
		if s.plugin != nil || s.gone {
			continue
		}
		switch {
		case time.Now().Before(s.until):
			if next.IsZero() || s.until.Before(next) {
				next = s.until
			}
		default:
			s.gone, changed = true, true
			m.conf.Log.Info("A device plugin hasn't come back: the node has none of its devices any more",
				"resourceName", name)
		}
	}
	m.mu.Unlock()
	if changed {
		m.changed.Wake()
	}
	return next
}
