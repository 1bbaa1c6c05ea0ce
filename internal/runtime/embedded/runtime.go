package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	connection "github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/archives"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/orphans"
)

// Runtime is the containerd of one root directory. Call Start first, then Run; Import and Problems may be called at
// any time after Start, from any goroutine.
type Runtime struct {
	config  Config
	layout  rootdir.Runtime
	network cni.Network
	log     logr.Logger
	images  *archives.Importer
	orphans *orphans.Sweeper
	// answers is signaled when containerd has become ready.
	answers wake.Slot

	// mu guards the state of the running containerd, and the keeper.
	mu      sync.Mutex
	process *child.Process
	// ready is when the process became able to run pods; zero before.
	ready time.Time
	// keeper is set once Start has created the network.
	keeper *cni.Keeper
}

// New validates the configuration, after applying defaults. It changes nothing.
func New(config Config, log logr.Logger) (*Runtime, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("embedded runtime: %w", err)
	}
	l, err := config.Layout()
	if err != nil {
		return nil, fmt.Errorf("embedded runtime: %w", err)
	}
	network, err := config.Network()
	if err != nil {
		return nil, fmt.Errorf("embedded runtime: %w", err)
	}
	if config.Files == nil {
		config.Files = filewatch.New(filewatch.Every, log)
	}
	connect := func() (*grpc.ClientConn, error) { return DialSocket(l.Socket()) }
	return &Runtime{
		config: config, layout: l, network: network, log: log,
		images:  archives.New(l.Images(), config.Files, l.Imported(), connect, config.OnImport, log),
		orphans: orphans.New(l, connect, log),
		answers: wake.NewSlot(),
	}, nil
}

// Endpoint returns the URL of containerd's CRI socket.
func (r *Runtime) Endpoint() string { return endpoint(r.layout) }

// StateDir returns the directory of running containers.
func (r *Runtime) StateDir() string { return r.layout.State() }

// Start ensures that containerd runs and answers, and imports the existing archives, including the archive of the
// pause image beside the programs. A containerd that already runs for this root directory is adopted. If its
// program or configuration has changed, it is restarted, while its pods continue. Only one agent per root directory
// may call Start; the agent's lock ensures that.
func (r *Runtime) Start(ctx context.Context) error {
	if err := r.prepare(ctx); err != nil {
		return err
	}
	var back pauses
	for {
		err := r.launch(ctx)
		if err == nil {
			break
		}
		if !errors.Is(err, errNoCRI) {
			return err
		}
		r.log.Error(err, "Containerd can't be started yet")
		if !wake.Sleep(ctx, back.advance(0)) {
			return err
		}
	}
	if r.config.StopsOnly {
		return nil
	}
	if err := r.images.Sync(ctx); err != nil {
		return err
	}
	return r.providePause(ctx)
}

// providePause imports the default pause image if it is missing and its archive is beside the programs. The image isn't
// in any registry.
func (r *Runtime) providePause(ctx context.Context) error {
	programs, err := FindPrograms(r.config.BinDirs)
	if err != nil || programs.PauseArchive == "" || r.config.PauseImage != DefaultPauseImage {
		return err
	}
	return r.images.Ensure(ctx, DefaultPauseImage, programs.PauseArchive)
}

// Run keeps containerd and the pod network working, imports archives as they appear, and removes orphaned shims.
// When ctx ends it returns nil and leaves containerd running.
func (r *Runtime) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.supervise(ctx) })
	group.Go(func() error { return r.keeper.Run(ctx) })
	if !r.config.StopsOnly {
		group.Go(func() error { return r.images.Run(ctx) })
	}
	group.Go(func() error { return r.orphans.Run(ctx, r.answers) })
	return group.Wait()
}

// Import imports one image archive and returns the references of its images.
func (r *Runtime) Import(ctx context.Context, path string) ([]string, error) {
	return r.images.Import(ctx, path)
}

// ImportFrom imports the images of an archive, and returns their references.
func (r *Runtime) ImportFrom(ctx context.Context, archive io.Reader) ([]string, error) {
	return r.images.ImportFrom(ctx, archive)
}

// ExportTo writes an archive with the images of these names, which are the CRI's.
func (r *Runtime) ExportTo(ctx context.Context, names []string, archive io.Writer) error {
	return r.images.ExportTo(ctx, names, archive)
}

