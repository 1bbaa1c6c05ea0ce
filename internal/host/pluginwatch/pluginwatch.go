// Package pluginwatch finds plugins by their sockets in the directory plugins_registry. It requests each plugin's type
// and name, passes the plugin to the handler for its type, and reports the result to the plugin
// (k8s.io/kubelet/pkg/apis/pluginregistration/v1,
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/, and the documentation of
// CSI and DRA drivers).
package pluginwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/gate"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
)

// Registration is a plugin's description of itself.
type Registration struct {
	// Type is CSIPlugin, DRAPlugin or DevicePlugin. Name is unique among the plugins of a type.
	Type, Name string
	// Endpoint is the path of the socket on which the plugin provides its service. Socket is the path of its
	// registration socket, in the watched directory; the two may be the same.
	Endpoint, Socket string
	// Versions are the versions of its API that the plugin supports.
	Versions []string
}

// Handler uses the plugins of one type. Its methods may be called concurrently for different sockets, but not for
// the same socket.
type Handler interface {
	// Register starts to use the plugin before ctx ends. After an error, the watcher calls it again later.
	Register(ctx context.Context, r Registration) error
	// Patience is the maximum duration of one call of Register.
	Patience() time.Duration
	// Gone is called when the socket of a registered plugin was removed or replaced.
	Gone(r Registration)
}

// Config configures a Watcher. Every field is required.
type Config struct {
	// Dir is the directory to watch, including its subdirectories. Only root may be able to write to it.
	Dir string
	// Handlers maps a plugin type to its handler. Plugins of other types are ignored.
	Handlers map[string]Handler
	// Files reports changes of the directory.
	Files *filewatch.Instance
	Log   logr.Logger
}

// limits are the timeouts and delays for one plugin.
type limits struct {
	// call is the maximum timeout for a call of the plugin. In the first attempt, GetInfo has the timeout firstCall,
	// which doubles with each failure up to call, so that many plugins that don't answer delay others only briefly.
	call, firstCall time.Duration
	// first is the delay before a failed registration is repeated; it doubles with each failure up to most.
	first, most time.Duration
}

// Watcher watches the directory and registers the plugins in it.
type Watcher struct {
	conf   Config
	limits limits
	// asking limits the number of concurrent calls of GetInfo. Plugins with fewer failures have priority. Calls of
	// handlers aren't limited: before a driver is registered, it may call a cloud's API for minutes.
	asking *gate.Gate
}

// asked is the maximum number of concurrent calls of GetInfo. Each call needs file descriptors, and the directory may
// have thousands of sockets on which no process listens.
const asked = 128

// New returns a watcher that does nothing before Run.
func New(c Config) *Watcher {
	return &Watcher{c, limits{call: 10 * time.Second, firstCall: time.Second, first: 50 * time.Millisecond,
		most: 2 * time.Minute}, gate.New(asked)}
}

// identity distinguishes a socket from a later one with the same path.
type identity struct {
	dev, inode uint64
	modified   time.Time
}

// follower is the state of the goroutine that registers the plugin of one socket.
type follower struct {
	identity identity
	cancel   context.CancelFunc
	done     chan struct{}
}

// errUnused means that there is no handler for plugins of this type.
var errUnused = errors.New("plugins of this type aren't used")

// Run watches the directory until ctx ends. It doesn't call Gone for plugins that are still registered at that time.
func (w *Watcher) Run(ctx context.Context) error {
	watcher := w.conf.Files.Open(func(t filewatch.Trail) { t.Tree(w.conf.Dir, counts) })
	defer watcher.Close()
	var running sync.WaitGroup
	defer running.Wait()
	followers := map[string]*follower{}
	// If the directory can't be watched, the instance logs that, and plugins are found later.
	for _ = watcher.Arm(); ; {
		w.reconcile(ctx, &running, followers)
		select {
		case <-ctx.Done():
			return nil
		case e := <-watcher.Events():
			switch {
			case e.Op == filewatch.Rescan:
				_ = watcher.Arm()
			case e.Op == filewatch.Deleted || e.Op == filewatch.MovedAway:
				if f := followers[filepath.Join(e.Dir, e.Name)]; f != nil {
					f.identity = identity{} // a new socket at this path belongs to another plugin
				}
			}
		}
	}
}

// counts reports whether a file of this name may be a plugin's socket: hidden files (".name") aren't.
func counts(name string) bool { return !strings.HasPrefix(name, ".") }

// reconcile starts a follower for each new socket, and stops the followers of removed and replaced sockets.
func (w *Watcher) reconcile(ctx context.Context, running *sync.WaitGroup, followers map[string]*follower) {
	found := sockets(w.conf.Dir)
	for path, f := range followers {
		id, ok := found[path]
		if !ok || id != f.identity { // Run clears the identity of a removed socket
			f.cancel()
		}
		if !ok {
			f.identity = identity{}
			select {
			case <-f.done:
				delete(followers, path)
			default: // not deleted yet: a new socket at the path has to wait until this follower ends
			}
		}
	}
	for path, id := range found {
		before := followers[path]
		if before != nil && before.identity == id {
			continue
		}
		own, cancel := context.WithCancel(ctx)
		f := &follower{identity: id, cancel: cancel, done: make(chan struct{})}
		followers[path] = f
		running.Go(func() {
			defer close(f.done)
			defer cancel()
			if before != nil {
				<-before.done
			}
			w.follow(own, ctx, path)
		})
	}
}

// sockets returns the sockets in the directory and its subdirectories, by path.
func sockets(dir string) map[string]identity {
	found := map[string]identity{}
	// Errors are ignored: the directory has just been removed, or the watch reports the same error.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSocket || !counts(d.Name()) {
			return nil
		}
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				found[path] = identity{st.Dev, st.Ino, info.ModTime()}
			}
		}
		return nil
	})
	return found
}

// follow registers the plugin at a socket, and repeats failed attempts. It calls Gone when ctx ends because the socket
// was removed or replaced. agent is the context of Run: Gone isn't called after its end.
func (w *Watcher) follow(ctx, agent context.Context, path string) {
	log, last := w.conf.Log.WithValues("path", path), logging.LastError{}
	for wait, failed := w.limits.first, 0; ctx.Err() == nil; wait, failed = min(2*wait, w.limits.most), failed+1 {
		r, err := w.register(ctx, agent, path, failed)
		switch {
		case err == nil:
			log.Info("A plugin has registered", "type", r.Type, "plugin", r.Name, "endpoint", r.Endpoint)
			<-ctx.Done()
			if agent.Err() == nil {
				log.Info("A plugin is gone: its socket was removed or replaced", "type", r.Type, "plugin", r.Name)
				w.conf.Handlers[r.Type].Gone(r)
			}
			return
		case errors.Is(err, errUnused):
			log.Info("A plugin is left alone, as this build doesn't use plugins of its type", "type", r.Type,
				"plugin", r.Name)
			<-ctx.Done()
			return
		// The first failures aren't logged: the plugin may not listen yet on a new socket.
		case ctx.Err() == nil && wait > w.limits.first:
			last.Log(log, err, "A plugin can't be used; it is tried again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// register gets the plugin's registration, passes it to the handler, and reports the result to the plugin. failed
// is the number of failed attempts before.
func (w *Watcher) register(ctx, agent context.Context, path string, failed int) (Registration, error) {
	release, err := w.asking.Acquire(ctx, -failed)
	if err != nil {
		return Registration{}, err
	}
	defer release()
	conn, err := Connect(path)
	if err != nil {
		return Registration{}, err
	}
	defer conn.Close()
	client := api.NewRegistrationClient(conn)
	asking, cancel := context.WithTimeout(ctx, min(w.limits.firstCall<<min(failed, 10), w.limits.call))
	defer cancel()
	info, err := client.GetInfo(asking, &api.InfoRequest{})
	if err != nil {
		return Registration{}, fmt.Errorf("ask the plugin at %s what it is: %s", path, status.Convert(err).Message())
	}
	release()
	r := Registration{Type: info.GetType(), Name: info.GetName(), Endpoint: cmp.Or(info.GetEndpoint(), path),
		Socket: path, Versions: info.GetSupportedVersions()}
	handler := w.conf.Handlers[r.Type]
	if handler == nil {
		return r, errUnused
	}
	err = register(ctx, handler, r)
	answer := &api.RegistrationStatus{PluginRegistered: err == nil}
	if err != nil {
		answer.Error = err.Error()
	}
	telling, cancel := context.WithTimeout(ctx, w.limits.call)
	defer cancel()
	if _, deaf := client.NotifyRegistrationStatus(telling, answer); deaf != nil && err == nil && agent.Err() == nil {
		handler.Gone(r)
		return r, fmt.Errorf("tell the plugin %s at %s that it is registered: %s", r.Name, path,
			status.Convert(deaf).Message())
	}
	return r, err
}

func register(ctx context.Context, h Handler, r Registration) error {
	if r.Name == "" {
		return fmt.Errorf("the plugin at %s says no name", r.Socket)
	}
	ctx, cancel := context.WithTimeout(ctx, h.Patience())
	defer cancel()
	return h.Register(ctx, r)
}

// maxAnswer is the maximum size of a plugin's answer, in bytes.
const maxAnswer = 16 << 20

// maxBackoff is the maximum delay before a connection to a plugin that was away is made again.
const maxBackoff = 5 * time.Second

func reconnect() backoff.Config {
	c := backoff.DefaultConfig
	c.MaxDelay = maxBackoff
	return c
}

// Connect returns a connection to the plugin at the socket path. It is established by the first call, which fails
// if no process listens on the socket.
func Connect(path string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///plugin", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)), grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect(), MinConnectTimeout: maxBackoff}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return socket.Dial(ctx, path) }))
}