// Tag adds the name target to the image with the ID, which has one of the names.
func (r *Runtime) Tag(ctx context.Context, id string, names []string, target string) error {
	conn, err := Dial(r.config)
	if err != nil {
		return err
	}
	defer conn.Close()
	return Tag(ctx, conn, id, names, target)
}

// Archived lists the images whose archives are in the images directory.
func (r *Runtime) Archived() []string { return r.images.Archived() }

// Problems lists the archives that can't be imported, each in a sentence.
func (r *Runtime) Problems() []string { return r.images.Problems() }

// NetworkProblem returns the problem of the pod network; the zero value if there is none.
func (r *Runtime) NetworkProblem() cni.Problem {
	r.mu.Lock()
	keeper := r.keeper
	r.mu.Unlock()
	if keeper == nil {
		return cni.Problem{}
	}
	return keeper.Problem()
}

// PID returns containerd's process ID, 0 if it doesn't run.
func (r *Runtime) PID() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return 0
	}
	return r.process.PID()
}

// Shutdown stops the containerd of this root directory, even if another agent started it; its pods continue. It is
// for teardown: an agent that stops leaves containerd running. When ctx ends first, containerd is killed. Run must
// not be running.
func (r *Runtime) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	p := r.process
	r.process = nil
	r.mu.Unlock()
	if p == nil {
		var err error
		if p, err = child.Find(r.layout.Config()); err != nil {
			return fmt.Errorf("find the running containerd: %w", err)
		}
	}
	if p == nil {
		return nil
	}
	err := p.Stop(ctx)
	p.Reap()
	return err
}

// prepare creates the files, directories and network that containerd and pods need on the host.
func (r *Runtime) prepare(ctx context.Context) error {
	if err := r.layout.Make(); err != nil {
		return err
	}
	inUse, err := inUse(ctx, r.layout)
	if err != nil {
		return err
	}
	rebooted, err := r.layout.ForgetEarlierBoot(inUse)
	if err != nil {
		return err
	}
	if rebooted {
		r.log.V(2).Info("The host was rebooted; cleared the runtime's state of the earlier boot")
	}
	if err := r.network.CheckOverlap(); err != nil {
		return err
	}
	backend, err := cni.Detect(ctx)
	if err != nil {
		return err
	}
	changed, err := r.network.EnableForwarding()
	if err != nil {
		return err
	}
	if len(changed) > 0 {
		r.log.Info("Enabled IP forwarding for the pod network", "settings", changed)
	}
	if cni.ForwardDropped(ctx) {
		r.log.Info("The host's firewall drops forwarded packets, so pods reach only each other and this host; "+
			"accept the bridge in its FORWARD chain to change that", "bridge", r.network.Bridge)
	}
	// The rules match the bridge's name, so they exist before the bridge and before any packet of a pod.
	if err := r.network.EnsureRules(ctx, backend); err != nil {
		return err
	}
	if _, err := r.network.EnsureBridge(nil); err != nil {
		return err
	}
	keeper := cni.NewKeeper(
		cni.KeeperConfig{Network: r.network, Backend: backend, Portmap: r.portmap, Restored: r.config.OnRestore,
			Log: r.log})
	r.mu.Lock()
	r.keeper = keeper
	r.mu.Unlock()
	return r.network.Write(r.layout.CNIConf(), backend)
}

// portmap returns the path of the plugin that creates host ports.
func (r *Runtime) portmap() (string, error) {
	programs, err := FindPrograms(r.config.BinDirs)
	if path := programs.Plugin("portmap"); path != "" {
		return path, nil // even if other programs are missing
	}
	return "", err
}

// inUse reports whether the state directory is in use: by its containerd, or by containers whose root file systems
// are mounted there.
func inUse(ctx context.Context, l rootdir.Runtime) (bool, error) {
	if found, err := ours(ctx, l); err != nil || found {
		return found, err
	}
	if found, err := runs(l); err != nil || found { // finds also a containerd that doesn't answer
		return found, err
	}
	state, err := filepath.EvalSymlinks(l.State()) // as in the mount table
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find what is mounted in the runtime's state: %w", err)
	}
	mounted, err := mounts.List(state)
	return slices.ContainsFunc(mounted, func(m mounts.Entry) bool { return m.Point != state }), err
}

// CheckOurs returns an error if the root directory's containerd answers but isn't among the visible processes: this
// agent couldn't stop it, and it would continue to use the directory.
func CheckOurs(ctx context.Context, l rootdir.Runtime) error {
	_, err := ours(ctx, l)
	return err
}

// ours reports whether the containerd that answers on the socket is among the visible processes.
func ours(ctx context.Context, l rootdir.Runtime) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endIn)
	defer cancel()
	for {
		conn, err := socket.Dial(ctx, l.Socket())
		switch {
		case err == nil:
			_ = conn.Close() // the connection was the answer
		case errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
			return false, nil // no process listens
		}
		if found, err := runs(l); err != nil || found {
			return found, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf(
				"a containerd answers at %s, and none of the processes here is it: it runs in a container or another "+
					"PID namespace, or %s had another name when it was started; nothing was changed: do this where "+
					"it runs and by that name, or end it there",
				l.Socket(), l.Root)
		// the process of an exiting containerd may disappear before its socket is closed
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// runs reports whether the containerd of this directory is among the visible processes.
func runs(l rootdir.Runtime) (bool, error) {
	p, err := child.Find(l.Config())
	if err != nil {
		return false, fmt.Errorf("find the running containerd: %w", err)
	}
	if p == nil {
		return false, nil
	}
	return true, p.Release()
}

// endIn is how long the socket of an exiting containerd may still accept connections.
const endIn = time.Second

// launch adopts the running containerd or starts one, and waits until it answers.
func (r *Runtime) launch(ctx context.Context) error {
	programs, err := FindPrograms(r.config.BinDirs)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(r.layout.Config())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	h, err := lookAtHost(r.layout.Containerd(), before)
	if err != nil {
		return err
	}
	conf := render(r.config, r.layout, programs, h)
	p, err := r.adopt(ctx, programs, conf)
	if err != nil {
		return err
	}
	adopted := p != nil
	if !adopted {
		// The configuration is written only while no containerd runs, so that the file always has the configuration of
		// the running containerd. An unchanged file isn't written: on a full disk the write would fail and so would the
		// start, but only a running agent can free disk space.
		if !bytes.Equal(before, conf) {
			err := atomicfile.Write(r.layout.Config(), conf, 0o600)
			if err != nil && !(r.config.StopsOnly && len(before) > 0 && atomicfile.DiskFull(err)) {
				return err
			}
		}
		if p, err = r.spawn(programs); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.process, r.ready = p, time.Time{}
	r.mu.Unlock()
	if r.config.OnStart != nil {
		if err := r.config.OnStart(p.PID()); err != nil {
			return errors.Join(err, p.Stop(ctx)) // Run waits for the process's end, and starts another one
		}
	}
	if err := r.awaitReady(ctx, p, !adopted); err != nil {
		if errors.Is(err, errNoCRI) {
			err = errors.Join(err, r.end(ctx, p))
		}
		return err
	}
	r.log.V(2).Info("Containerd is ready", "pid", p.PID(), "adopted", adopted, "snapshotter", h.Snapshotter)
	return nil
}

func (r *Runtime) spawn(programs Programs) (*child.Process, error) {
	log, err := child.OpenLog(r.layout.Log())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	return child.Spawn(programs.Containerd, r.layout.Config(), programs.Path, log, append(r.traces(), garbage)...)
}

// garbage is an environment variable of containerd that makes Go's garbage collector run more often than by
// default. When a command in a container prints endlessly, containerd buffers up to 16 MiB of each output stream,
// doubling the buffer up to that size, and then discards it. With four such probes at once, containerd used 210 MiB
// of memory without this setting, and 150 MiB with it. Without load the setting costs nothing.
const garbage = "GOGC=30"

// traces returns the environment variables that configure tracing, because containerd's configuration file can't.
// containerd records spans only for calls that the agent traces. It retries for a minute before it logs that the
// collector is unavailable; otherwise such messages would fill its log.
func (r *Runtime) traces() []string {
	if r.config.Collector == "" {
		return nil
	}
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + r.config.Collector, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_TRACES_SAMPLER=parentbased_always_off",
		"OTEL_EXPORTER_OTLP_TIMEOUT=60000", "OTEL_BSP_EXPORT_TIMEOUT=60000"}
}

// adopt returns the running containerd, or stops it if it has to be restarted.
func (r *Runtime) adopt(ctx context.Context, programs Programs, conf []byte) (*child.Process, error) {
	p, err := child.Find(r.layout.Config())
	if p == nil || err != nil {
		return nil, err
	}
	read, err := os.ReadFile(r.layout.Config())
	var why string
	switch {
	case err != nil:
		why = err.Error()
	case string(read) != string(conf) && !r.config.StopsOnly:
		why = "its configuration changed"
	case !p.Runs(programs.Containerd):
		why = "its program changed"
	default:
		if why, err = fewFiles(p); err != nil {
			return p, err
		}
		if why == "" {
			hangErr := r.awaitAdopted(ctx, p)
			if hangErr == nil || ctx.Err() != nil {
				return p, ctx.Err()
			}
			why = hangErr.Error()
		}
	}
	r.log.Info("Restarting containerd; pods go on running", "pid", p.PID(), "reason", why)
	return nil, r.end(ctx, p)
}

// end stops containerd, so that another one can be started.
func (r *Runtime) end(ctx context.Context, p *child.Process) error {
	r.mu.Lock()
	r.process = nil
	r.mu.Unlock()
	end, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	err := p.Stop(end)
	p.Reap()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		r.log.Info("Killed containerd, which didn't stop; pods go on running", "pid", p.PID())
		err = nil
	}
	return err
}

// awaitAdopted returns nil when containerd has answered or is still starting. The error means that it hangs or has
// ended; it is ctx's if ctx ended first.
func (r *Runtime) awaitAdopted(ctx context.Context, p *child.Process) error {
	if age := p.Age(); age < startFor && !listens(ctx, r.layout.Socket()) {
		r.log.V(2).Info("The running containerd is still starting", "pid", p.PID(), "duration", age)
		return nil
	}
	watched, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if p.Wait(watched) == nil {
			stop(errEnded)
		}
	})
	defer watch.Wait()
	defer stop(nil)
	err := r.awaitAnswer(watched, p, whileAdopted)
	if cause := context.Cause(watched); cause != nil {
		return cause
	}
	return err
}

// errEnded means that containerd's process has ended.
var errEnded = errors.New("it ended")

// stopWithin is how long a containerd may take to stop for a restart before it is killed.
const stopWithin = 20 * time.Second

// fewFiles returns a reason to restart a containerd whose limit of open files is lower than that of a new one,
// because it was started by an agent with a lower limit. With the low limit, pods would fail with "too many open
// files".
func fewFiles(p *child.Process) (string, error) {
	its, err := p.MayOpen()
	if err != nil {
		return "", err
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return "", fmt.Errorf("read the limit of open files: %w", err)
	}
	if its >= own.Max {
		return "", nil
	}
	return fmt.Sprintf("it may have %d files open at once, and a new one %d", its, own.Max), nil
}

// awaitReady waits until containerd can run pods, or has ended.
func (r *Runtime) awaitReady(ctx context.Context, p *child.Process, fresh bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if r.attend(ctx, p, whileStarting) == nil {
			cancel(errEnded)
		}
	})
	defer watch.Wait()
	defer cancel(nil)
	if err := r.ask(ctx, fresh); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("containerd (pid %d) isn't ready: %w; the last line of its log %s: %s", p.PID(), err,
			r.layout.Log(), child.LastLine(r.layout.Log()))
	}
	r.mu.Lock()
	r.ready = time.Now()
	r.mu.Unlock()
	r.answers.Wake()
	return nil
}

func (r *Runtime) ask(ctx context.Context, fresh bool) error {
	if err := waitForSocket(ctx, r.config.Files, r.layout.Socket()); err != nil {
		return err
	}
	conn, err := DialSocket(r.layout.Socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	if err := waitForCRI(ctx, client); err != nil {
		return err
	}
	if !fresh {
		return nil
	}
	return r.releaseAddresses(ctx, client)
}

// releaseAddresses frees the addresses of sandboxes that containerd doesn't have: it died between reserving an
// address and recording the sandbox. A containerd that has just started isn't creating sandboxes yet.
func (r *Runtime) releaseAddresses(ctx context.Context, client cri.RuntimeServiceClient) error {
	known := map[string]bool{}
	err := connection.EachSandbox(ctx, connection.ListerOf(client), nil, func(s *cri.PodSandbox) {
		known[s.GetId()] = true
	})
	if err != nil {
		return fmt.Errorf("list the sandboxes: %w", err)
	}
	released, err := r.network.ReleaseAddresses(func(id string) bool { return known[id] })
	if len(released) > 0 {
		r.log.V(2).Info("Released pod addresses whose sandbox is gone", "addresses", released)
	}
	return err
}
